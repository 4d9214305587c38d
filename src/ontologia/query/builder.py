"""The query builder: small verbs that make a plan, and the endings that run it."""

from __future__ import annotations

import builtins
import importlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, cast

from ontologia.model import (
    Declaration,
    Entity,
    FieldExpr,
    Predicate,
    Relation,
    TypeRef,
    TypeSchema,
    commit_column,
    removed_column,
)
from ontologia.model.upgraders import Upgraders, registered_upgraders
from ontologia.query.aggregates import Aggregate, AggregateCondition, plain, single
from ontologia.query.aggregates import avg as avg_of
from ontologia.query.aggregates import max as max_of
from ontologia.query.aggregates import min as min_of
from ontologia.query.aggregates import sum as sum_of
from ontologia.query.plan import Across, Hop, Order, Plan, Search, Window, group_names
from ontologia.query.results import Hydrator, Path, Result, StoredTable, attach_endpoints, made_at_once, place_ends

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
E = TypeVar("E", bound=Entity)
R = TypeVar("R", bound=Relation[Any, Any])


@dataclass(frozen=True, slots=True)
class Fetched:
    """Columns of Python values, JSON still as text, and what the engine wants to say about them."""

    columns: Sequence[Sequence[Any]]
    diagnostics: Sequence[dict[str, Any]] = ()


class QuerySource(Protocol):
    """What can answer a plan: every engine can."""

    def fetch(self, plan: Plan, keys: pa.Table | None = None) -> Fetched: ...

    def table(self, plan: Plan, keys: pa.Table | None = None) -> pa.Table: ...

    def as_stored(self, plan: Plan) -> list[StoredTable]: ...

    def explain(self, plan: Plan) -> str: ...

    def snapshot(self) -> AbstractContextManager[None]: ...


class QueryRoot:
    """`session.query()`: choose what to ask about."""

    __slots__ = ("_source",)

    def __init__(self, source: QuerySource) -> None:
        self._source = source

    def entities(self, cls: type[E]) -> EntityQuery[E]:
        return EntityQuery(self._source, _declaration(cls, "entity"))

    def relations(self, cls: type[R]) -> RelationQuery[R]:
        return RelationQuery(self._source, _declaration(cls, "relation"))


def _declaration(cls: Any, kind: str) -> Declaration:
    declaration = getattr(cls, "__declaration__", None)
    if not isinstance(cls, type) or not isinstance(declaration, Declaration) or declaration.ref.kind != kind:
        plural = "entities" if kind == "entity" else "relations"
        raise TypeError(f"{plural}() takes a class derived from {kind.title()}, not {cls!r}")
    return declaration


