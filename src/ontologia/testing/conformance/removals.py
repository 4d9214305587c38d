"""Removals, for engines that have them: gone from the state, kept in history."""

from __future__ import annotations

import pytest

from ontologia.errors import ValidationError
from ontologia.model import Entity, Field, Relation
from ontologia.runtime.session import Session
from ontologia.testing.conformance.case import ConformanceSuite, StoreUnderTest, commit


class Lamp(Entity):
    """Something that can go."""

    id: Field[int] = Field(primary_key=True)
    colour: Field[str] = Field(default="white")


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

    @pytest.mark.parametrize("wrong", [(Lamp,), ("Lamp", 1), (Entity, 1), (Lamp(id=1), 1)], ids=repr)
    def test_what_cannot_be_removed_is_a_type_error(self, store: StoreUnderTest, wrong: tuple[object, ...]) -> None:
        session = self.removing(store)
        with pytest.raises(TypeError, match=r"remove\("):
            session.remove(*wrong)  # type: ignore[arg-type]
