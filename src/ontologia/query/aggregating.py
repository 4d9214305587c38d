"""Queries that count, sum and group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ontologia.model import (
    FieldExpr,
    Predicate,
    encode_json,
    parse_texts,
)
from ontologia.query.aggregates import Aggregate, AggregateCondition, plain, single
from ontologia.query.aggregates import avg as avg_of
from ontologia.query.aggregates import max as max_of
from ontologia.query.aggregates import min as min_of
from ontologia.query.aggregates import sum as sum_of
from ontologia.query.plan import Plan, group_names
from ontologia.query.query import Query, on_spark
from ontologia.query.results import Result

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


class AggregatingQuery(Query[T]):
    """The endings that give numbers."""

    __slots__ = ()

    def count(self) -> int:
        """How many rows there are."""
        return int(self._scalar(Aggregate("count")))

    def count_where(self, predicate: Predicate) -> int:
        """How many of the rows pass a filter."""
        self._check(predicate)
        if any(condition.operand.side for condition in predicate.conditions()):
            raise ValueError("count_where() takes filters on fields of the queried type")
        return int(self._scalar(Aggregate("count_where", where=predicate)))

    def sum(self, field: FieldExpr[Any]) -> Any:
        return self._scalar(sum_of(field))

    def avg(self, field: FieldExpr[Any]) -> float | None:
        found: float | None = self._scalar(avg_of(field))
        return found

    def min(self, field: FieldExpr[Any]) -> Any:
        return self._scalar(min_of(field))

    def max(self, field: FieldExpr[Any]) -> Any:
        return self._scalar(max_of(field))

    def avg_len(self, field: FieldExpr[Any]) -> float | None:
        """The mean length of a text or list field."""
        if single(field, "avg_len").scalar not in (None, "str"):
            raise TypeError(f"avg_len() takes text or a list, and {field} is {field.scalar}")
        found: float | None = self._scalar(Aggregate("avg_len", field))
        return found

    def _scalar(self, aggregate: Aggregate) -> Any:
        self._check_aggregate(aggregate)
        plan = self._aggregate_plan((("value", aggregate),))
        return self._source.fetch(plan).columns[0][0]

    def group_by(self, *fields: FieldExpr[Any]) -> GroupedQuery:
        """Group by one or more fields; continue with `having` and `agg`."""
        if not fields:
            raise ValueError("group_by() needs at least one field")
        for field in fields:
            self._check_operand(plain(field, "group_by"))
            if field.side is not None and not self._plan.window.deduplicated:
                raise ValueError(f"group_by({field}) is about one state: latest, or as_of a commit, not history")
        return GroupedQuery(self, fields)

    def _check_aggregate(self, aggregate: Aggregate) -> None:
        if aggregate.operand is not None:
            self._own(aggregate.operand)

    def _aggregate_plan(self, aggregates: tuple[tuple[str, Aggregate], ...], **changes: Any) -> Plan:
        if self._plan.limit is not None or self._plan.offset is not None:
            raise ValueError("limit and offset do not combine with aggregation")
        return self._plan.change(aggregates=aggregates, order=(), **changes)


class GroupedQuery:
    """`group_by(...)`, waiting for its aggregates."""

    __slots__ = ("_groups", "_having", "_query")

    def __init__(
        self,
        query: AggregatingQuery[Any],
        groups: tuple[FieldExpr[Any], ...],
        having: tuple[AggregateCondition, ...] = (),
    ) -> None:
        self._query = query
        self._groups = groups
        self._having = having

    def having(self, *conditions: AggregateCondition) -> GroupedQuery:
        """Keep groups that pass: `.having(count() > 5)`."""
        for condition in conditions:
            if not isinstance(condition, AggregateCondition):
                raise TypeError(f"having() takes comparisons of aggregates, such as count() > 5, not {condition!r}")
            self._query._check_aggregate(condition.aggregate)
        return GroupedQuery(self._query, self._groups, (*self._having, *conditions))

    def agg(self, **aggregates: Aggregate) -> Result[dict[str, Any]]:
        """One dict per group: its fields, then the aggregates under the names given."""
        plan = self._plan(aggregates)
        fetched = self._query._source.fetch(plan)
        names = [*self._names(), *aggregates]
        rows = zip(*self._decode(fetched.columns), strict=True)
        return Result((dict(zip(names, row, strict=True)) for row in rows), fetched.diagnostics)

    def to_arrow(self, **aggregates: Aggregate) -> pa.Table:
        """The groups as an Arrow table. Structured values are canonical JSON, however an engine spells its numbers."""
        import pyarrow as pa

        found = self._query._source.table(self._plan(aggregates))
        for number, group in enumerate(self._groups):
            if group.scalar is None:
                values = parse_texts(found.column(number).to_pylist())
                texts = [None if value is None else encode_json(value) for value in values]
                found = found.set_column(number, found.schema.field(number), pa.array(texts, pa.string()))
        return found

    def to_spark(self, spark: SparkSession, **aggregates: Aggregate) -> DataFrame:
        """The groups as a Spark DataFrame."""
        return on_spark(spark, self._query._source, self._plan(aggregates))

    def _plan(self, aggregates: Mapping[str, Aggregate]) -> Plan:
        if not aggregates:
            raise ValueError("agg() needs at least one aggregate, such as n=count()")
        for name, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise TypeError(f"agg({name}=…) takes an aggregate, such as count(), not {aggregate!r}")
            if name in self._names():
                raise ValueError(f"agg({name}=…): the group already has a field of that name")
            self._query._check_aggregate(aggregate)
        schemas = self._query._schemas_with_ends(self._groups)
        return self._query._aggregate_plan(
            tuple(aggregates.items()), groups=self._groups, having=self._having, schemas=schemas
        )

    def _names(self) -> list[str]:
        return group_names(self._groups)

    def _decode(self, columns: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        decoded = list(columns)
        for number, group in enumerate(self._groups):
            if group.scalar is None and decoded:
                decoded[number] = parse_texts(decoded[number])
        return decoded
