"""Unique fields: held in transactions, sessions, loads, merges and schema changes; on a directory and on a bucket."""

from datetime import date

import pyarrow as pa
import pytest

from ontologia import Entity, Field, Ontology, Relation
from ontologia.errors import GraphValidationError, MergeConflictError, ValidationError
from ontologia.omnigraph import Omnigraph


class User(Entity):
    id: Field[str] = Field(primary_key=True)
    mail: Field[str | None] = Field(default=None, unique=True)
    badge: Field[int | None] = Field(default=None, unique=True)
    born: Field[date | None] = Field(default=None, unique=True)


class Follows(Relation[User, User]):
    pass


TYPES = [User, Follows]


@pytest.fixture
def graph(root):
    graph = Omnigraph.init(root, TYPES)
    upsert(graph, User(id="a", mail="a@x", badge=1, born=date(2000, 1, 1)), User(id="b", mail="b@x", badge=2))
    return graph


def upsert(graph, *objects, branch="main"):
    with graph.transaction(branch) as tx:
        tx.upsert(objects)


def mails(graph, branch="main"):
    return {user.id: user.mail for user in graph.query(branch).entities(User).collect()}


@pytest.mark.parametrize(
    "values", [{"mail": "a@x"}, {"badge": 1}, {"born": date(2000, 1, 1)}], ids=lambda values: next(iter(values))
)
def test_a_value_that_another_row_has_is_refused_by_name(graph, values):
    with pytest.raises(GraphValidationError, match=r"node:User 'c' has the .* which is unique, and 'a' has it"):
        upsert(graph, User(id="c", **values))
    assert mails(graph).keys() == {"a", "b"}


def test_two_rows_of_one_transaction_cannot_share_a_value(graph):
    with pytest.raises(GraphValidationError, match="and 'c' is to have it"):
        upsert(graph, User(id="c", mail="new"), User(id="d", mail="new"))


def test_null_is_not_a_value(graph):
    upsert(graph, User(id="c"), User(id="d"))
    assert mails(graph)["d"] is None


def test_rows_may_swap_their_values_and_take_those_of_rows_that_go(graph):
    upsert(graph, User(id="a", mail="b@x"), User(id="b", mail="a@x"))
    with graph.transaction() as tx:
        tx.delete(User, "a")
        tx.upsert(User(id="c", mail="b@x"))
    assert mails(graph) == {"b": "a@x", "c": "b@x"}


def test_a_load_is_held_to_it_and_every_row_is_named(graph):
    table = pa.table({"id": [f"n{number}" for number in range(30)], "mail": ["a@x"] * 30})
    with pytest.raises(GraphValidationError) as caught:
        graph.load(table, type=User)
    assert (caught.value.total, len(caught.value.problems)) == (30, 20)


def test_a_session_is_held_to_it(graph, root):
    with Ontology(storage_uri=root, entity_types=[User]) as onto:
        session = onto.session()
        session.ensure(User(id="c", mail="a@x"))
        with pytest.raises(GraphValidationError, match="'a' has it"):
            session.commit()


@pytest.fixture
def diverged(graph):
    graph.create_branch("dev")
    upsert(
        graph, User(id="s", mail="same"), User(id="t", mail="t@x"), Follows(left_key="a", right_key="s"), branch="dev"
    )
    upsert(graph, User(id="m", mail="same"))
    return graph


def test_a_merge_that_would_give_one_value_to_two_rows_is_a_conflict_with_both(diverged):
    with pytest.raises(MergeConflictError) as caught:
        diverged.merge("dev")
    [conflict] = caught.value.conflicts
    assert (conflict.kind, conflict.id, conflict.base) == ("UniqueViolation", "s", None)
    assert (conflict.source["mail"], conflict.target["id"]) == ("same", "m")


def test_ours_keeps_the_targets_row_and_leaves_out_the_edges_of_the_other(diverged):
    diverged.merge("dev", strategy="ours")
    assert mails(diverged) == {"a": "a@x", "b": "b@x", "m": "same", "t": "t@x"}
    assert diverged.query().relations(Follows).count() == 0


def test_theirs_takes_the_sources_row_and_makes_the_other_what_it_is_there(diverged):
    diverged.merge("dev", strategy="theirs")
    assert mails(diverged) == {"a": "a@x", "b": "b@x", "s": "same", "t": "t@x"}


@pytest.mark.parametrize(
    ("strategy", "wanted"), [("ours", {"a": "1", "b": "2", "c": "3"}), ("theirs", {"a": "3", "b": "1"})]
)
def test_a_strategy_that_frees_one_value_and_takes_another_is_followed_to_the_end(root, strategy, wanted):
    graph = Omnigraph.init(root, TYPES)
    upsert(graph, User(id="a", mail="1"), User(id="b", mail="2"))
    graph.create_branch("dev")
    upsert(graph, User(id="a", mail="3"), User(id="b", mail="1"), branch="dev")
    upsert(graph, User(id="c", mail="3"))
    graph.merge("dev", strategy=strategy)
    assert mails(graph) == wanted


def test_a_field_becomes_unique_only_if_its_values_are(root):
    class Plain(Entity, name="Tag"):
        id: Field[int] = Field(primary_key=True)
        word: Field[str] = ""

    class Tag(Entity):
        id: Field[int] = Field(primary_key=True)
        word: Field[str] = Field(default="", unique=True)

    graph = Omnigraph.init(root, [Plain])
    upsert(graph, Plain(id=1, word="x"), Plain(id=2, word="x"))
    assert "unique" in str(graph.plan_schema([Tag]).changed[0])
    with pytest.raises(GraphValidationError, match="which is unique"):
        graph.apply_schema([Tag])
    upsert(graph, Plain(id=2, word="y"))
    graph.apply_schema([Tag])
    with pytest.raises(GraphValidationError, match="which is unique"):
        upsert(graph, Tag(id=3, word="x"))


def test_other_stores_refuse_what_they_would_not_hold(tmp_path):
    with Ontology(str(tmp_path / "onto.db"), entity_types=[User]) as onto:
        session = onto.session()
        session.ensure(User(id="a"))
        with pytest.raises(ValidationError, match=r"User.mail, User.badge, User.born: only a graph"):
            session.commit()


def test_a_field_that_cannot_be_compared_exactly_cannot_be_unique():
    with pytest.raises(TypeError, match=r"Box.size: unique=True is for str, int"):

        class Box(Entity):
            id: Field[str] = Field(primary_key=True)
            size: Field[float] = Field(default=0.0, unique=True)
