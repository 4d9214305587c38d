"""Reading across the versions of a schema: every way a type can change, read in every window, as the model says."""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from ontologia.engines.object_rows import identity_of
from ontologia.errors import HistoryCutWarning, MissingUpgraderError
from ontologia.model import Entity, Field, Relation, left
from ontologia.query import aggregates as of
from ontologia.query.builder import QueryRoot
from ontologia.runtime.session import Session
from ontologia.testing.conformance.answers import make_plain, plain_values
from ontologia.testing.conformance.case import EngineCase, StoreUnderTest
from ontologia.testing.conformance.forgetting import forget
from ontologia.testing.conformance.properties import check_answer, profile, write_history
from ontologia.testing.reference import ReferenceStore
from ontologia.testing.strategies import RandomModel, commits, queries
from ontologia.testing.strategies.migrations import Steps, migrations


@dataclass(frozen=True)
class AcrossRoot:
    """The root of queries that read across versions."""

    root: QueryRoot
    steps: Steps

    def entities(self, cls: type[Any]) -> Any:
        return self.root.entities(cls).across_versions(self.steps)

    def relations(self, cls: type[Any]) -> Any:
        return self.root.relations(cls).across_versions(self.steps)


@dataclass(frozen=True)
class Across:
    """A store or a model that is asked across versions."""

    asked: Any
    steps: Steps

    def query(self) -> Any:
        return AcrossRoot(self.asked.query(), self.steps)


def write_migrated_history(
    data: st.DataObject, store: StoreUnderTest
) -> tuple[RandomModel, Session, ReferenceStore, Steps]:
    """A random history with random migrations, in a store and in the reference model."""
    model, session, reference = write_history(data, store)
    steps: Steps = {}
    used: set[str] = set()
    for number in range(data.draw(st.integers(1, 3), label="migrations")):
        versions = {ref: layout.version for ref, layout in reference.layouts.items()}
        used |= {item.cls.__declaration__.ref.name for item in model.types}
        model, more = data.draw(migrations(model, versions, used), label=f"model {number + 2}")
        steps |= more
        session = store.session(*model.classes)
        found: Any = session.migrate(dry_run=False, force=True, upgraders=steps, allow_discard=True)
        assert found.commit_id == reference.migrate([item.cls.__declaration__ for item in model.types], steps)
        for objects in data.draw(st.lists(commits(model), max_size=2), label="commits"):
            session.ensure(objects)
            assert session.commit() == reference.commit(objects)
        if session.engine.capabilities.removals and data.draw(st.booleans(), label="a removal"):
            remove_one(data.draw(st.sampled_from(model.types)).cls, session, reference)
        if session.engine.capabilities.forgetting and reference.head and data.draw(st.booleans(), label="forgetting"):
            forget(data.draw(st.integers(max(reference.base, 1), reference.head), label="base"), session, reference)
    return model, session, reference, steps


def remove_one(cls: type[Any], session: Session, reference: ReferenceStore) -> None:
    """Remove the first row of a type, if there is one."""
    root = session.query()
    found: Any = (root.entities(cls) if issubclass(cls, Entity) else root.relations(cls)).first()
    if found is not None:
        session.remove(found)
        assert session.commit() == reference.commit((), [(cls.__declaration__.ref, identity_of(found))])


class Carrier(Entity):
    """How a type began."""

    id: Field[str] = Field(primary_key=True)
    tzone: Field[str]
    fleet: Field[int]
    code: Field[str]


class Moved(Entity, name="Carrier"):
    """A field was renamed, one widened, one added, one given up."""

    id: Field[str] = Field(primary_key=True)
    zone: Field[str] = Field(renamed_from="tzone")
    fleet: Field[int | None]
    tier: Field[str] = Field(default="basic")


class Airline(Entity, renamed_from="Carrier"):
    """The type was renamed, and a field has another type."""

    id: Field[str] = Field(primary_key=True)
    zone: Field[str]
    fleet: Field[str]
    tier: Field[str] = Field(default="other")


class Partner(Relation[Carrier, Carrier]):
    """A relation whose ends change."""

    share: Field[int] = Field(default=0)


class MovedPartner(Relation[Moved, Moved], name="Partner"):
    share: Field[int] = Field(default=0)


class AirlinePartner(Relation[Airline, Airline], name="Partner"):
    share: Field[int] = Field(default=0)


class Token(Entity):
    """A scalar that is structured in the next version, and a text in the one after it."""

    id: Field[str] = Field(primary_key=True)
    value: Field[bytes]


class WiderToken(Entity, name="Token"):
    id: Field[str] = Field(primary_key=True)
    value: Field[bytes | list[int]]


class TextToken(Entity, name="Token"):
    id: Field[str] = Field(primary_key=True)
    value: Field[str]


def count_planes(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "fleet": f"{row['fleet']} planes"}


STEPS: Steps = {("Carrier", 2): count_planes}


