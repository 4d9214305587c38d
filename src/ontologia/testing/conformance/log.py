"""The commit log: what was written, when, by whom, with which notes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from ontologia.errors import ValidationError
from ontologia.runtime.session import Session
from ontologia.testing.conformance.case import ConformanceSuite, StoreUnderTest, commit
from ontologia.testing.conformance.questions import fill_reference
from ontologia.testing.conformance.shop import Customer, Follows, Subscription, history


class LogConformance(ConformanceSuite):
    """Inspection of commits."""

    @pytest.fixture
    def shop_log(self, store: StoreUnderTest) -> Session:
        return store.fill()

    def test_commits_come_newest_first(self, shop_log: Session) -> None:
        assert [entry["id"] for entry in shop_log.list_commits()] == [4, 3, 2, 1]

    def test_the_log_can_be_limited(self, shop_log: Session) -> None:
        assert [entry["id"] for entry in shop_log.list_commits(limit=2)] == [4, 3]

    def test_the_log_since_a_commit_leaves_that_out(self, shop_log: Session) -> None:
        assert [entry["id"] for entry in shop_log.list_commits(since_commit_id=2)] == [4, 3]

    def test_a_commit_says_when_and_by_whom(self, shop_log: Session) -> None:
        entry = shop_log.get_commit(1)
        assert entry is not None
        assert datetime.fromisoformat(entry["created_at"]).tzinfo is not None
        assert entry["runtime_id"] == shop_log.engine.runtime_id

    def test_a_time_means_the_last_commit_made_by_then(self, shop_log: Session) -> None:
        made = {entry["id"]: datetime.fromisoformat(entry["created_at"]) for entry in shop_log.list_commits()}
        for commit_id, moment in made.items():
            newest = max(other for other, when in made.items() if when <= moment)  # two may be of one moment
            assert shop_log.commit_at(moment) == newest >= commit_id
        elsewhere = made[4].astimezone(timezone(timedelta(hours=5)))
        assert shop_log.commit_at(elsewhere) == 4
        assert shop_log.commit_at(made[4].replace(tzinfo=None) + timedelta(days=1)) == 4
        assert shop_log.commit_at(made[1] - timedelta(seconds=1)) == 0

    def test_one_commit_is_what_the_list_says_of_it(self, shop_log: Session) -> None:
        assert shop_log.get_commit(3) == shop_log.list_commits()[1]

    def test_a_commit_that_never_was_is_none(self, shop_log: Session) -> None:
        assert shop_log.get_commit(99) is None

    def test_a_commit_that_never_was_changed_nothing(self, shop_log: Session) -> None:
        assert shop_log.list_commit_changes(99) == []

    @pytest.mark.parametrize("commit_id", [1, 2, 3, 4])
    def test_changes_are_those_of_the_reference_model(self, shop_log: Session, commit_id: int) -> None:
        assert shop_log.list_commit_changes(commit_id) == fill_reference().list_commit_changes(commit_id)

    def test_a_change_of_an_entity_names_its_key_and_operation(self, store: StoreUnderTest) -> None:
        session = store.session()
        commit(session, Customer(id="a", name="A"))
        commit(session, Customer(id="a", name="B"), Customer(id="b", name="B"))
        assert session.list_commit_changes(2) == [
            {"kind": "entity", "type_name": "Customer", "key": "a", "operation": "update_version"},
            {"kind": "entity", "type_name": "Customer", "key": "b", "operation": "insert"},
        ]

    def test_a_change_of_a_relation_names_its_ends_and_instance(self, store: StoreUnderTest) -> None:
        session = store.session()
        subscription = next(item for item in history()[0] if isinstance(item, Subscription))
        commit(session, subscription, Follows(left_key="x", right_key="y"))
        assert [
            (change["type_name"], change["left_key"], change["right_key"], change["instance_key"])
            for change in session.list_commit_changes(1)
        ] == [("Follows", "x", "y", ""), ("Subscription", "c1", "1", "s1")]

    def test_notes_on_a_commit_are_kept(self, store: StoreUnderTest) -> None:
        session = store.session()
        session.ensure(Customer(id="a", name="A"))
        session.add_commit_meta("reason", "früh 💡")
        session.commit(meta={"by": "import"})
        entry = session.get_commit(1)
        assert entry is not None
        assert entry["metadata"] == {"reason": "früh 💡", "by": "import"}

    def test_notes_are_for_one_commit_only(self, store: StoreUnderTest) -> None:
        session = store.session()
        session.add_commit_meta("reason", "first")
        commit(session, Customer(id="a", name="A"))
        commit(session, Customer(id="a", name="B"))
        entry = session.get_commit(2)
        assert entry is not None
        assert entry["metadata"] == {}

    def test_notes_that_are_not_text_are_refused(self, store: StoreUnderTest) -> None:
        session = store.session()
        with pytest.raises(ValidationError):
            session.add_commit_meta("n", 1)  # type: ignore[arg-type]
