"""Aggregates whose answers are written by hand: scalar, grouped, and with conditions on groups."""

from __future__ import annotations

from datetime import date
from math import isnan, nan

import pytest

from ontologia.errors import SumOverflowError
from ontologia.model import Entity, Field
from ontologia.query.aggregates import avg, count, max, min, sum
from ontologia.runtime.session import Session
from ontologia.testing.conformance.case import ConformanceSuite, StoreUnderTest, commit


class Sale(Entity):
    """Something to add up."""

    id: Field[int] = Field(primary_key=True)
    shop: Field[str | None] = Field(default=None)
    amount: Field[float] = Field(default=0.0)
    pieces: Field[int | None] = Field(default=None)
    day: Field[date | None] = Field(default=None)
    seen: Field[bytes | None] = Field(default=None)
    tags: Field[list[str]] = Field(default_factory=list)


class AggregationConformance(ConformanceSuite):
    """Numbers made of many rows."""

    @pytest.fixture
    def sales(self, store: StoreUnderTest) -> Session:
        session = store.session(Sale)
        commit(
            session,
            Sale(id=1, shop="north", amount=1.5, pieces=1, day=date(2024, 1, 1), seen=b"\x01"),
            Sale(id=2, shop="north", amount=2.5, pieces=None, tags=["a", "b"]),
            Sale(id=3, shop="south", amount=4.0, pieces=4, day=date(2024, 1, 3), tags=["c"]),
            Sale(id=10, shop=None, amount=0.0, pieces=5),
        )
        commit(session, Sale(id=3, shop="south", amount=5.0, pieces=4, day=date(2024, 1, 4), tags=["c"]))
        return session

    def test_count_is_about_the_state_and_not_the_versions(self, sales: Session) -> None:
        assert sales.query().entities(Sale).count() == 4

    def test_count_over_history_is_about_the_versions(self, sales: Session) -> None:
        assert sales.query().entities(Sale).with_history().count() == 5

    def test_count_where_leaves_out_what_is_unknown(self, sales: Session) -> None:
        assert sales.query().entities(Sale).count_where(Sale.pieces < 5) == 2

    def test_a_sum_of_ints_is_an_int(self, sales: Session) -> None:
        assert repr(sales.query().entities(Sale).sum(Sale.pieces)) == "10"

    def test_a_sum_that_leaves_64_bits_on_its_way_is_exact(self, store: StoreUnderTest) -> None:
        session = store.session(Sale)
        most = 2**63 - 1
        pieces = {1: most, 2: 1, 3: -5, 4: most, 5: -most, 6: -most + 1, 7: None}
        commit(session, *(Sale(id=key, shop="north", pieces=number) for key, number in pieces.items()))
        query, groups = session.query().entities(Sale), session.query().entities(Sale).group_by(Sale.shop)
        assert query.sum(Sale.pieces) == -3
        assert query.where(Sale.id < 4).sum(Sale.pieces) == most - 4
        assert groups.agg(total=sum(Sale.pieces)) == [{"shop": "north", "total": -3}]
        assert groups.to_arrow(total=sum(Sale.pieces)).to_pylist() == [{"shop": "north", "total": -3}]
        assert groups.having(sum(Sale.pieces) < 0).agg(rows=count()) == [{"shop": "north", "rows": 7}]

    def test_a_sum_of_more_than_64_bits_is_an_error_of_its_own(self, store: StoreUnderTest) -> None:
        session = store.session(Sale)
        commit(session, Sale(id=1, pieces=2**63 - 1), Sale(id=2, pieces=1))
        with pytest.raises(SumOverflowError, match="more than 64 bits"):
            session.query().entities(Sale).sum(Sale.pieces)
        assert session.query().entities(Sale).avg(Sale.pieces) == 2.0**62

    def test_a_sum_of_floats_is_a_float(self, sales: Session) -> None:
        assert sales.query().entities(Sale).sum(Sale.amount) == 9.0

    def test_a_sum_as_of_a_commit(self, sales: Session) -> None:
        assert sales.query().entities(Sale).as_of(1).sum(Sale.amount) == 8.0

    def test_an_average_is_over_known_values(self, sales: Session) -> None:
        assert sales.query().entities(Sale).avg(Sale.pieces) == pytest.approx(10 / 3)

    def test_least_and_greatest_keep_the_type_of_the_field(self, sales: Session) -> None:
        query = sales.query().entities(Sale)
        assert (query.min(Sale.day), query.max(Sale.day)) == (date(2024, 1, 1), date(2024, 1, 4))

    def test_the_least_bytes_are_bytes(self, sales: Session) -> None:
        assert sales.query().entities(Sale).min(Sale.seen) == b"\x01"

    def test_the_greatest_key_that_is_a_number_is_not_the_greatest_text(self, sales: Session) -> None:
        assert sales.query().entities(Sale).max(Sale.id) == 10

    def test_mean_length_of_lists(self, sales: Session) -> None:
        assert sales.query().entities(Sale).avg_len(Sale.tags) == 0.75

    def test_mean_length_of_texts_leaves_out_nulls(self, sales: Session) -> None:
        assert sales.query().entities(Sale).avg_len(Sale.shop) == 5.0

    def test_a_sum_with_nan_is_nan(self, store: StoreUnderTest) -> None:
        session = store.session(Sale)
        commit(session, Sale(id=1, amount=1.0), Sale(id=2, amount=nan))
        assert isnan(session.query().entities(Sale).sum(Sale.amount))

    def test_groups_come_in_order_with_null_first(self, sales: Session) -> None:
        found = sales.query().entities(Sale).group_by(Sale.shop).agg(n=count(), total=sum(Sale.amount))
        assert found == [
            {"shop": None, "n": 1, "total": 0.0},
            {"shop": "north", "n": 2, "total": 4.0},
            {"shop": "south", "n": 1, "total": 5.0},
        ]

    def test_groups_keep_the_type_of_their_key(self, sales: Session) -> None:
        found = sales.query().entities(Sale).group_by(Sale.seen).agg(n=count())
        assert found == [{"seen": None, "n": 3}, {"seen": b"\x01", "n": 1}]

    def test_groups_by_a_list_give_lists(self, sales: Session) -> None:
        found = sales.query().entities(Sale).group_by(Sale.tags).agg(n=count())
        assert found == [{"tags": ["a", "b"], "n": 1}, {"tags": ["c"], "n": 1}, {"tags": [], "n": 2}]

    def test_having_keeps_the_groups_that_pass(self, sales: Session) -> None:
        found = sales.query().entities(Sale).group_by(Sale.shop).having(count() > 1).agg(n=count())
        assert found == [{"shop": "north", "n": 2}]

    def test_having_compares_dates_as_dates(self, sales: Session) -> None:
        grouped = sales.query().entities(Sale).group_by(Sale.shop)
        assert grouped.having(max(Sale.day) >= date(2024, 1, 4)).agg(n=count()) == [{"shop": "south", "n": 1}]

    def test_a_condition_on_an_unknown_aggregate_drops_the_group(self, sales: Session) -> None:
        found = (
            sales.query().entities(Sale).group_by(Sale.shop).having(min(Sale.pieces) != 5).agg(least=avg(Sale.pieces))
        )
        assert found == [{"shop": "north", "least": 1.0}, {"shop": "south", "least": 4.0}]

    def test_a_filter_comes_before_the_groups(self, sales: Session) -> None:
        found = sales.query().entities(Sale).where(Sale.amount > 2).group_by(Sale.shop).agg(n=count())
        assert found == [{"shop": "north", "n": 1}, {"shop": "south", "n": 1}]
