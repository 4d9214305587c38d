"""Traversals: from entities over relations to the entities at the other end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from ontologia.model import (
    Declaration,
    FieldExpr,
    Predicate,
    Relation,
)
from ontologia.query.aggregates import single
from ontologia.query.plan import Hop, Order, Plan
from ontologia.query.query import Fetched, Query, QuerySource, declaration_of, direction, named_field
from ontologia.query.results import Hydrator, Path, Result, StoredTable, make_at_once, place_ends

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


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
        return type(self)(self._source, self._declaration, self._plan.change(**changes), self._steps)

    def _declarations(self) -> list[Declaration]:
        return [self._declaration, *(declaration for step in self._steps for declaration in step)]

    def via(self, relation: type[Relation[Any, Any]], *, reverse: bool = False) -> PathQuery:
        """One more step."""
        step = declaration_of(relation, "relation")
        assert step.endpoints is not None
        ends = [end.__declaration__ for end in step.endpoints]
        here = self._steps[-1][1] if self._steps else self._declaration
        if here.ref not in (ends[0].ref, ends[1].ref):
            joined = " and ".join(end.ref.name for end in ends)
            raise ValueError(f"{step.ref.name} does not touch {here.ref.name}: it joins {joined}")
        forward = here.ref == ends[0].ref and not (reverse and here.ref == ends[1].ref)
        there = ends[1] if forward else ends[0]
        plan = self._plan.change(
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
        return EndQuery(self._source, self._declaration, self._plan.change(ends_only=True), self._steps)

    def collect(self) -> Result[Path]:
        return make_at_once(self._paths, self._source.fetch(self._plan))

    def _paths(self, fetched: Fetched) -> Result[Path]:
        start: Hydrator[Any] = Hydrator.of(self._declaration.cls)
        origin = self._source.origin(self._plan.window)
        sources = start.hydrate_shared(fetched.columns, origin)
        position = start.end
        relations: list[list[Any]] = []
        entities: list[list[Any]] = []
        for step, there in self._steps:
            for declaration, found in ((step, relations), (there, entities)):
                hydrator = Hydrator.of(declaration.cls, position)
                found.append(hydrator.hydrate_shared(fetched.columns, origin))
                position = hydrator.end
        before = sources
        for hop, over, to in zip(self._plan.hops, relations, entities, strict=True):
            place_ends(over, *((before, to) if hop.forward else (to, before)))
            before = to
        paths = (
            Path(source, list(over), [source, *to])
            for source, over, to in zip(sources, zip(*relations, strict=True), zip(*entities, strict=True), strict=True)
        )
        return Result(paths, fetched.diagnostics)

    def as_stored(self) -> list[StoredTable]:
        raise ValueError("a path is not a table: ask for the relation or the entities as they are stored")

    def to_arrow(self) -> pa.Table:
        raise ValueError(
            "a path is not a table: use without_relations() for the entities reached, or collect() for paths"
        )

    def to_spark(self, spark: SparkSession) -> DataFrame:
        raise ValueError("a path is not a table: use without_relations() for the entities reached")

    def count(self) -> int:
        raise ValueError("aggregation on a traversal is not supported: collect() it, or query the relation")

    sum = avg = min = max = count_where = avg_len = group_by = count


class EndQuery(PathQuery):
    """The entities a traversal reached. As a sequence it is what `collect()` gives, asked for each time."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.collect())

    def __len__(self) -> int:
        return len(self.collect())

    def __getitem__(self, place: int | slice) -> Any:
        return self.collect()[place]

    def __bool__(self) -> bool:
        return len(self) > 0

    def order_by(self, field: FieldExpr[Any] | str, descending: bool = False) -> Self:
        """Sort by a field of the entities reached, or of where they were reached from: then the greatest counts."""
        field = named_field(self._steps[-1][1], field)
        reached = self._steps[-1][1].ref
        if single(field, "order_by").owner not in (reached, self._declaration.ref):
            raise ValueError(f"{field}: order by a field of {reached.name} or of {self._declaration.ref.name}")
        return self._with(order=(*self._plan.order, Order(field, direction(descending))))

    def collect(self) -> Result[Any]:
        fetched = self._source.fetch(self._plan)
        hydrator: Hydrator[Any] = Hydrator.of(self._steps[-1][1].cls)
        origin = self._source.origin(self._plan.window)
        return Result(hydrator.objects(fetched.columns, origin=origin), fetched.diagnostics)

    def to_arrow(self) -> pa.Table:
        return Query.to_arrow(self)

    def to_spark(self, spark: SparkSession) -> DataFrame:
        return Query.to_spark(self, spark)
