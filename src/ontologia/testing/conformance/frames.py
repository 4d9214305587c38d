"""Results as tables: the same rows, in the same order, with the types of the model."""

from __future__ import annotations

from math import isnan
from typing import Any

import pytest

from ontologia.model import Entity, Field, encode_json
from ontologia.query.aggregates import count
from ontologia.testing.conformance.answers import make_plain
from ontologia.testing.conformance.case import ConformanceSuite, StoreUnderTest, commit
from ontologia.testing.conformance.filters import Odd
from ontologia.testing.conformance.shop import Customer, Follows, Product, Subscription

QUERIES: dict[str, Any] = {
    "entities": lambda q: q.entities(Customer),
    "entities in order": lambda q: q.entities(Customer).order_by(Customer.balance, descending=True).limit(3),
    "entities as of": lambda q: q.entities(Customer).as_of(1),
    "no entities": lambda q: q.entities(Customer).where(Customer.name == "nobody"),
    "history": lambda q: q.entities(Customer).with_history(),
    "keyed relations": lambda q: q.relations(Subscription),
    "unkeyed relations": lambda q: q.relations(Follows).history_since(1),
    "ends": lambda q: q.entities(Customer).via(Subscription).without_relations(),
}


class Gaps(Entity):
    """Values that may be missing."""

    id: Field[str] = Field(primary_key=True)
    number: Field[int | None] = Field(default=None)
    truth: Field[bool | None] = Field(default=None)


def expected_rows(query: Any) -> list[dict[str, Any]]:
    """The rows of a table, from the objects: identity, values, JSON as text; of versions also
    the commit, and whether they are removals."""
    rows = []
    for obj in query.collect():
        declaration, row = obj.__declaration__, {}
        if not query.plan.window.deduplicated:
            row["commit_id"] = obj.meta().commit_id
        if declaration.ref.kind == "relation":
            row |= {"left_key": obj.left_key, "right_key": obj.right_key, "instance_key": obj.instance_key}
        for column in declaration.schema.columns:
            value = getattr(obj, column.name)
            row[column.name] = encode_json(value) if column.scalar is None and value is not None else value
        if not query.plan.window.deduplicated:
            row["removed"] = obj.meta().removed
        rows.append(row)
    return rows


class FrameConformance(ConformanceSuite):
    """Arrow, pandas and Polars."""

    @pytest.mark.parametrize("name", QUERIES)
    def test_an_arrow_table_has_the_rows_that_collect_gives(self, store: StoreUnderTest, name: str) -> None:
        query = QUERIES[name](store.fill().query())
        assert make_plain(query.to_arrow().to_pylist()) == make_plain(expected_rows(query))

    @pytest.mark.parametrize("name", QUERIES)
    def test_an_arrow_table_has_the_types_of_the_model(self, store: StoreUnderTest, name: str) -> None:
        query = QUERIES[name](store.fill().query())
        plan = query.plan
        schema = plan.schemas[plan.hops[-1].entity if plan.ends_only else plan.source]
        types = {field.name: field.type for field in query.to_arrow().schema}
        assert {c.name: types[c.name] for c in schema.columns} == {c.name: c.arrow_type for c in schema.columns}

    def test_a_polars_frame_has_the_rows_that_collect_gives(self, store: StoreUnderTest) -> None:
        pytest.importorskip("polars")
        query = store.fill().query().entities(Customer)
        assert make_plain(query.to_polars().to_dicts()) == make_plain(expected_rows(query))

    def test_a_pandas_frame_has_the_rows_that_collect_gives(self, store: StoreUnderTest) -> None:
        pandas = pytest.importorskip("pandas")
        query = store.fill().query().entities(Product)
        expected = [{**row, "group": row["group"]} for row in expected_rows(query)]
        found = query.to_pandas().to_dict("records")
        missing = [{name: None if pandas.isna(value) else value for name, value in row.items()} for row in found]
        assert missing == expected

    def test_whole_numbers_and_truths_with_gaps_keep_their_values_in_pandas(self, store: StoreUnderTest) -> None:
        pytest.importorskip("pandas")
        session = store.session(Gaps)
        commit(session, Gaps(id="a", number=2**53 + 1, truth=True), Gaps(id="b"))
        frame = session.query().entities(Gaps).to_pandas()
        assert (int(frame["number"][0]), str(frame["number"].dtype)) == (2**53 + 1, "Int64")
        assert (frame["truth"].tolist()[0], str(frame["truth"].dtype)) == (True, "boolean")
        assert frame["number"].isna().tolist() == frame["truth"].isna().tolist() == [False, True]

    def test_nan_and_null_stay_apart(self, store: StoreUnderTest) -> None:
        table = store.fill().query().relations(Follows).to_arrow()
        weights = table.column("weight").to_pylist()
        assert [weight if weight is None or not isnan(weight) else "NaN" for weight in weights] == [
            0.75,
            None,
            "NaN",
            1e-300,
        ]

    def test_groups_as_a_table_are_the_groups(self, store: StoreUnderTest) -> None:
        grouped = store.fill().query().entities(Customer).group_by(Customer.active)
        assert grouped.to_arrow(n=count()).to_pylist() == grouped.agg(n=count())

    def test_an_empty_store_gives_a_table_without_rows_but_with_columns(self, store: StoreUnderTest) -> None:
        table = store.session().query().entities(Product).to_arrow()
        assert (table.num_rows, table.column_names) == (0, ["sku", "price", "order", "group"])

    def test_a_field_named_like_a_column_of_the_storage_is_in_the_table(self, store: StoreUnderTest) -> None:
        session = store.session(Odd)
        commit(session, Odd(id="a", commit_id=7, Where="W"))
        (row,) = session.query().entities(Odd).to_arrow().to_pylist()
        assert (row["commit_id"], row["where"], row["Where"]) == (7, "", "W")
