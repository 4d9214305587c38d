"""Removals, for engines that have them: gone from the state, kept in history."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ontologia.engines.transaction import Transaction
from ontologia.errors import ValidationError
from ontologia.model import Entity, Field, Relation, left, right
from ontologia.query.builder import RelationQuery
from ontologia.runtime.session import Session
from ontologia.testing.conformance.case import ConformanceSuite, StoreUnderTest, commit


class Lamp(Entity):
    """Something that can go."""

    id: Field[int] = Field(primary_key=True)
    colour: Field[str] = Field(default="white")


class DimmedLamp(Entity, name="Lamp"):
    """A lamp with one more field."""

    id: Field[int] = Field(primary_key=True)
    colour: Field[str] = Field(default="white")
    watts: Field[int | None] = Field(default=None)


class Lights(Relation[Lamp, Lamp]):
    """One of several between the same two."""

    socket: Field[str] = Field(instance_key=True)


def lamps(session: Session) -> list[int]:
    return [lamp.id for lamp in session.query().entities(Lamp).order_by(Lamp.id).collect()]


class RemovalConformance(ConformanceSuite):
    """Removing; for engines whose capabilities say `removals`."""

    def removing(self, store: StoreUnderTest) -> Session:
        session = store.session(Lamp, Lights)
        if not session.engine.capabilities.removals:
            pytest.skip("this engine keeps every row")
        commit(session, Lamp(id=1), Lamp(id=2), Lamp(id=3))
        return session

    def test_what_is_removed_is_gone_from_the_state_and_stays_in_history(self, store: StoreUnderTest) -> None:
        session = self.removing(store)
        session.remove(Lamp, 1, 3)
        assert (session.commit(), lamps(session)) == (2, [2])
        assert session.query().entities(Lamp).as_of(1).count() == 3
        assert session.list_commit_changes(2) == [
            {"kind": "entity", "type_name": "Lamp", "key": key, "operation": "remove"} for key in ("1", "3")
        ]

    def test_an_object_that_was_read_can_be_removed(self, store: StoreUnderTest) -> None:
        session = self.removing(store)
        found = session.query().entities(Lamp).where(Lamp.id == 2).first()
        assert found is not None
        session.remove(found)
        session.commit()
        assert lamps(session) == [1, 3]

    def test_removing_what_is_not_there_writes_nothing(self, store: StoreUnderTest) -> None:
        session = self.removing(store)
        session.remove(Lamp, 9)
        session.remove(Lights, (1, 2, "a"))
        assert session.commit() is None

    def test_the_last_word_on_an_identity_wins(self, store: StoreUnderTest) -> None:
        session = self.removing(store)
        session.remove(Lamp, 1)
        session.ensure([Lamp(id=1, colour="red"), Lamp(id=2, colour="red")])
        session.remove(Lamp, 2)
        session.commit()
        assert [(lamp.id, lamp.colour) for lamp in session.query().entities(Lamp).collect()] == [
            (1, "red"),
            (3, "white"),
        ]

    @pytest.mark.parametrize("staged", [False, True])
    def test_a_commit_that_removes_and_writes_one_identity_is_refused(
        self, store: StoreUnderTest, staged: bool
    ) -> None:
        session = self.removing(store)
        engine, schema = session.engine, Lamp.__declaration__.schema
        if staged and engine.location.uri == ":memory:":
            pytest.skip("nobody stages rows for a store in memory")

        def work(transaction: Transaction) -> int:
            keys = pa.table({"entity_key": ["1", "2"]})
            stored = transaction.current(schema, keys)
            layout = transaction.layout_for(schema)
            transaction.remove(layout, stored)
            rows = stored.select(["entity_key", *(column.physical for column in schema.columns)]).slice(1)
            if not staged:
                transaction.append(layout, rows)
                return transaction.publish({})
            with transaction.staging(layout).writer() as writer:
                writer.add(rows)
                transaction.adopt(layout, writer.finish())
            return transaction.publish({})

        with pytest.raises(ValidationError, match=r"written or removed twice in one commit"):
            engine.transact(work)
        assert (engine.catalog().head, lamps(session)) == (1, [1, 2, 3])

    def test_a_relation_is_removed_by_its_ends_and_instance_key(self, store: StoreUnderTest) -> None:
        session = self.removing(store)
        commit(session, *(Lights(left_key="1", right_key="2", socket=socket) for socket in ("a", "b")))
        session.remove(Lights, ("1", "2", "a"))
        session.commit()
        assert [it.socket for it in session.query().relations(Lights).collect()] == ["b"]
        with pytest.raises(ValidationError, match="left_key, right_key, instance_key"):
            session.remove(Lights, ("1", "2"))

    def test_what_was_removed_can_be_written_again(self, store: StoreUnderTest) -> None:
        session = self.removing(store)
        session.remove(Lamp, 1)
        session.commit()
        commit(session, Lamp(id=1, colour="blue"))
        assert lamps(session) == [1, 2, 3]

    def test_a_discarded_removal_removes_nothing(self, store: StoreUnderTest) -> None:
        session = self.removing(store)
        session.remove(Lamp, 1)
        session.discard()
        assert (session.commit(), lamps(session)) == (None, [1, 2, 3])

    def test_history_shows_a_removal_with_the_values_that_were_there(self, store: StoreUnderTest) -> None:
        session = self.removing(store)
        commit(session, Lamp(id=1, colour="red"))
        session.remove(Lamp, 1)
        session.commit()
        commit(session, Lamp(id=1, colour="blue"))
        one = session.query().entities(Lamp).where(Lamp.id == 1)
        versions = [(lamp.meta().commit_id, lamp.colour, lamp.meta().removed) for lamp in one.with_history().collect()]
        assert versions == [(1, "white", False), (2, "red", False), (3, "red", True), (4, "blue", False)]
        assert one.history_since(2).to_arrow().column("removed").to_pylist() == [True, False]
        assert [one.as_of(at).count() for at in range(5)] == [0, 1, 1, 0, 1]
        operations = [session.list_commit_changes(at)[0]["operation"] for at in (2, 3, 4)]
        assert operations == ["update_version", "remove", "insert"]

    def test_removing_again_writes_nothing(self, store: StoreUnderTest) -> None:
        session = self.removing(store)
        session.remove(Lamp, 1)
        session.commit()
        session.remove(Lamp, 1)
        assert (session.commit(), session.query().entities(Lamp).with_history().count()) == (None, 4)

    def test_relations_whose_end_was_removed_are_found(self, store: StoreUnderTest) -> None:
        session = self.removing(store)
        commit(session, *(Lights(left_key=left, right_key=right, socket="a") for left, right in ("12", "23", "31")))
        session.remove(Lamp, 1)
        session.commit()
        lights = session.query().relations(Lights)

        def ends(query: RelationQuery[Lights]) -> list[tuple[str, str]]:
            return [(it.left_key, it.right_key) for it in query.collect()]

        assert ends(lights.where(left(Lights).is_missing())) == [("1", "2")]
        assert ends(lights.where(right(Lights).is_missing())) == [("3", "1")]
        assert ends(lights.where(~left(Lights).is_missing() & ~right(Lights).is_missing())) == [("2", "3")]
        assert ends(lights.where(left(Lights).is_missing()).as_of(2)) == []
        assert next(it.left for it in lights.collect()) is None
        assert [path.end.id for path in session.query().entities(Lamp).via(Lights).collect()] == [3]  # type: ignore[attr-defined]

    def test_a_removal_that_cascades_takes_the_relations_along(self, store: StoreUnderTest) -> None:
        session = self.removing(store)
        commit(
            session, *(Lights(left_key=left, right_key=right, socket="a") for left, right in ("12", "23", "31", "11"))
        )
        session.ensure(Lights(left_key="1", right_key="3", socket="b"))  # said before the removal, and so no more
        session.remove(Lamp, 1, cascade=True)
        session.ensure(Lights(left_key="1", right_key="2", socket="a"))  # said after it
        assert session.commit() == 3
        assert [(it.left_key, it.right_key) for it in session.query().relations(Lights).collect()] == [
            ("1", "2"),
            ("2", "3"),
        ]
        removed = [change for change in session.list_commit_changes(3) if change["operation"] == "remove"]
        assert [change.get("key") or change["left_key"] for change in removed] == ["1", "1", "3"]

    def test_what_dangles_is_swept_up_by_a_later_removal_that_cascades(self, store: StoreUnderTest) -> None:
        session = self.removing(store)
        commit(session, Lights(left_key="1", right_key="2", socket="a"))
        session.remove(Lamp, 1)
        session.commit()
        session.remove(Lamp, 1, cascade=True)
        assert (session.commit(), session.query().relations(Lights).count()) == (4, 0)
        with pytest.raises(TypeError, match="cascade is for entities"):
            session.remove(Lights, ("1", "2", "a"), cascade=True)

    def test_a_migration_does_not_bring_back_what_was_removed(self, store: StoreUnderTest) -> None:
        session = self.removing(store)
        session.remove(Lamp, 1)
        session.commit()
        later = store.session(DimmedLamp, Lights)
        later.migrate(dry_run=False, force=True)
        assert [lamp.id for lamp in later.query().entities(DimmedLamp).collect()] == [2, 3]
        commit(later, DimmedLamp(id=1), DimmedLamp(id=2, watts=3))
        operations = {change["key"]: change["operation"] for change in later.list_commit_changes(4)}
        assert operations == {"1": "insert", "2": "update_version"}

    @pytest.mark.parametrize("wrong", [(Lamp,), ("Lamp", 1), (Entity, 1), (Lamp(id=1), 1)], ids=repr)
    def test_what_cannot_be_removed_is_a_type_error(self, store: StoreUnderTest, wrong: tuple[object, ...]) -> None:
        session = self.removing(store)
        with pytest.raises(TypeError, match=r"remove\("):
            session.remove(*wrong)  # type: ignore[arg-type]

    def test_what_is_no_key_is_refused_before_anything_is_removed(self, store: StoreUnderTest) -> None:
        session = self.removing(store)
        for wrong in ([1, 2], (1,), None, 1.0, True, "one"):
            with pytest.raises(ValidationError, match="is not a key of Lamp"):
                session.remove(Lamp, 1, wrong)
        assert (session.commit(), lamps(session)) == (None, [1, 2, 3])

    def test_a_cascade_takes_relations_of_before_along_also_where_their_end_is_ensured_again(
        self, store: StoreUnderTest
    ) -> None:
        session = self.removing(store)
        commit(session, Lights(left_key="1", right_key="2", socket="stored"))
        session.ensure(Lights(left_key="2", right_key="1", socket="pending"))
        session.remove(Lamp, 1, cascade=True)
        session.ensure([Lamp(id=1), Lights(left_key="1", right_key="3", socket="later")])
        session.commit()
        assert (lamps(session), [lit.socket for lit in session.query().relations(Lights).collect()]) == (
            [1, 2, 3],
            ["later"],
        )
