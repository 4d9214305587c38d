"""What a commit does and does not do: the delta rule, the last word, limits, drift of schemas, all or nothing."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from typing import Any

import pytest

from ontologia.errors import BatchSizeExceededError, SchemaOutdatedError, ValidationError
from ontologia.model import Entity, Field
from ontologia.runtime.session import Session
from ontologia.testing.conformance.case import ConformanceSuite, StoreUnderTest, commit
from ontologia.testing.conformance.shop import Customer, Follows, history


class Box(Entity):
    """A key and something in it."""

    id: Field[str] = Field(primary_key=True)
    size: Field[float | None] = Field(default=None)
    content: Field[Any] = Field(default=None)


def changed_box() -> type[Entity]:
    """The same type with another field."""

    class Box(Entity):
        id: Field[str] = Field(primary_key=True)
        size: Field[float | None] = Field(default=None)
        content: Field[Any] = Field(default=None)
        colour: Field[str] = Field(default="red")

    return Box


class WriteConformance(ConformanceSuite):
    """Writing."""

    def test_commits_are_numbered_from_one(self, store: StoreUnderTest) -> None:
        session = store.session(Box)
        assert [commit(session, Box(id="a")), commit(session, Box(id="b"))] == [1, 2]

    def test_an_empty_commit_writes_nothing(self, store: StoreUnderTest) -> None:
        session = store.session(Box)
        assert (session.commit(), session.list_commits()) == (None, [])

    def test_an_engine_without_removals_refuses_them_and_keeps_what_is_pending(self, store: StoreUnderTest) -> None:
        session = store.session(Box)
        if session.engine.capabilities.removals:
            return  # what it does instead is `RemovalConformance`
        session.ensure(Box(id="a"))
        with pytest.raises(ValidationError, match="entity Box cannot be removed here"):
            session.remove(Box, "a")
        assert (session.commit(), session.query().entities(Box).count()) == (1, 1)

    def test_the_same_state_again_writes_nothing(self, store: StoreUnderTest) -> None:
        session = store.session()
        commit(session, history()[0])
        assert (commit(session, history()[0]), len(session.list_commits())) == (None, 1)

    def test_the_same_state_again_in_a_new_session_writes_nothing(self, store: StoreUnderTest) -> None:
        commit(store.session(), history()[0])
        assert commit(store.session(), history()[0]) is None

    def test_only_what_differs_is_written(self, store: StoreUnderTest) -> None:
        session = store.session(Box)
        commit(session, Box(id="a", size=1), Box(id="b", size=1))
        commit(session, Box(id="a", size=1), Box(id="b", size=2))
        assert [box.meta().commit_id for box in session.query().entities(Box).collect()] == [1, 2]

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ({"size": nan}, {"size": nan}),
            ({"size": 0.0}, {"size": -0.0}),
            ({"size": None}, {}),
            ({"content": {"a": 1, "b": 2}}, {"content": {"b": 2, "a": 1}}),
        ],
        ids=repr,
    )
    def test_equal_by_value_is_unchanged(
        self, store: StoreUnderTest, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        session = store.session(Box)
        commit(session, Box(id="a", **before))
        assert commit(session, Box(id="a", **after)) is None

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ({"size": 0.0}, {"size": None}),
            ({"size": 0.0}, {"size": nan}),
            ({"size": 1.0}, {"size": 1.0000000000000002}),
            ({"content": []}, {"content": {}}),
            ({"content": 1}, {"content": "1"}),
            ({"content": 1}, {"content": True}),
            ({"content": ["a", "b"]}, {"content": ["b", "a"]}),
            ({"content": {"a": None}}, {"content": {}}),
            ({"content": ""}, {"content": None}),
        ],
        ids=repr,
    )
    def test_different_by_value_is_a_new_version(
        self, store: StoreUnderTest, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        session = store.session(Box)
        commit(session, Box(id="a", **before))
        assert commit(session, Box(id="a", **after)) == 2

    def test_going_back_to_an_older_state_is_a_new_version(self, store: StoreUnderTest) -> None:
        session = store.session(Box)
        for size in (1, 2, 1):
            commit(session, Box(id="a", size=size))
        assert session.query().entities(Box).with_history().count() == 3

    def test_the_last_word_on_an_identity_wins(self, store: StoreUnderTest) -> None:
        session = store.session(Box)
        commit(session, (Box(id="a", size=size) for size in (1, 2, 3)))
        found = session.query().entities(Box).with_history().collect()
        assert [box.size for box in found] == [3]

    def test_a_last_word_that_restores_the_stored_state_writes_nothing(self, store: StoreUnderTest) -> None:
        session = store.session(Box)
        commit(session, Box(id="a", size=1))
        assert commit(session, Box(id="a", size=2), Box(id="a", size=1)) is None

    def test_entities_and_relations_share_one_commit(self, store: StoreUnderTest) -> None:
        session = store.session()
        commit(session, Customer(id="a", name="A"), Follows(left_key="a", right_key="a"))
        kinds = [change["kind"] for change in session.list_commit_changes(1)]
        assert kinds == ["entity", "relation"]

    def test_what_is_ensured_is_not_seen_before_the_commit(self, store: StoreUnderTest) -> None:
        session = store.session(Box)
        session.ensure(Box(id="a"))
        assert session.query().entities(Box).count() == 0

    def test_leaving_a_session_commits(self, store: StoreUnderTest) -> None:
        with store.session(Box) as session:
            session.ensure(Box(id="a"))
        assert store.session(Box).query().entities(Box).count() == 1

    def test_leaving_a_session_with_an_exception_discards(self, store: StoreUnderTest) -> None:
        def fail(session: Session) -> None:
            with session:
                session.ensure(Box(id="a"))
                raise KeyError

        with pytest.raises(KeyError):
            fail(store.session(Box))
        assert store.session(Box).list_commits() == []

    # --- limits ---

    def test_a_batch_over_the_limit_writes_nothing(self, store: StoreUnderTest) -> None:
        session = store.session(Box, config=replace(store.case.config, max_batch_size=2))
        with pytest.raises(BatchSizeExceededError):
            commit(session, [Box(id=key) for key in "abc"])
        assert (session.list_commits(), session.query().entities(Box).count()) == ([], 0)

    def test_the_limit_counts_what_differs(self, store: StoreUnderTest) -> None:
        session = store.session(Box, config=replace(store.case.config, max_batch_size=2))
        commit(session, Box(id="a"), Box(id="b"))
        assert commit(session, [Box(id=key) for key in "abcd"]) == 2

    # --- drift ---

    def test_a_changed_class_is_refused_before_the_first_write(self, store: StoreUnderTest) -> None:
        commit(store.session(Box), Box(id="a"))
        changed = changed_box()
        session = store.session(changed)
        with pytest.raises(SchemaOutdatedError):
            commit(session, changed(id="b"))
        assert len(session.list_commits()) == 1

    def test_drift_names_what_was_added(self, store: StoreUnderTest) -> None:
        commit(store.session(Box), Box(id="a"))
        changed = changed_box()
        with pytest.raises(SchemaOutdatedError) as caught:
            commit(store.session(changed), changed(id="b"))
        assert [(diff.type_name, diff.added) for diff in caught.value.diffs] == [("Box", ("colour",))]

    def test_a_commit_is_checked_for_the_types_it_touches(self, store: StoreUnderTest) -> None:
        commit(store.session(Box), Box(id="a"))
        changed = changed_box()
        session = store.session(changed, Customer)
        assert commit(session, Customer(id="c", name="C")) == 2
        with pytest.raises(SchemaOutdatedError):
            commit(session, Customer(id="c", name="D"), changed(id="b"))
        assert len(session.list_commits()) == 2

    def test_a_query_with_a_changed_class_is_refused(self, store: StoreUnderTest) -> None:
        commit(store.session(Box), Box(id="a"))
        changed = changed_box()
        with pytest.raises(SchemaOutdatedError):
            store.session(changed).query().entities(changed).collect()

    def test_the_order_of_fields_and_an_index_are_no_drift(self, store: StoreUnderTest) -> None:
        commit(store.session(Box), Box(id="a", size=2, content="x"))

        class Reordered(Entity, name="Box"):
            content: Field[Any] = Field(default=None)
            size: Field[float | None] = Field(default=None, index=True)
            id: Field[str] = Field(primary_key=True)

        session = store.session(Reordered)
        commit(session, Reordered(id="b", size=3))
        found = session.query().entities(Reordered).where(Reordered.size >= 2).collect()
        assert [(box.id, box.size, box.content) for box in found] == [("a", 2, "x"), ("b", 3, None)]