class Query(Generic[T]):
    """What entity, relation and path queries share. Every verb gives a new query; the old one stays as it was."""

    __slots__ = ("_declaration", "_plan", "_source")

    def __init__(self, source: QuerySource, declaration: Declaration, plan: Plan | None = None) -> None:
        self._source = source
        self._declaration = declaration
        self._plan = plan or Plan(declaration.ref, {declaration.ref: declaration.schema})

    def _with(self, **changes: Any) -> Self:
        return type(self)(self._source, self._declaration, self._plan.changed(**changes))

    @property
    def plan(self) -> Plan:
        """The query as data."""
        return self._plan

    # --- verbs ---

    def where(self, *predicates: Predicate) -> Self:
        """Keep rows that pass every filter."""
        for predicate in predicates:
            self._check(predicate)
        operands = (condition.operand for predicate in predicates for condition in predicate.conditions())
        return self._with(where=(*self._plan.where, *predicates), schemas=self._schemas_with_ends(operands))

    def _schemas_with_ends(self, operands: Iterable[FieldExpr[Any]]) -> Mapping[TypeRef, TypeSchema]:
        """The schemas of the plan, and those of the endpoints that are asked about."""
        sides = {operand.side for operand in operands}
        ends = zip(("left", "right"), self._declaration.endpoints or (), strict=False)
        asked = [end.__declaration__ for side, end in ends if side in sides]
        return {**self._plan.schemas, **{end.ref: end.schema for end in asked}} if asked else self._plan.schemas

    def order_by(self, field: FieldExpr[Any], descending: bool = False) -> Self:
        """Sort by a field; ties, and queries without an order, follow identity. Repeat it to sort by several."""
        self._own(single(field, "order_by"))
        return self._with(order=(*self._plan.order, Order(field, _direction(descending))))

    def nearest(self, field: FieldExpr[Any], vector: Sequence[float], k: int = 10) -> Self:
        """The `k` rows whose vector is nearest, nearest first; among those that pass the filters. On graphs."""
        self._own(single(field, "nearest"))
        numbers = tuple(float(number) for number in vector)
        return self._with(search=Search(field.name, vector=numbers, most=_not_negative("nearest", k)))

    def search(self, field: FieldExpr[Any], text: str, k: int | None = None) -> Self:
        """The rows whose text has words of this one, best first; at most `k` of them. On graphs."""
        self._own(single(field, "search"))
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"search() takes words to look for, not {text!r}")
        return self._with(search=Search(field.name, text=text, most=None if k is None else _not_negative("search", k)))

    def limit(self, rows: int) -> Self:
        return self._with(limit=_not_negative("limit", rows))

    def offset(self, rows: int) -> Self:
        return self._with(offset=_not_negative("offset", rows))

    def as_of(self, commit_id: int) -> Self:
        """The state right after a commit."""
        return self._with(window=Window("as_of", _commit_id("as_of", commit_id)))

    def with_history(self) -> Self:
        """Every version, oldest first."""
        return self._with(window=Window("history"))

    def history_since(self, commit_id: int) -> Self:
        """Every version written after a commit, oldest first."""
        return self._with(window=Window("since", _commit_id("history_since", commit_id)))

    def across_versions(self, upgraders: Upgraders | None = None) -> Self:
        """Read rows of all schema versions, of every type the query names, as rows of the one in force.

        What changed is carried over as a migration would: filters, order, paging and aggregates see today's fields.
        Rows that need an upgrader pass it, one of `upgraders` or, by default, of those registered with `@upgrader`.

        >>> query.entities(Customer).across_versions().as_of(3).collect()          # doctest: +SKIP
        """
        steps = registered_upgraders() if upgraders is None else dict(upgraders)
        return self._with(across=Across(upgraders=steps).knowing(*self._declarations()))

    def _declarations(self) -> list[Declaration]:
        """The classes that are asked about, and those at the ends of a relation."""
        ends = self._declaration.endpoints or ()
        return [self._declaration, *(end.__declaration__ for end in ends)]

    # --- endings ---

    @abstractmethod
    def collect(self) -> Result[T]:
        """Run the query and give typed objects."""

    def first(self) -> T | None:
        """The first result, or None."""
        found = self.limit(1).collect()
        return found[0] if found else None

    def to_arrow(self) -> pa.Table:
        """The result as an Arrow table: one column per field; where rows are versions, the commit before them and after
        them whether the version is a removal."""
        return _versions_shown(self._plan.schema, self._plan, self._source.table(self._plan))

    def as_stored(self) -> list[StoredTable]:
        """The rows under the schema they were written with: an Arrow table for each version that has any, oldest first.

        Of the window alone; of filters, those by key, which all versions have.
        """
        plan = self._plan
        others = {"order_by": plan.order, "limit": plan.limit, "offset": plan.offset, "search": plan.search}
        for verb, given in others.items():
            if given not in (None, ()):
                raise ValueError(f"as_stored() gives tables of different schemas, and {verb} is about one of them")
        for operand in (condition.operand for condition in plan.conditions()):
            if operand.side is not None or (operand.column is not None and operand.name != plan.schema.primary_key):
                raise ValueError(f"as_stored() takes filters by key; {operand} is not there in every version")
        found = self._source.as_stored(plan)
        return [replace(stored, table=_versions_shown(stored.schema, plan, stored.table)) for stored in found]

    def to_pandas(self) -> pd.DataFrame:
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The result as a Spark DataFrame with the columns of `to_arrow`; Spark does the work."""
        return _on_spark(spark, self._source, self._plan)

    def explain(self) -> str:
        """The statement that will run, and the engine's plan for it."""
        return self._source.explain(self._plan)

    # --- checks ---

    def _check(self, predicate: Predicate) -> None:
        if not isinstance(predicate, Predicate):
            raise TypeError(f"where() takes filters, such as Customer.age > 30, not {predicate!r}")
        for condition in predicate.conditions():
            self._check_operand(condition.operand)

    def _check_operand(self, operand: FieldExpr[Any]) -> None:
        if operand.side is None:
            self._own(operand)
        else:
            self._own_endpoint(operand)

    def _own(self, operand: FieldExpr[Any]) -> None:
        if operand.owner != self._declaration.ref:
            raise ValueError(f"{operand} is a field of another type; this query is about {self._declaration.ref.name}")

    def _own_endpoint(self, operand: FieldExpr[Any]) -> None:
        ends = self._declaration.endpoints
        if ends is None or ends[operand.side == "right"].__declaration__.ref != operand.owner:
            raise ValueError(f"{operand} is no endpoint of {self._declaration.ref.name}")


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
        plan = self._aggregated((("value", aggregate),))
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

    def _aggregated(self, aggregates: tuple[tuple[str, Aggregate], ...], **changes: Any) -> Plan:
        if self._plan.limit is not None or self._plan.offset is not None:
            raise ValueError("limit and offset do not combine with aggregation")
        return self._plan.changed(aggregates=aggregates, order=(), **changes)


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
        rows = zip(*self._decoded(fetched.columns), strict=True)
        return Result((dict(zip(names, row, strict=True)) for row in rows), fetched.diagnostics)

    def to_arrow(self, **aggregates: Aggregate) -> pa.Table:
        """The groups as an Arrow table."""
        return self._query._source.table(self._plan(aggregates))

    def to_spark(self, spark: SparkSession, **aggregates: Aggregate) -> DataFrame:
        """The groups as a Spark DataFrame."""
        return _on_spark(spark, self._query._source, self._plan(aggregates))

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
        return self._query._aggregated(
            tuple(aggregates.items()), groups=self._groups, having=self._having, schemas=schemas
        )

    def _names(self) -> list[str]:
        return group_names(self._groups)

    def _decoded(self, columns: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        import json

        decoded = list(columns)
        for number, group in enumerate(self._groups):
            if group.scalar is None and decoded:
                decoded[number] = [None if text is None else json.loads(text) for text in decoded[number]]
        return decoded


class EntityQuery(AggregatingQuery[E]):
    """Entities of one type."""

    __slots__ = ()

    def collect(self) -> Result[E]:
        fetched = self._source.fetch(self._plan)
        hydrator: Hydrator[E] = Hydrator.of(cast("type[E]", self._declaration.cls))
        found = hydrator.objects(fetched.columns, removals=self._plan.shows_removals)
        return Result(found, fetched.diagnostics)

    def via(self, relation: type[Relation[Any, Any]], *, reverse: bool = False) -> PathQuery:
        """Follow a relation to the entities at its other end.

        The direction is clear from the types; where a relation joins a type with itself, it is left to right unless
        `reverse` is set.
        """
        return PathQuery(self._source, self._declaration, self._plan).via(relation, reverse=reverse)


class RelationQuery(AggregatingQuery[R]):
    """Relations of one type; collected ones carry their endpoints."""

    __slots__ = ()

    def collect(self) -> Result[R]:
        with self._source.snapshot():  # endpoints of the same state as their relations
            fetched = self._source.fetch(self._plan)
            hydrator: Hydrator[R] = Hydrator.of(cast("type[R]", self._declaration.cls))
            relations = hydrator.objects(fetched.columns, removals=self._plan.shows_removals)
            said = attach_endpoints(self._source, self._declaration, relations, self._plan)
        known = list(fetched.diagnostics)
        return Result(relations, known + [item for item in said if item not in known])


class PathQuery(Query[Path]):
    """A traversal. Filters given after `.via(...)` are about the relation or entity that step reached."""

    __slots__ = ("_steps",)

    def __init__(
        self,
        source: QuerySource,
        declaration: Declaration,
        plan: Plan | None = None,
        steps: tuple[tuple[Declaration, Declaration], ...] = (),
    ) -> None:
        super().__init__(source, declaration, plan)
        self._steps = steps

    def _with(self, **changes: Any) -> Self:
        return type(self)(self._source, self._declaration, self._plan.changed(**changes), self._steps)

    def _declarations(self) -> list[Declaration]:
        return [self._declaration, *(declaration for step in self._steps for declaration in step)]

    def via(self, relation: type[Relation[Any, Any]], *, reverse: bool = False) -> PathQuery:
        """One more step."""
        step = _declaration(relation, "relation")
        assert step.endpoints is not None
        ends = [end.__declaration__ for end in step.endpoints]
        here = self._steps[-1][1] if self._steps else self._declaration
        if here.ref not in (ends[0].ref, ends[1].ref):
            joined = " and ".join(end.ref.name for end in ends)
            raise ValueError(f"{step.ref.name} does not touch {here.ref.name}: it joins {joined}")
        forward = here.ref == ends[0].ref and not (reverse and here.ref == ends[1].ref)
        there = ends[1] if forward else ends[0]
        plan = self._plan.changed(
            hops=(*self._plan.hops, Hop(step.ref, there.ref, forward)),
            schemas={**self._plan.schemas, step.ref: step.schema, there.ref: there.schema},
            across=None if self._plan.across is None else self._plan.across.knowing(step, there),
        )
        return PathQuery(self._source, self._declaration, plan, (*self._steps, (step, there)))

    def where(self, *predicates: Predicate) -> Self:
        """Filter the step reached last, by fields of its relation or of its entity."""
        *before, last = self._plan.hops
        step = self._steps[-1]
        for predicate in predicates:
            owners = {condition.operand.owner for condition in predicate.conditions()}
            sides = any(condition.operand.side for condition in predicate.conditions())
            if sides or len(owners) != 1 or owners.isdisjoint({step[0].ref, step[1].ref}):
                raise ValueError(
                    f"after via(), a filter is about {step[0].ref.name} or about {step[1].ref.name}, one at a time"
                )
        return self._with(hops=(*before, replace(last, where=(*last.where, *predicates))))

    def without_relations(self) -> EndQuery:
        """Only the entities reached, each once."""
        return EndQuery(self._source, self._declaration, self._plan.changed(ends_only=True), self._steps)

    def collect(self) -> Result[Path]:
        return made_at_once(self._paths, self._source.fetch(self._plan))

    def _paths(self, fetched: Fetched) -> Result[Path]:
        start: Hydrator[Any] = Hydrator.of(self._declaration.cls)
        sources = start.shared(fetched.columns)
        position = start.end
        relations: list[list[Any]] = []
        entities: list[list[Any]] = []
        for step, there in self._steps:
            for declaration, found in ((step, relations), (there, entities)):
                hydrator = Hydrator.of(declaration.cls, position)
                found.append(hydrator.shared(fetched.columns))
                position = hydrator.end
        before = sources
        for hop, over, to in zip(self._plan.hops, relations, entities, strict=True):
            place_ends(over, *((before, to) if hop.forward else (to, before)))
            before = to
        paths = (
            Path(source, list(over), list(to))
            for source, over, to in zip(sources, zip(*relations, strict=True), zip(*entities, strict=True), strict=True)
        )
        return Result(paths, fetched.diagnostics)

    def as_stored(self) -> list[StoredTable]:
        raise ValueError("a path is no table: ask for the relation or the entities as they are stored")

    def to_arrow(self) -> pa.Table:
        raise ValueError("a path is no table: use without_relations() for the entities reached, or collect() for paths")

    def to_spark(self, spark: SparkSession) -> DataFrame:
        raise ValueError("a path is no table: use without_relations() for the entities reached")

    def count(self) -> int:
        raise ValueError("aggregation on a traversal is not supported: collect() it, or query the relation")

    sum = avg = min = max = count_where = avg_len = group_by = count


class EndQuery(PathQuery):
    """The entities a traversal reached."""

    __slots__ = ()

    def order_by(self, field: FieldExpr[Any], descending: bool = False) -> Self:
        """Sort by a field of the entities reached, or of where they were reached from: then the greatest counts."""
        reached = self._steps[-1][1].ref
        if single(field, "order_by").owner not in (reached, self._declaration.ref):
            raise ValueError(f"{field}: order by a field of {reached.name} or of {self._declaration.ref.name}")
        return self._with(order=(*self._plan.order, Order(field, _direction(descending))))

    def collect(self) -> Result[Any]:
        fetched = self._source.fetch(self._plan)
        hydrator: Hydrator[Any] = Hydrator.of(self._steps[-1][1].cls)
        return Result(hydrator.objects(fetched.columns), fetched.diagnostics)

    def to_arrow(self) -> pa.Table:
        return Query.to_arrow(self)

    def to_spark(self, spark: SparkSession) -> DataFrame:
        return Query.to_spark(self, spark)


def _versions_shown(schema: TypeSchema, plan: Plan, table: pa.Table) -> pa.Table:
    """The commit comes first; it is left out or named by place, since a field may have its name. So is the last one."""
    if plan.window.deduplicated:
        return table.select(range(1, table.num_columns))
    names = [commit_column(schema), *table.column_names[1:]]
    if plan.shows_removals:
        names[-1] = removed_column(schema)
    return table.rename_columns(names)


def _on_spark(spark: SparkSession, source: QuerySource, plan: Plan) -> DataFrame:
    """Spark is a way in, above this layer, and heavy: it is looked up by name when somebody asks for it."""
    found: DataFrame = importlib.import_module("ontologia.spark.reading.queries").to_spark(spark, source, plan)
    return found


def _direction(descending: object) -> bool:
    if isinstance(descending, FieldExpr):
        raise TypeError("order_by() takes one field at a time: .order_by(first).order_by(second)")
    if not isinstance(descending, bool):
        raise TypeError(f"order_by(field, descending) takes True or False, not {descending!r}")
    return descending


def _not_negative(verb: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{verb}() takes a whole number, not {value!r}")
    if value < 0:
        raise ValueError(f"{verb}() takes zero or more, not {value}")
    return builtins.min(value, 2**63 - 1)


def _commit_id(verb: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{verb}() takes a commit id, not {value!r}")
    if value < 0:
        raise ValueError(f"{verb}() takes a commit id, zero or more, not {value}")
    return builtins.min(value, 2**63 - 1)
