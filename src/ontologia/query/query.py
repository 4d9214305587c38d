"""What every query can do: verbs that make a plan, and the endings that run it."""

from __future__ import annotations

import builtins
import importlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from ontologia.extras import need
from ontologia.model import (
    Declaration,
    FieldExpr,
    Origin,
    Predicate,
    TypeRef,
    TypeSchema,
    commit_column,
    removed_column,
)
from ontologia.model.upgraders import Upgraders, registered_upgraders
from ontologia.query.aggregates import single
from ontologia.query.plan import Across, Order, Plan, Search, Window
from ontologia.query.results import Result, StoredTable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
Make = Callable[[Sequence[Sequence[Any]]], Sequence[T]]
"""Makes something of every row, given as columns."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Columns of Python values, JSON still as text, and what the engine wants to say about them."""

    columns: Sequence[Sequence[Any]]
    diagnostics: Sequence[dict[str, Any]] = ()

    def made(self, make: Make[T]) -> Made[T]:
        return Made(list(make(self.columns)), self.diagnostics)


@dataclass(frozen=True, slots=True)
class Made(Generic[T]):
    """What was made of an answer's rows, and what the engine wants to say about them."""

    found: list[T]
    diagnostics: Sequence[dict[str, Any]] = ()


class QuerySource(Protocol):
    """What can answer a plan: every engine can."""

    def origin(self, window: Window) -> Origin: ...

    def fetch(self, plan: Plan, keys: pa.Table | None = None) -> Fetched: ...

    def made_of(self, plan: Plan, make: Make[T]) -> Made[T]: ...

    def table(self, plan: Plan, keys: pa.Table | None = None) -> pa.Table: ...

    def as_stored(self, plan: Plan) -> list[StoredTable]: ...

    def explain(self, plan: Plan) -> str: ...

    def snapshot(self) -> AbstractContextManager[None]: ...


class Query(Generic[T]):
    """What entity, relation and path queries share. Every verb gives a new query; the old one stays as it was."""

    __slots__ = ("_declaration", "_plan", "_source")

    def __init__(self, source: QuerySource, declaration: Declaration, plan: Plan | None = None) -> None:
        self._source = source
        self._declaration = declaration
        self._plan = plan or Plan.of(declaration.schema)

    def _with(self, **changes: Any) -> Self:
        return type(self)(self._source, self._declaration, self._plan.change(**changes))

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
        if self._declaration.endpoints is None:
            return self._plan.schemas
        sides = {operand.side for operand in operands}
        ends = zip(("left", "right"), self._declaration.endpoints, strict=True)
        asked = [end.__declaration__ for side, end in ends if side in sides]
        return {**self._plan.schemas, **{end.ref: end.schema for end in asked}}

    def order_by(self, field: FieldExpr[Any] | str, descending: bool = False) -> Self:
        """Sort by a field, or by the name of one; ties, and queries without an order, follow identity. Repeat it to
        sort by several."""
        field = named_field(self._declaration, field)
        self._own(single(field, "order_by"))
        return self._with(order=(*self._plan.order, Order(field, direction(descending))))

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
        """The result as a pandas frame. Fields that may be None keep their bits: they are `Int64` and `boolean`."""
        need("pandas", "to_pandas()")
        from ontologia.files.pandas_frames import pandas_frame

        nullable = {
            column.name for schema in self._plan.schemas.values() for column in schema.columns if column.nullable
        }
        return pandas_frame(self.to_arrow(), nullable)

    def to_polars(self) -> pl.DataFrame:
        need("polars", "to_polars()")
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The result as a Spark DataFrame with the columns of `to_arrow`; Spark does the work."""
        return on_spark(spark, self._source, self._plan)

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
            raise ValueError(f"{operand} is not an endpoint of {self._declaration.ref.name}")


def named_field(declaration: Declaration, field: FieldExpr[Any] | str) -> FieldExpr[Any]:
    """A field of a type by its name; a field stays what it is."""
    if not isinstance(field, str):
        return field
    known = (*declaration.options, *(("left_key", "right_key") if declaration.endpoints else ()))
    if field not in known:
        raise ValueError(f"{declaration.cls.__name__} has no field {field!r}; it has {', '.join(known)}")
    return declaration.expression(field)


def declaration_of(cls: Any, kind: str) -> Declaration:
    declaration = getattr(cls, "__declaration__", None)
    if not isinstance(cls, type) or not isinstance(declaration, Declaration) or declaration.ref.kind != kind:
        plural = "entities" if kind == "entity" else "relations"
        raise TypeError(f"{plural}() takes a class derived from {kind.title()}, not {cls!r}")
    return declaration


def _versions_shown(schema: TypeSchema, plan: Plan, table: pa.Table) -> pa.Table:
    """The commit comes first; it is left out or named by place, since a field may have its name. So is the last one."""
    if plan.window.deduplicated:
        return table.select(range(1, table.num_columns))
    names = [commit_column(schema), *table.column_names[1:]]
    if plan.shows_removals:
        names[-1] = removed_column(schema)
    return table.rename_columns(names)


def on_spark(spark: SparkSession, source: QuerySource, plan: Plan) -> DataFrame:
    """Spark is a way in, above this layer, and heavy: it is looked up by name when somebody asks for it."""
    need("pyspark", "to_spark()")
    found: DataFrame = importlib.import_module("ontologia.spark.reading.queries").to_spark(spark, source, plan)
    return found


def direction(descending: object) -> bool:
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