def make_migrated(store: StoreUnderTest) -> Session:
    """Commits 1 and 2 in the first version, 3 a migration, 4 in the second, 5 a migration with an upgrader."""
    session = store.session(Carrier, Partner)
    session.ensure([Carrier(id="a", tzone="utc", fleet=1, code="A"), Carrier(id="b", tzone="cet", fleet=2, code="B")])
    session.ensure(Partner(left_key="a", right_key="b"))
    session.commit()
    session.ensure(Carrier(id="a", tzone="utc", fleet=3, code="A"))
    session.commit()
    session = store.session(Moved, MovedPartner)
    session.migrate(dry_run=False, force=True, allow_discard=True)
    session.ensure(Moved(id="b", zone="cet", fleet=None, tier="gold"))
    session.commit()
    return session


def make_renamed(store: StoreUnderTest) -> Session:
    make_migrated(store)
    session = store.session(Airline, AirlinePartner)
    session.migrate(dry_run=False, force=True, upgraders=STEPS)
    return session


class AcrossConformance:
    """Schema versions."""

    @profile(6)
    @given(data=st.data())
    def test_any_question_about_a_migrated_history_is_answered_as_the_reference_model_does(
        self, engine: EngineCase, data: st.DataObject
    ) -> None:
        with engine.create_store() as store, warnings.catch_warnings():
            warnings.simplefilter("ignore", HistoryCutWarning)
            model, session, reference, steps = write_migrated_history(data, store)
            for _ in range(8):
                query = data.draw(queries(model, reference.head))
                check_answer(query, session, reference, reference)
                note("across versions")
                check_answer(query, Across(session, steps), Across(reference, steps), reference)

    def test_a_state_before_a_migration_has_the_fields_of_today(self, store: StoreUnderTest) -> None:
        found = make_migrated(store).query().entities(Moved).across_versions().as_of(2).collect()
        assert plain_values(found) == plain_values(
            [Moved(id="a", zone="utc", fleet=3, tier="basic"), Moved(id="b", zone="cet", fleet=2, tier="basic")]
        )
        assert found.diagnostics == []

    def test_history_goes_back_behind_a_new_name_and_an_upgrader(self, store: StoreUnderTest) -> None:
        query = make_renamed(store).query().entities(Airline).across_versions(STEPS)
        found = [(row.meta().commit_id, row.id, row.fleet, row.tier) for row in query.with_history().collect()]
        assert found == [
            (1, "a", "1 planes", "basic"),
            (1, "b", "2 planes", "basic"),
            (2, "a", "3 planes", "basic"),
            (3, "a", "3 planes", "basic"),
            (3, "b", "2 planes", "basic"),
            (4, "b", "None planes", "gold"),
            (5, "a", "3 planes", "basic"),
            (5, "b", "None planes", "gold"),
        ]
        assert [row.id for row in query.history_since(3).collect()] == ["b", "a", "b"]

    def test_what_was_removed_before_a_migration_is_gone_after_it_and_there_before(self, store: StoreUnderTest) -> None:
        session = store.session(Carrier, Partner)
        if not session.engine.capabilities.removals:
            pytest.skip("this engine keeps every row")
        session.ensure(
            [Carrier(id="a", tzone="utc", fleet=1, code="A"), Carrier(id="b", tzone="cet", fleet=2, code="B")]
        )
        session.commit()
        session.remove(Carrier, "b")
        session.commit()
        store.session(Moved).migrate(dry_run=False, force=True, allow_discard=True)
        later = store.session(Airline)
        later.migrate(dry_run=False, force=True, upgraders=STEPS)
        query = later.query().entities(Airline).across_versions(STEPS)
        assert [[row.id for row in query.as_of(commit).collect()] for commit in (1, 2, 3, 4)] == [
            ["a", "b"],
            *[["a"]] * 3,
        ]
        history = query.with_history().to_arrow().to_pylist()
        assert [(row["commit_id"], row["id"], row["fleet"], row["removed"]) for row in history] == [
            (1, "a", "1 planes", False),
            (1, "b", "2 planes", False),
            (2, "b", "2 planes", True),
            (3, "a", "1 planes", False),
            (4, "a", "1 planes", False),
        ]

    def test_a_class_that_names_a_dropped_type_does_not_have_its_history(self, store: StoreUnderTest) -> None:
        session = store.session(Carrier, Partner)
        session.ensure(Carrier(id="a", tzone="utc", fleet=1, code="A"))
        session.commit()
        preview: Any = session.drop_types(["Carrier"])
        session.drop_types(["Carrier"], dry_run=False, token=preview.token)
        later = store.session(Airline)
        later.ensure(Airline(id="a", zone="utc", fleet="new"))
        later.commit()
        query = later.query().entities(Airline).across_versions({})
        assert [row.fleet for row in query.with_history().collect()] == ["new"]
        assert (query.as_of(1).count(), query.as_of(3).count()) == (0, 1)

    def test_an_upgrader_sees_earlier_rows_as_those_of_its_own_version(self, store: StoreUnderTest) -> None:
        session = store.session(Token)
        session.ensure(Token(id="t", value=b"\xff"))
        session.commit()
        store.session(WiderToken).migrate(dry_run=False, force=True)
        steps: Steps = {("Token", 2): lambda row: {**row, "value": f"was {row['value']}"}}
        later = store.session(TextToken)
        later.migrate(dry_run=False, force=True, upgraders=steps)
        query = later.query().entities(TextToken).across_versions(steps)
        assert [row.value for row in query.with_history().collect()] == ["was ff"] * 3

    def test_filters_numbers_and_pages_see_the_fields_of_today(self, store: StoreUnderTest) -> None:
        query = make_renamed(store).query().entities(Airline).across_versions(STEPS)
        assert query.as_of(2).where(Airline.fleet == "3 planes").count() == 1
        assert query.with_history().group_by(Airline.tier).agg(n=of.count()) == [
            {"tier": "basic", "n": 6},
            {"tier": "gold", "n": 2},
        ]
        page = query.with_history().order_by(Airline.fleet, descending=True).limit(1).offset(1).to_arrow()
        assert page.column("fleet").to_pylist() == ["None planes"]

    def test_ends_and_hops_are_read_across_versions_too(self, store: StoreUnderTest) -> None:
        root = make_renamed(store).query()
        relations = root.relations(AirlinePartner).across_versions(STEPS).as_of(1)
        ends = [(row.left, row.right) for row in relations.collect()]
        assert plain_values([end for pair in ends for end in pair if end]) == plain_values(
            [
                Airline(id="a", zone="utc", fleet="1 planes", tier="basic"),
                Airline(id="b", zone="cet", fleet="2 planes", tier="basic"),
            ]
        )
        assert relations.where(left(AirlinePartner).fleet == "1 planes").count() == 1
        paths = root.entities(Airline).across_versions(STEPS).as_of(1).via(AirlinePartner).collect()
        assert plain_values([path.end for path in paths]) == plain_values(
            [Airline(id="b", zone="cet", fleet="2 planes", tier="basic")]
        )

    def test_a_missing_upgrader_is_named(self, store: StoreUnderTest) -> None:
        query = make_renamed(store).query().entities(Airline).across_versions({})
        with pytest.raises(MissingUpgraderError, match=r'@upgrader\("Carrier", from_version=2\)') as caught:
            query.as_of(1).collect()
        assert caught.value.missing == {"Carrier": [2]}
        assert query.as_of(5).count() == 2  # nothing is missing for what needs no upgrader

    def test_rows_as_stored_come_in_a_table_for_each_version(self, store: StoreUnderTest) -> None:
        query = make_renamed(store).query().entities(Airline).with_history()
        found = [(part.schema.ref.name, part.schema_version_id, part.table) for part in query.as_stored()]
        assert [(name, version, table.column_names[2:-1], table.num_rows) for name, version, table in found] == [
            ("Carrier", 1, ["tzone", "fleet", "code"], 3),
            ("Carrier", 2, ["zone", "fleet", "tier"], 3),
            ("Airline", 1, ["zone", "fleet", "tier"], 2),
        ]
        assert found[0][2].drop_columns(["commit_id", "removed"]).to_pylist()[0] == {
            "id": "a",
            "tzone": "utc",
            "fleet": 1,
            "code": "A",
        }
        one = query.where(Airline.id == "a").as_stored()
        assert [part.table.num_rows for part in one] == [2, 1, 1]

    def test_without_it_every_type_that_is_cut_is_told_of(self, store: StoreUnderTest) -> None:
        root = make_migrated(store).query()
        with pytest.warns(HistoryCutWarning, match="the history of entity Carrier is not complete"):
            found = root.entities(Moved).with_history().collect()
        assert found.diagnostics == [{"reason": "history_before_activation", "activation_commit_id": 3}]
        with pytest.warns(HistoryCutWarning, match="the state of entity Carrier at commit 2"):
            ends = root.relations(MovedPartner).as_of(2).collect()
        assert {"reason": "commit_before_activation", "type": "entity Carrier", "activation_commit_id": 3} in (
            ends.diagnostics
        )
        with pytest.warns(HistoryCutWarning):
            assert root.relations(MovedPartner).with_history().where(left(MovedPartner).tier == "basic").count() == 1

    def test_nothing_is_said_where_nothing_is_left_out(self, store: StoreUnderTest) -> None:
        root = make_migrated(store).query()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert root.entities(Moved).history_since(2).collect().diagnostics == []
            assert root.entities(Moved).as_of(3).collect().diagnostics == []
            assert root.entities(Moved).across_versions().with_history().collect().diagnostics == []

    def test_threads_read_across_versions_side_by_side(self, store: StoreUnderTest) -> None:
        session = make_renamed(store)
        expected = make_plain(session.query().entities(Airline).across_versions(STEPS).with_history().collect())
        found: list[Any] = []

        def ask() -> None:
            for _ in range(5):
                query = session.query().entities(Airline).across_versions(STEPS)
                found.append(make_plain(query.with_history().collect()) == expected and query.as_of(2).count() == 2)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [True] * 20
