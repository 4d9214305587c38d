"""Names and habits of Ontologia 0.3 code, each as a script of that release uses it."""

import functools
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal

import pytest
from typing_extensions import TypedDict

from ontologia import (
    BatchSizeExceededError,
    Entity,
    Event,
    EventLoopLimitError,
    Field,
    HandlerContext,
    LockContentionError,
    MigrationError,
    MigrationTokenError,
    OntologiaConfig,
    Ontology,
    Relation,
    Schedule,
    SchemaOutdatedError,
    Session,
    ValidationError,
    left,
    on_event,
    upgrader,
)
from ontologia.query import avg, count, max, min, sum
from ontologia.runtime.fingerprints import code_fingerprint


class Corner(TypedDict):
    at: tuple[int, int]


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str] = ""
    tier: Field[Literal["basic", "gold"]] = "basic"
    age: Field[int] = 0
    extra: Field[dict[str, object]] = Field(default_factory=dict)
    point: Field[tuple[float, float] | None] = None
    path: Field[list[tuple[int, ...]]] = Field(default_factory=list)
    corner: Field[Corner | None] = None


class Product(Entity):
    id: Field[str] = Field(primary_key=True)


class Bought(Relation[Customer, Product]):
    number: Field[str] = Field(instance_key=True)
    amount: Field[int] = 1


class Likes(Relation[Customer, Product]): ...


class CustomerLater(Entity, name="Customer"):
    id: Field[str] = Field(primary_key=True)
    name: Field[str] = ""
    age: Field[str] = ""
    email: Field[str | None] = None


TYPES = {"entity_types": [Customer, Product], "relation_types": [Bought, Likes]}


@pytest.fixture
def session(path):
    session = Session(path, **TYPES)
    yield session
    session.close()


# --- sessions ---


def test_a_session_gives_itself_as_a_session(session):
    assert session.session() is session


def test_a_session_is_usable_after_its_block_committed(session):
    with session:
        session.ensure(Customer(id="a"))
    with session:
        session.ensure(Customer(id="b"))
    assert [customer.id for customer in session.query().entities(Customer).collect()] == ["a", "b"]


def test_a_session_is_usable_after_its_block_failed(session):
    with suppress(KeyError), session:
        session.ensure(Customer(id="a"))
        raise KeyError
    assert session.query().entities(Customer).count() == 0


def test_validate_passes_when_code_and_store_agree_and_writes_nothing(session):
    session.validate()
    assert session.list_commits() == []


@pytest.fixture
def outdated(session, path):
    """A store with two customers, opened with a class that has changed."""
    with session:
        session.ensure([Customer(id="a", name="Anna", age=3), Customer(id="b", age=4), Product(id="p")])
        session.ensure(Bought(left_key="a", right_key="p", number="1"))
    onto = Ontology(path, entity_types=[CustomerLater, Product])
    yield onto
    onto.close()


def test_validate_says_how_code_and_store_differ(outdated):
    with pytest.raises(SchemaOutdatedError) as caught:
        outdated.validate()
    (diff,) = caught.value.diffs
    removed = ["tier", "extra", "point", "path", "corner"]
    assert (diff.added_fields, diff.removed_fields, diff.changed_fields, diff.stored_version) == (
        ["email"],
        removed,
        {"age": {"stored": "int", "code": "str"}},
        1,
    )


def test_a_commit_is_checked_for_the_types_it_touches(outdated):
    with outdated.session() as session:
        session.ensure(Product(id="q"))
    assert outdated.query().entities(Product).count() == 2


def test_a_batch_that_is_too_large_says_its_count(path):
    session = Session(path, **TYPES, config=OntologiaConfig(max_batch_size=1))
    session.ensure([Customer(id="a"), Customer(id="b")])
    with pytest.raises(BatchSizeExceededError) as caught:
        session.commit()
    assert (caught.value.count, caught.value.limit) == (2, 1)


def test_the_settings_of_buckets_are_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("ONTOLOGIA_S3_REGION", "eu-north-1")
    monkeypatch.setenv("ONTOLOGIA_S3_ENDPOINT_URL", "http://127.0.0.1:9000")
    config = OntologiaConfig()
    assert (config.s3_region, config.s3_endpoint_url) == ("eu-north-1", "http://127.0.0.1:9000")
    assert OntologiaConfig(s3_region="eu-west-1").s3_region == "eu-west-1"


