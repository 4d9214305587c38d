"""Names that change while the rows stay, and previews that say what becomes of every field."""

from __future__ import annotations

from typing import Any

import pytest

from ontologia.errors import DiscardError, SchemaOutdatedError, ValidationError
from ontologia.model import Entity, Field, Relation
from ontologia.runtime.migration import MigrationPreview, MigrationResult
from ontologia.runtime.session import Session
from ontologia.testing.conformance.case import ConformanceSuite, StoreUnderTest, commit


class Old:
    """The types as they were."""

    class Carrier(Entity, name="Carrier"):
        """With a field whose name nobody likes."""

        code: Field[str] = Field(primary_key=True)
        tzone: Field[str]
        fleet: Field[int] = Field(default=0)

    class Feeds(Relation[Carrier, Carrier], name="Feeds"):
        """One carrier brings passengers to another."""

        hub: Field[str] = Field(instance_key=True)
        share: Field[int] = Field(default=0)


class New:
    """The same under other names: a type, its key, a field, the ends of a relation, its instance key and a field."""

    class Airline(Entity, name="Airline", renamed_from="Carrier"):
        """As `Carrier`."""

        iata: Field[str] = Field(primary_key=True, renamed_from="code")
        timezone: Field[str | None] = Field(renamed_from="tzone")
        fleet: Field[int] = Field(default=0)

    class Feeds(Relation[Airline, Airline], name="Feeds"):
        """As it was, between airlines."""

        airport: Field[str] = Field(instance_key=True, renamed_from="hub")
        percent: Field[int] = Field(default=0, renamed_from="share")


class Less:
    """With a field given up and one added."""

    class Carrier(Entity, name="Carrier"):
        """Without `fleet`."""

        code: Field[str] = Field(primary_key=True)
        tzone: Field[str]
        alliance: Field[str] = Field(default="none")


class More:
    """With a field added, and nothing else."""

    class Carrier(Entity, name="Carrier"):
        """With `alliance`."""

        code: Field[str] = Field(primary_key=True)
        tzone: Field[str]
        fleet: Field[int] = Field(default=0)
        alliance: Field[str] = Field(default="none")


def migrate(session: Session, **how: Any) -> MigrationResult:
    result = session.migrate(dry_run=False, force=True, **how)
    assert isinstance(result, MigrationResult)
    return result


def preview(session: Session, **how: Any) -> MigrationPreview:
    found = session.migrate(**how)
    assert isinstance(found, MigrationPreview)
    return found


def airlines(session: Session) -> list[tuple[Any, ...]]:
    found = session.query().entities(New.Airline).collect()
    return [(item.iata, item.timezone, item.fleet) for item in found]


