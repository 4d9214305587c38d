"""Nobody's change is lost in silence: objects that were read, and rows that changed since."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from ontologia.errors import HeadMismatchError, MetadataUnavailableError, StaleObjectError, ValidationError
from ontologia.model import Entity, Field, Relation
from ontologia.runtime.session import Session
from ontologia.testing.conformance.case import ConformanceSuite, StoreUnderTest, commit


class Account(Entity):
    """Something that two people edit."""

    id: Field[str] = Field(primary_key=True)
    owner: Field[str] = Field(default="ann")
    limit: Field[int] = Field(default=10)
    tags: Field[list[str]] = Field(default_factory=list)


class Shares(Relation[Account, Account]):
    """A relation with something in it."""

    percent: Field[int]


def read(session: Session, key: str = "1") -> Account:
    """An account as it is now."""
    found = session.query().entities(Account).where(Account.id == key).first()
    assert found is not None
    return found


class StalenessConformance(ConformanceSuite):
    """Two sessions on one row."""

    def two(self, store: StoreUnderTest, **settings: Any) -> tuple[Session, Session]:
        first = store.session(Account, Shares)
        commit(first, Account(id="1"))
        second = store.session(Account, Shares)
        second.on_stale = settings.get("on_stale", "error")
        return first, second

    def stale(self, store: StoreUnderTest, **settings: Any) -> tuple[Session, Account]:
        """A session, and an object of it whose row somebody else has changed since it was read."""
        first, second = self.two(store, **settings)
        mine, theirs = read(second), read(first)
        theirs.owner = "bob"
        commit(first, theirs)
        return second, mine

    # --- what is refused ---

    def test_a_change_to_a_row_that_changed_since_it_was_read_is_refused(self, store: StoreUnderTest) -> None:
        session, mine = self.stale(store)
        mine.limit = 99
        with pytest.raises(StaleObjectError):
            commit(session, mine)
        assert (read(session).owner, read(session).limit) == ("bob", 10)

    def test_the_error_names_the_row_both_values_and_the_commit(self, store: StoreUnderTest) -> None:
        session, mine = self.stale(store)
        mine.limit = 99
        with pytest.raises(StaleObjectError) as caught:
            commit(session, mine)
        (row,) = caught.value.rows
        assert row.commit is not None
        assert (row.type_name, row.key, row.read_at, row.commit["id"]) == ("Account", "1", 1, 2)
        assert (row.yours, row.stored) == ({"owner": "ann", "limit": 99}, {"owner": "bob", "limit": 10})

    def test_an_object_that_was_not_changed_does_not_undo_what_others_did(self, store: StoreUnderTest) -> None:
        session, mine = self.stale(store)
        with pytest.raises(StaleObjectError):
            commit(session, mine)

    def test_two_that_count_up_by_one_are_not_taken_for_one(self, store: StoreUnderTest) -> None:
        first, second = self.two(store)
        mine, theirs = read(second), read(first)
        mine.limit += 1
        theirs.limit += 1
        commit(first, theirs)
        with pytest.raises(StaleObjectError):
            commit(second, mine)

    def test_a_list_that_was_changed_in_place_is_refused(self, store: StoreUnderTest) -> None:
        session, mine = self.stale(store)
        mine.tags.append("new")
        with pytest.raises(StaleObjectError):
            commit(session, mine)

    def test_one_stale_object_among_others_keeps_all_of_them_out(self, store: StoreUnderTest) -> None:
        session, mine = self.stale(store)
        with pytest.raises(StaleObjectError):
            commit(session, Account(id="2"), mine)
        assert session.query().entities(Account).count() == 1

    def test_a_relation_that_changed_since_is_refused(self, store: StoreUnderTest) -> None:
        first, second = self.two(store)
        commit(first, Shares(left_key="1", right_key="1", percent=1))
        (mine,) = second.query().relations(Shares).collect()
        commit(first, Shares(left_key="1", right_key="1", percent=2))
        mine.percent = 3
        with pytest.raises(StaleObjectError) as caught:
            commit(second, mine)
        assert caught.value.rows[0].key == ("1", "1")

    def test_the_end_of_a_path_that_changed_since_is_refused(self, store: StoreUnderTest) -> None:
        first, second = self.two(store)
        commit(first, Shares(left_key="1", right_key="1", percent=1))
        (path,) = second.query().entities(Account).via(Shares).collect()
        commit(first, Account(id="1", owner="bob"))
        path.end.limit = 3
        with pytest.raises(StaleObjectError):
            commit(second, path.end)

    @pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda obj: pickle.loads(pickle.dumps(obj))])
    def test_a_copy_was_read_when_its_original_was(self, store: StoreUnderTest, duplicate: Any) -> None:
        session, mine = self.stale(store)
        with pytest.raises(StaleObjectError):
            commit(session, duplicate(mine))

    def test_a_copy_with_other_values_was_read_when_its_original_was(self, store: StoreUnderTest) -> None:
        session, mine = self.stale(store)
        with pytest.raises(StaleObjectError):
            commit(session, mine.model_copy(update={"limit": 99}))

    def test_a_past_state_that_is_changed_is_refused(self, store: StoreUnderTest) -> None:
        session, _ = self.stale(store)
        (past,) = session.query().entities(Account).as_of(1).collect()
        past.limit = 99
        with pytest.raises(StaleObjectError):
            commit(session, past)

    def test_what_was_removed_since_does_not_come_back(self, store: StoreUnderTest) -> None:
        first, second = self.two(store)
        if not first.engine.capabilities.removals:
            return
        mine = read(second)
        first.remove(Account, "1")
        first.commit()
        mine.limit = 99
        with pytest.raises(StaleObjectError) as caught:
            commit(second, mine)
        (row,) = caught.value.rows
        assert row.commit is not None
        assert (row.stored, row.commit["id"]) == (None, 2)

    def test_removing_an_object_does_not_take_a_change_along(self, store: StoreUnderTest) -> None:
        session, mine = self.stale(store)
        if not session.engine.capabilities.removals:
            return
        session.remove(mine)
        with pytest.raises(StaleObjectError):
            session.commit()
        assert read(session).owner == "bob"

    # --- what goes through ---

    def test_read_again_the_change_goes_through(self, store: StoreUnderTest) -> None:
        session, _ = self.stale(store)
        mine = read(session)
        mine.limit = 99
        commit(session, mine)
        assert (read(session).owner, read(session).limit) == ("bob", 99)

    def test_an_object_can_be_changed_again_after_a_commit(self, store: StoreUnderTest) -> None:
        first, second = self.two(store)
        mine = read(first)
        for limit, session in enumerate((first, second, first)):
            mine.limit = limit
            commit(session, mine)
        assert mine.meta().commit_id == 4

    def test_an_object_as_it_was_read_that_says_what_is_stored_is_at_its_version(self, store: StoreUnderTest) -> None:
        session, mine = self.stale(store)
        commit(session, Account(id="1"))
        assert commit(session, mine) is None
        mine.limit = 99
        assert commit(session, mine) == 4

    def test_a_new_object_declares_state_whatever_is_there(self, store: StoreUnderTest) -> None:
        session, mine = self.stale(store)
        assert commit(session, Account(**mine.model_dump())) == 3

    def test_a_session_that_overwrites_replaces_what_is_there(self, store: StoreUnderTest) -> None:
        session, mine = self.stale(store, on_stale="overwrite")
        mine.limit = 99
        commit(session, mine)
        assert (read(session).owner, read(session).limit) == ("ann", 99)

    def test_a_past_state_is_restored_by_ensuring_it(self, store: StoreUnderTest) -> None:
        session, _ = self.stale(store)
        commit(session, session.query().entities(Account).as_of(1).collect())
        assert read(session).owner == "ann"

    def test_under_another_key_an_object_is_a_new_one(self, store: StoreUnderTest) -> None:
        session, mine = self.stale(store)
        mine.id = "2"
        assert commit(session, mine) == 3
        with pytest.raises(MetadataUnavailableError):
            mine.meta()

    def test_an_object_of_another_store_declares_state(self, store: StoreUnderTest, tmp_path: Path) -> None:
        session, _ = self.stale(store)
        other = Session(str(tmp_path / "other.db"), entity_types=[Account])
        commit(other, Account(id="1", limit=7))
        commit(session, read(other))
        other.close()
        assert read(session).limit == 7

    def test_an_object_that_was_removed_can_be_ensured_again(self, store: StoreUnderTest) -> None:
        session, _ = self.two(store)
        if not session.engine.capabilities.removals:
            return
        mine = read(session)
        session.remove(mine)
        session.commit()
        assert commit(session, mine) == 3

    # --- asked for ---

    def test_a_past_state_is_refused_where_it_must_be_unchanged(self, store: StoreUnderTest) -> None:
        session, _ = self.stale(store, on_stale="overwrite")
        (past,) = session.query().entities(Account).as_of(1).collect()
        session.ensure(past, if_unchanged=True)
        with pytest.raises(StaleObjectError):
            session.commit()

    def test_only_what_was_read_can_be_unchanged(self, store: StoreUnderTest) -> None:
        session, _ = self.two(store)
        with pytest.raises(MetadataUnavailableError, match="was not read"):
            session.ensure(Account(id="1"), if_unchanged=True)
        assert session.commit() is None

    def test_a_commit_for_another_head_is_refused(self, store: StoreUnderTest) -> None:
        session, _ = self.stale(store)
        session.ensure(Account(id="2"))
        with pytest.raises(HeadMismatchError, match="the head is commit 2, and if_head says 1"):
            session.commit(if_head=1)
        assert session.commit(if_head=2) == 3

    def test_a_commit_of_nothing_for_another_head_is_refused(self, store: StoreUnderTest) -> None:
        session, _ = self.stale(store)
        with pytest.raises(HeadMismatchError):
            session.commit(if_head=1)

    def test_a_session_knows_what_to_do_with_stale_objects(self, store: StoreUnderTest) -> None:
        with pytest.raises(ValidationError, match="on_stale is 'error' or 'overwrite'"):
            store.ontology(Account).session(on_stale="ignore")  # type: ignore[arg-type]