# --- types ---


def test_values_of_every_03_annotation_come_back_as_they_were(session):
    customer = Customer(
        id="a",
        tier="gold",
        extra={"anything": [1, None, {"x": "y"}]},
        point=(1.5, 2.0),
        path=[(1,), (2, 3)],
        corner={"at": (1, 2)},
    )
    with session:
        session.ensure(customer)
    assert session.query().entities(Customer).collect() == [customer]


def test_writing_the_same_tuples_again_changes_nothing(session):
    for expected in (1, None):
        session.ensure(Customer(id="a", point=(1.5, 2.0), path=[(1,)]))
        assert session.commit() == expected


def test_a_literal_takes_its_values_alone():
    with pytest.raises(ValueError, match="'basic' or 'gold'"):
        Customer(id="a", tier="silver")


def test_the_instance_key_of_an_unkeyed_relation_is_none(session):
    with session:
        session.ensure([Likes(left_key="a", right_key="p"), Bought(left_key="a", right_key="p", number="7")])
    likes, bought = (session.query().relations(cls).first() for cls in (Likes, Bought))
    assert (likes.meta().instance_key, bought.meta().instance_key) == (None, "7")


# --- queries ---


def test_the_aggregates_of_the_query_package(outdated, session):
    customers = session.query().entities(Customer)
    found = customers.group_by(Customer.tier).agg(
        n=count(), all=sum(Customer.age), mean=avg(Customer.age), low=min(Customer.age), high=max(Customer.age)
    )
    assert found == [{"tier": "basic", "n": 2, "all": 7, "mean": 3.5, "low": 3, "high": 4}]


def test_groups_by_a_field_of_an_end(outdated, session):
    found = session.query().relations(Bought).group_by(left(Bought).tier).agg(n=count())
    assert found == [{"tier": "basic", "n": 1}]


def test_relations_of_a_path_have_their_ends(outdated, session):
    (path,) = session.query().entities(Customer).via(Bought).collect()
    assert (path.relations[0].left.id, path.relations[0].right.id) == ("a", "p")


# --- migrations ---


def to_later(row):
    return {"id": row["id"], "name": row["name"], "age": str(row["age"])}


def test_rows_are_counted_by_type(outdated):
    preview = outdated.migrate(upgraders={("Customer", 1): to_later})
    result = outdated.migrate(dry_run=False, token=preview.token, upgraders={("Customer", 1): to_later})
    assert (preview.estimated_rows["Customer"], result.rows_migrated["Customer"]) == (2, 2)
    assert (preview.estimated_rows, dict(result.rows_migrated), "Product" in result.rows_migrated) == (
        2,
        {"Customer": 2},
        False,
    )


@pytest.mark.parametrize("force", [False, True])
def test_a_wrong_token_is_refused_force_or_not(outdated, force):
    with pytest.raises(MigrationTokenError):
        outdated.migrate(dry_run=False, token="0" * 32, force=force, upgraders={("Customer", 1): to_later})


def test_two_upgraders_for_one_step_are_refused():
    upgrader("Customer", from_version=1)(to_later)
    with pytest.raises(MigrationError, match="two upgraders for Customer from version 1"):
        upgrader("Customer", from_version=1)(lambda row: row)


def test_an_upgrader_that_is_defined_again_replaces_the_old_one():
    def define():
        @upgrader("Customer", from_version=1)
        def again(row):
            return row

    define()
    define()


def test_the_upgrader_of_a_relation_need_not_return_its_keys(outdated, path):
    class Changed(Relation[Customer, Product], name="Bought"):
        number: Field[str] = Field(instance_key=True)
        amount: Field[str]

    onto = Ontology(path, relation_types=[Changed])
    onto.migrate(dry_run=False, force=True, upgraders={("Bought", 1): lambda row: {"amount": str(row["amount"])}})
    (found,) = onto.repository.query_relations("Bought")
    assert (found["left_key"], found["right_key"], found["instance_key"], found["amount"]) == ("a", "p", "1", "1")