class RenameConformance(ConformanceSuite):
    """Renames, and what a preview says of data."""

    @pytest.fixture
    def carriers(self, store: StoreUnderTest) -> StoreUnderTest:
        session = store.session(Old.Carrier, Old.Feeds)
        commit(session, Old.Carrier(code="LH", tzone="Berlin", fleet=300), Old.Carrier(code="SK", tzone="Oslo"))
        commit(session, Old.Feeds(left_key="SK", right_key="LH", hub="FRA", share=40))
        return store

    def new(self, carriers: StoreUnderTest) -> Session:
        return carriers.session(New.Airline, New.Feeds)

    def test_values_are_kept_under_their_new_names(self, carriers: StoreUnderTest) -> None:
        migrate(self.new(carriers))
        session = self.new(carriers)
        assert airlines(session) == [("LH", "Berlin", 300), ("SK", "Oslo", 0)]
        (feeds,) = session.query().relations(New.Feeds).collect()
        assert (feeds.left_key, feeds.right_key, feeds.airport, feeds.percent) == ("SK", "LH", "FRA", 40)
        assert feeds.left is not None
        assert feeds.left.timezone == "Oslo"

    def test_a_preview_names_what_was_renamed_and_asks_for_no_upgrader(self, carriers: StoreUnderTest) -> None:
        found = preview(self.new(carriers), upgraders={})
        renamed = {diff.ref.name: (diff.renamed_from, diff.renamed) for diff in found.diffs}
        assert renamed == {
            "Airline": ("Carrier", (("code", "iata"), ("tzone", "timezone"))),
            "Feeds": (None, (("hub", "airport"), ("share", "percent"))),
        }
        assert (found.missing_upgraders, found.discarded_values) == ([], {})
        assert all(not (diff.added or diff.removed or diff.identity) for diff in found.diffs)

    def test_until_it_is_migrated_a_renamed_type_is_neither_read_nor_written(self, carriers: StoreUnderTest) -> None:
        session = self.new(carriers)
        with pytest.raises(SchemaOutdatedError, match="was Carrier"):
            session.query().entities(New.Airline).collect()
        session.ensure(New.Airline(iata="AF", timezone="Paris"))
        with pytest.raises(SchemaOutdatedError, match="was Carrier"):
            session.commit()

    def test_a_second_migration_finds_nothing_to_do(self, carriers: StoreUnderTest) -> None:
        migrate(self.new(carriers))
        assert not preview(self.new(carriers)).has_changes

    def test_the_old_name_is_gone(self, carriers: StoreUnderTest) -> None:
        migrate(self.new(carriers))
        names = {ref.name for ref in self.new(carriers).engine.catalog().layouts}
        assert names == {"Airline", "Feeds"}

    def test_a_new_store_takes_a_class_with_earlier_names_as_it_is(self, store: StoreUnderTest) -> None:
        session = self.new(store)
        commit(session, New.Airline(iata="AF", timezone="Paris"))
        assert airlines(session) == [("AF", "Paris", 0)]

    def test_a_type_becomes_one_other_and_is_not_declared_beside_it(self, carriers: StoreUnderTest) -> None:
        class Twin(Entity, name="Twin", renamed_from="Carrier"):
            code: Field[str] = Field(primary_key=True)

        for others, said in (
            ((Twin,), "entity Airline and entity Twin cannot both"),
            ((Old.Carrier,), "Carrier is declared still"),
        ):
            session = carriers.session(New.Airline, *others)
            head = session.engine.catalog().head
            with pytest.raises(ValidationError, match=said):
                migrate(session, allow_discard=True)
            assert session.engine.catalog().head == head

    def test_an_upgrader_may_give_the_new_name_itself(self, carriers: StoreUnderTest) -> None:
        def upper(row: dict[str, Any]) -> dict[str, Any]:
            return {**row, "timezone": row["tzone"].upper()}

        migrate(self.new(carriers), upgraders={("Carrier", 1): upper})
        assert airlines(self.new(carriers)) == [("LH", "BERLIN", 300), ("SK", "OSLO", 0)]

    # --- what becomes of data ---

    def test_a_preview_says_what_becomes_of_each_field(self, carriers: StoreUnderTest) -> None:
        found = preview(carriers.session(Less.Carrier))
        effects = {effect.field: (effect.effect, effect.rows) for effect in found.effects["Carrier"]}
        assert effects == {
            "code": ("carried", 2),
            "tzone": ("carried", 2),
            "alliance": ("filled", 2),
            "fleet": ("discarded", 2),
        }
        renamed = {effect.field: effect.before for effect in preview(self.new(carriers)).effects["Airline"]}
        assert renamed == {"iata": "code", "timezone": "tzone", "fleet": None}

    def test_a_field_added_is_a_weakening_and_everything_else_is_not(self, carriers: StoreUnderTest) -> None:
        assert preview(carriers.session(More.Carrier)).changes == {"Carrier": "weakening"}
        assert preview(carriers.session(Less.Carrier)).changes == {"Carrier": "strengthening"}
        assert preview(self.new(carriers)).changes["Airline"] == "strengthening"

    def test_the_commit_of_a_migration_records_which_it_was(self, carriers: StoreUnderTest) -> None:
        result = migrate(carriers.session(More.Carrier))
        commit_id = result.commit_id
        assert commit_id is not None
        found = carriers.session(More.Carrier).repository.get_commit(commit_id)
        assert found is not None
        assert [item["change"] for item in found["metadata"]["migrated_types"]] == ["weakening"]

    def test_values_are_discarded_only_where_that_is_allowed(self, carriers: StoreUnderTest) -> None:
        session = carriers.session(Less.Carrier)
        head = session.engine.catalog().head
        with pytest.raises(DiscardError, match=r"Carrier\.fleet in 2 rows") as refused:
            migrate(session)
        assert refused.value.values == {"Carrier": {"fleet": 2}}
        assert session.engine.catalog().head == head
        migrate(session, allow_discard=True)
        assert [item.alliance for item in session.query().entities(Less.Carrier).collect()] == ["none", "none"]

    def test_a_check_runs_the_upgraders_over_every_row_and_writes_nothing(self, carriers: StoreUnderTest) -> None:
        def only_the_large(row: dict[str, Any]) -> dict[str, Any]:
            if not row["fleet"]:
                raise ValueError("too small")
            return row

        session = carriers.session(More.Carrier)
        head = session.engine.catalog().head
        found = session.check_migration(upgraders={("Carrier", 1): only_the_large})
        assert (found.passed, found.rows["Carrier"], len(found.failures)) == (False, 2, 1)
        assert "'SK' cannot be upgraded: ValueError: too small" in found.failures[0]
        assert session.check_migration(upgraders={}).passed
        assert session.engine.catalog().head == head
