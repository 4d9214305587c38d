"""Dropping types: preview and token, cascades, purges, and what is left (RFC 0009 §9)."""

from __future__ import annotations

from typing import Any

import pytest

from ontologia.errors import DropRefusedError, HistoryCutWarning, ValidationError
from ontologia.runtime.drop import DropPreview
from ontologia.runtime.session import Session
from ontologia.testing.conformance.case import ConformanceSuite, EngineCase, StoreUnderTest, commit
from ontologia.testing.conformance.shop import Customer, Follows, Order, Placed, Product, Subscription


def drop(session: Session, *entities: str, **how: Any) -> int:
    found = session.drop_types(entities, **how)
    assert isinstance(found, DropPreview)
    commit_id = session.drop_types(entities, dry_run=False, token=found.token, **how)
    assert isinstance(commit_id, int)
    return commit_id


class DropConformance(ConformanceSuite):
    """Types that go away."""

    def test_a_preview_drops_nothing(self, store: StoreUnderTest) -> None:
        session = store.fill()
        session.drop_types(["Product"], cascade_relations=True)
        assert session.query().entities(Product).count() == 3

    def test_a_preview_says_what_would_go(self, store: StoreUnderTest) -> None:
        found = store.fill().drop_types(["Product"], cascade_relations=True)
        assert isinstance(found, DropPreview)
        assert found.rows == {"entity Product": 3, "relation Subscription": 4}

    def test_a_drop_without_its_token_is_refused(self, store: StoreUnderTest) -> None:
        with pytest.raises(DropRefusedError):
            store.fill().drop_types(relations=["Follows"], dry_run=False)

    def test_a_token_is_stale_after_another_commit(self, store: StoreUnderTest) -> None:
        session = store.fill()
        found = session.drop_types(relations=["Follows"])
        assert isinstance(found, DropPreview)
        commit(session, Customer(id="new", name="N"))
        with pytest.raises(DropRefusedError):
            session.drop_types(relations=["Follows"], dry_run=False, token=found.token)

    def test_a_token_is_good_for_one_store(self, engine: EngineCase, store: StoreUnderTest) -> None:
        session = store.fill()
        found = session.drop_types(relations=["Follows"])
        assert isinstance(found, DropPreview)
        with engine.create_store() as other, pytest.raises(DropRefusedError):
            other.fill().drop_types(relations=["Follows"], dry_run=False, token=found.token)

    def test_an_entity_with_relations_is_not_dropped_alone(self, store: StoreUnderTest) -> None:
        with pytest.raises(DropRefusedError, match="Subscription"):
            store.fill().drop_types(["Product"])

    def test_a_type_that_is_not_stored_cannot_be_dropped(self, store: StoreUnderTest) -> None:
        with pytest.raises(ValidationError):
            store.session().drop_types(["Product"])

    def test_a_drop_is_a_commit(self, store: StoreUnderTest) -> None:
        session = store.fill()
        commit_id = drop(session, relations=["Follows"])
        entry = session.get_commit(commit_id)
        assert entry is not None
        assert (commit_id, entry["metadata"]["kind"]) == (5, "schema_drop")

    @pytest.mark.parametrize("purge", [False, True], ids=["kept", "purged"])
    def test_a_dropped_type_reads_as_empty_in_every_window(self, store: StoreUnderTest, purge: bool) -> None:
        session = store.fill()
        drop(session, "Product", cascade_relations=True, purge_history=purge)
        query = session.query().entities(Product)
        windows = (query, query.as_of(4), query.with_history(), query.history_since(0))
        assert [window.collect() for window in windows] == [[], [], [], []]
        assert all({"reason": "type_dropped"} in window.collect().diagnostics for window in windows)
        with pytest.warns(HistoryCutWarning, match="entity Product was dropped"):
            query.as_of(4).count()

    def test_a_cascade_takes_the_relations_along(self, store: StoreUnderTest) -> None:
        session = store.fill()
        drop(session, "Product", cascade_relations=True)
        assert session.query().relations(Subscription).count() == 0

    def test_other_types_stay(self, store: StoreUnderTest) -> None:
        session = store.fill()
        drop(session, "Product", cascade_relations=True)
        assert (session.query().entities(Customer).count(), session.query().relations(Placed).count()) == (6, 2)

    def test_relations_and_entities_can_go_together_without_a_cascade(self, store: StoreUnderTest) -> None:
        session = store.fill()
        drop(session, "Order", relations=["Placed"])
        assert session.query().entities(Order).count() == 0

    def test_a_dropped_type_takes_no_new_rows(self, store: StoreUnderTest) -> None:
        session = store.fill()
        drop(session, relations=["Follows"])
        with pytest.raises(ValidationError):
            commit(session, Follows(left_key="c1", right_key="c3"))
        assert len(session.list_commits()) == 5

    def test_the_log_keeps_what_was_written_of_a_dropped_type(self, store: StoreUnderTest) -> None:
        session = store.fill()
        before = session.list_commit_changes(1)
        drop(session, "Product", cascade_relations=True)
        assert session.list_commit_changes(1) == before

    def test_a_purge_takes_the_changes_along(self, store: StoreUnderTest) -> None:
        session = store.fill()
        if session.repository.capabilities.object_storage:
            pytest.skip("manifests are the record of what was, and are never rewritten")
        drop(session, "Product", cascade_relations=True, purge_history=True)
        assert {change["type_name"] for change in session.list_commit_changes(1)} == {"Customer"}

    def test_a_drop_survives_reopening(self, store: StoreUnderTest) -> None:
        drop(store.fill(), relations=["Follows"])
        store.close()
        assert store.session().query().relations(Follows).count() == 0

    def test_a_traversal_over_a_dropped_relation_is_empty(self, store: StoreUnderTest) -> None:
        session = store.fill()
        drop(session, relations=["Follows"])
        assert session.query().entities(Customer).via(Follows).collect() == []