def test_a_preview_says_how_many_values_a_dropped_field_discards(outdated, path):
    class Smaller(Entity, name="Customer"):
        id: Field[str] = Field(primary_key=True)
        tier: Field[Literal["basic", "gold"]] = "basic"
        age: Field[int] = 0
        extra: Field[dict[str, object]] = Field(default_factory=dict)
        path: Field[list[tuple[int, ...]]] = Field(default_factory=list)

    preview = Ontology(path, entity_types=[Smaller]).migrate()
    assert preview.discarded_values == {"Customer": {"name": 2}}


def test_an_upgrader_sees_what_a_dropped_field_had_so_nothing_is_discarded_unseen(outdated):
    assert outdated.migrate(upgraders={("Customer", 1): to_later}).discarded_values == {}


# --- the token and the code of upgraders ---

SUFFIX = "!"


def shout(text):
    return text + SUFFIX


def loud(row):
    return to_later(row) | {"name": shout(row["name"])}


def test_a_token_is_bound_to_the_code_of_its_upgraders(outdated):
    token = outdated.migrate(upgraders={("Customer", 1): to_later}).token
    with pytest.raises(MigrationTokenError):
        outdated.migrate(dry_run=False, token=token, upgraders={("Customer", 1): loud})


def test_code_that_an_upgrader_calls_counts(monkeypatch):
    before = code_fingerprint(loud)
    monkeypatch.setattr(sys.modules[__name__], "SUFFIX", "?")
    assert code_fingerprint(loud) != before


def test_what_an_upgrader_encloses_counts():
    def adding(number):
        return lambda row: row | {"age": number}

    assert code_fingerprint(adding(1)) == code_fingerprint(adding(1)) != code_fingerprint(adding(2))


def test_partial_functions_and_objects_count_by_what_they_hold():
    class Adding:
        def __init__(self, number):
            self.number = number

        def __call__(self, row):
            return row | {"age": self.number}

    assert code_fingerprint(Adding(1)) == code_fingerprint(Adding(1)) != code_fingerprint(Adding(2))
    partials = [functools.partial(int, base=base) for base in (2, 2, 8)]
    assert code_fingerprint(partials[0]) == code_fingerprint(partials[1]) != code_fingerprint(partials[2])


