"""The four windows of time, order and paging, hydration, and stores with nothing in them (RFC 0004 §4.3)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ontologia.errors import MetadataUnavailableError
from ontologia.model import Entity, Field, Meta
from ontologia.query.aggregates import count
from ontologia.runtime.session import Session
from ontologia.testing.conformance.answers import make_plain
from ontologia.testing.conformance.case import ConformanceSuite, EngineCase, StoreUnderTest, commit
from ontologia.testing.conformance.questions import KINDS, QUESTIONS
from ontologia.testing.conformance.shop import Customer, Follows, Product, Subscription


class Item(Entity):
    """Small enough to count on one hand."""

    key: Field[str] = Field(primary_key=True)
    value: Field[int] = Field(default=0)


def items(*pairs: tuple[str, int]) -> list[Item]:
    return [Item(key=key, value=value) for key, value in pairs]


class ReadConformance(ConformanceSuite):
    """Reading."""

    @pytest.fixture(scope="class")
    @classmethod
    def shop(cls, engine: EngineCase) -> Iterator[Session]:
        """The shop's whole history, written once and only read."""
        with engine.create_store() as store:
            yield store.fill()

    @pytest.mark.parametrize("kind", KINDS)
    def test_questions_are_answered_as_the_reference_model_does(self, shop: Session, kind: str) -> None:
        asked = [question for question in QUESTIONS if question.kind == kind]
        assert [question.name for question in asked if not question.is_answered(shop.query())] == []

    # --- windows, with answers written by hand ---

    @pytest.fixture
    def versions(self, store: StoreUnderTest) -> Session:
        """Three commits: a=1 b=1; then a=2; then c=3 and b=2."""
        session = store.session(Item)
        commit(session, items(("a", 1), ("b", 1)))
        commit(session, items(("a", 2)))
        commit(session, items(("c", 3), ("b", 2)))
        return session

    def test_latest_gives_each_identity_once_at_its_last_commit(self, versions: Session) -> None:
        found = [(item.key, item.value, item.meta().commit_id) for item in versions.query().entities(Item).collect()]
        assert found == [("a", 2, 2), ("b", 2, 3), ("c", 3, 3)]

    def test_as_of_gives_the_state_right_after_a_commit(self, versions: Session) -> None:
        found = versions.query().entities(Item).as_of(2).collect()
        assert [(item.key, item.value) for item in found] == [("a", 2), ("b", 1)]

    def test_as_of_a_commit_that_is_yet_to_come_is_the_latest_state(self, versions: Session) -> None:
        query = versions.query().entities(Item)
        assert make_plain(query.as_of(99).collect()) == make_plain(query.collect())

    def test_history_gives_every_version_oldest_first_then_by_identity(self, versions: Session) -> None:
        found = versions.query().entities(Item).with_history().collect()
        assert [(item.meta().commit_id, item.key) for item in found] == [
            (1, "a"),
            (1, "b"),
            (2, "a"),
            (3, "b"),
            (3, "c"),
        ]

    def test_since_leaves_out_the_commit_it_names(self, versions: Session) -> None:
        found = versions.query().entities(Item).history_since(2).collect()
        assert [(item.meta().commit_id, item.key) for item in found] == [(3, "b"), (3, "c")]

    def test_a_filter_sees_the_state_and_not_the_versions_it_replaced(self, versions: Session) -> None:
        assert versions.query().entities(Item).where(Item.value == 1).collect() == []

    def test_a_filter_on_the_key_sees_only_the_version_of_the_window(self, versions: Session) -> None:
        found = versions.query().entities(Item).where(Item.key == "a").as_of(1).collect()
        assert [item.value for item in found] == [1]

    def test_the_first_result_is_none_where_there_is_none(self, versions: Session) -> None:
        assert versions.query().entities(Item).where(Item.value > 99).first() is None

    def test_the_first_result_follows_the_order(self, versions: Session) -> None:
        first = versions.query().entities(Item).order_by(Item.value, descending=True).first()
        assert first is not None
        assert first.key == "c"

    def test_ties_of_an_order_follow_identity_also_descending(self, versions: Session) -> None:
        found = versions.query().entities(Item).order_by(Item.value, descending=True).collect()
        assert [item.key for item in found] == ["c", "a", "b"]

    def test_ties_among_versions_follow_commit_and_identity(self, versions: Session) -> None:
        found = versions.query().entities(Item).with_history().order_by(Item.value).collect()
        assert [(item.value, item.meta().commit_id, item.key) for item in found] == [
            (1, 1, "a"),
            (1, 1, "b"),
            (2, 2, "a"),
            (2, 3, "b"),
            (3, 3, "c"),
        ]

    def test_pages_put_together_are_the_whole(self, versions: Session) -> None:
        query = versions.query().entities(Item).with_history()
        pages = [item for start in range(0, 6, 2) for item in query.limit(2).offset(start).collect()]
        assert make_plain(pages) == make_plain(query.collect())

    # --- metadata ---

    def test_an_entity_says_where_it_was_read(self, store: StoreUnderTest) -> None:
        found = store.fill().query().entities(Product).where(Product.sku == 10).first()
        assert found is not None
        assert found.meta() == Meta(3, "Product", key="10")

    def test_a_relation_says_where_it_was_read(self, store: StoreUnderTest) -> None:
        found = store.fill().query().relations(Subscription).where(Subscription.seat == "s2").first()
        assert found is not None
        assert found.meta() == Meta(1, "Subscription", left_key="c1", right_key="1", instance_key="s2")

    def test_an_object_that_was_not_read_has_no_metadata(self, store: StoreUnderTest) -> None:
        item = Item(key="a")
        commit(store.session(Item), item)
        with pytest.raises(MetadataUnavailableError):
            item.meta()

    # --- nothing there ---

    def test_an_empty_store_has_no_rows(self, store: StoreUnderTest) -> None:
        assert store.session().query().entities(Customer).collect() == []

    def test_an_empty_store_counts_zero(self, store: StoreUnderTest) -> None:
        assert store.session().query().relations(Follows).count() == 0

    def test_an_empty_store_sums_to_none(self, store: StoreUnderTest) -> None:
        assert store.session().query().entities(Product).sum(Product.price) is None

    def test_an_empty_store_has_no_groups(self, store: StoreUnderTest) -> None:
        assert store.session().query().entities(Product).group_by(Product.group).agg(n=count()) == []

    def test_an_empty_store_has_no_paths(self, store: StoreUnderTest) -> None:
        assert store.session().query().entities(Customer).as_of(1).via(Subscription).collect() == []

    def test_an_empty_store_has_an_empty_log(self, store: StoreUnderTest) -> None:
        assert store.session().list_commits() == []

    def test_a_type_that_was_never_written_reads_as_empty_beside_others(self, store: StoreUnderTest) -> None:
        assert store.fill().query().entities(Item).history_since(0).collect() == []

    def test_a_traversal_over_a_relation_that_was_never_written_is_empty(self, store: StoreUnderTest) -> None:
        session = store.session()
        commit(session, Customer(id="c1", name="Alice"))
        assert session.query().entities(Customer).via(Follows).collect() == []