def test_two_processes_agree_on_the_code_of_a_function():
    script = (
        "from ontologia.runtime.fingerprints import code_fingerprint\n"
        "def step(row):\n    return {k: v for k, v in row.items() if k in {'a', 'b', 'c', 'd'}}\n"
        "print(code_fingerprint(step))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


# --- what only scripts of 0.3 do ---


def test_a_preview_without_changes_has_no_token(path):
    with Session(path, entity_types=[Customer]) as session:
        session.ensure(Customer(id="a"))
    assert session.migrate().token == ""
    assert session.migrate(dry_run=False, token="").success


def test_the_entities_of_a_path_begin_with_its_source(path):
    with Session(path, entity_types=[Customer, Product], relation_types=[Likes]) as session:
        session.ensure([Customer(id="a"), Product(id="p"), Likes(left_key="a", right_key="p")])
    (way,) = session.query().entities(Customer).via(Likes).collect()
    assert [entity.id for entity in way.entities] == ["a", "p"]


def test_the_entities_reached_are_a_sequence(path):
    with Session(path, entity_types=[Customer, Product], relation_types=[Likes]) as session:
        session.ensure([Customer(id="a"), Product(id="p"), Likes(left_key="a", right_key="p")])
    reached = session.query().entities(Customer).via(Likes).without_relations()
    assert (len(reached), reached[0].id, [product.id for product in reached], bool(reached)) == (1, "p", ["p"], True)


def test_an_order_is_named_by_text(path):
    with Session(path, entity_types=[Customer]) as session:
        session.ensure([Customer(id="1", name="b"), Customer(id="2", name="a")])
    people = session.query().entities(Customer)
    assert [person.name for person in people.order_by("name").collect()] == ["a", "b"]
    with pytest.raises(ValueError, match="Customer has no field 'nmae'"):
        people.order_by("nmae")


def test_a_migration_that_waits_for_a_lock_in_vain_is_a_migration_error(path):
    with Session(path, entity_types=[Customer]) as session:
        session.ensure(Customer(id="a"))
    session.repository.acquire_lock("somebody", 60_000)
    later = Session(path, entity_types=[CustomerLater], config=OntologiaConfig(lock_timeout_ms=50))
    with pytest.raises(MigrationError, match="somebody") as caught:
        later.migrate(dry_run=False, force=True, upgraders={("Customer", 1): lambda row: row}, allow_discard=True)
    assert isinstance(caught.value, LockContentionError)


def test_the_old_name_of_an_error_is_known_and_deprecated():
    import ontologia.errors

    with pytest.warns(DeprecationWarning, match="SchemaOutdatedError"):
        assert ontologia.errors.SchemaValidationError is SchemaOutdatedError


# --- events ---


class Asked(Event):
    name: Field[str]


class Answered(Event):
    priority: int = 50
    name: Field[str]


def test_a_priority_can_be_assigned_and_said_by_a_class():
    event = Asked(name="x")
    event.priority = 200
    assert (event.priority, Answered(name="x").priority, Answered(name="x", priority=7).priority) == (200, 50, 7)
    with pytest.raises(ValueError, match="a priority is a whole number"):
        event.priority = "high"


def test_a_class_of_events_knows_its_type_under_both_names():
    assert Answered.__event_type__ == Answered.__event_type_name__ == "answered"


def test_a_context_is_annotated_with_its_event():
    @on_event(Asked)
    def answer(ctx: HandlerContext[Asked]) -> None: ...

    assert HandlerContext[Asked]


def run_handlers(path, handlers, **settings):
    config = OntologiaConfig(event_poll_interval_ms=5, event_backoff_base_ms=1, event_max_attempts=1, **settings)
    session = Session(path, entity_types=[Customer], config=config)
    session.commit(event=Asked(name="x"))
    session.run(handlers, schedules=None, max_iterations=5)
    return session


def test_a_handler_commits_with_the_next_event_of_its_chain(path):
    seen = []

    @on_event(Asked)
    def ask(ctx):
        ctx.ensure(Customer(id=ctx.event.name))
        ctx.commit(event=Answered(name="y"))

    @on_event(Answered)
    def answer(ctx):
        seen.append((ctx.event.name, ctx.event.chain_depth))

    session = run_handlers(path, [ask, answer])
    assert (session.query().entities(Customer).count(), seen) == (1, [("y", 1)])


def test_a_chain_of_commits_has_an_end(path):
    problems = []

    @on_event(Asked)
    def ask(ctx):
        try:
            ctx.commit(event=Asked(name="again"))
        except EventLoopLimitError as problem:
            problems.append(problem)

    run_handlers(path, [ask], max_event_chain_depth=2)
    assert len(problems) == 1


def test_the_commit_of_a_handler_says_its_event(path):
    @on_event(Asked)
    def ask(ctx):
        ctx.ensure(Customer(id=ctx.event.name))
        ctx.add_commit_meta("why", "asked")
        ctx.commit()

    (commit,) = run_handlers(path, [ask]).list_commits()
    note = commit["metadata"]
    assert (note["event_type"], note["why"], note["handler_id"].endswith("ask")) == ("asked", "asked", True)


@pytest.mark.parametrize("cron", ["* * * * * *", "10-5 * * * *", "R R * * *", "0 0 1-", "H 3 * * *", "30-10/5 * * * *"])
def test_a_cron_text_that_0_3_did_not_know_is_refused(cron):
    with pytest.raises(ValidationError, match="does not name a time"):
        Schedule(Asked(name="x"), cron)


@pytest.mark.parametrize(
    ("cron", "first"),
    [("0 0 1 * 1", (7, 1)), ("0 0 * * 1", (6, 17)), ("0 0 20 * *", (6, 20)), ("0 0 * * MON-FRI", (6, 17))],
)
def test_a_day_of_the_month_and_one_of_the_week_must_both_hold(cron, first):
    after = datetime(2024, 6, 15, tzinfo=UTC)
    assert Schedule(Asked(name="x"), cron).next_after(after) == datetime(2024, *first, tzinfo=UTC)
