"""From a plan to Lance: which rows and columns a type has to give, and what of a filter the scan can take over.

Whatever is taken over is tested again by the statement around it, so a filter that is too weak costs time, not truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ontologia.engines.omnigraph.types import GraphType
from ontologia.errors import HistoryGapError, ValidationError
from ontologia.files.quoting import quote_text
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, Column, Combination, Condition, FieldExpr, Predicate, TypeRef
from ontologia.omnigraph.comparing import find_deleted
from ontologia.omnigraph.datasets import is_in
from ontologia.omnigraph.lookups import MANY
from ontologia.omnigraph.manifest import GraphManifest, Pin
from ontologia.omnigraph.names import EMPTY
from ontologia.query.in_force import is_removal
from ontologia.query.plan import Plan, Window
from ontologia.query.stored_rows import StoredRows

if TYPE_CHECKING:
    from lance import LanceDataset

    from ontologia.omnigraph.graph import Graph

UPDATED = "_row_last_updated_at_version"
BATCH_ROWS = 131_072
_OPERATORS = {"eq": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@dataclass(frozen=True)
class FragmentShare:
    """Some fragments of one version of a type's dataset: what one task reads. It can be sent to the task."""

    pin: Pin
    fragments: tuple[int, ...]


@dataclass(frozen=True)
class TypeRows:
    """The rows of one type in a window, as a plan needs them."""

    graph: Graph
    manifest: GraphManifest
    type: GraphType
    activation: int

    def newest(self, window: Window) -> LanceDataset | None:
        """The dataset that a state is read from: a search is about one state, not about history."""
        if not window.deduplicated:
            raise ValidationError("a search is about one state: leave out with_history() and history_since()")
        pins = self._pins(window)
        return None if not pins else self._open(pins[-1])

    def _open(self, pin: Pin) -> LanceDataset:
        found = self.graph.datasets.find(*pin.place)
        if found is None and pin.place != self.manifest.pins[self.type.key].place:
            raise HistoryGapError(
                f"the state of {self.type.ref} at commit {pin.published_at - EMPTY} is not stored any more: it was "
                "cleaned up; ask for a newer commit, and tag states that must stay"
            )
        return self.graph.datasets.open(*pin.place) if found is None else found

    def shares(self, window: Window, head: int, rows_each: int) -> list[FragmentShare]:
        """The rows of one state, up to a head, in shares of whole fragments."""
        pins = [pin for pin in self._pins(window) if pin.published_at <= head + EMPTY]
        if not pins:
            return []
        shares: list[tuple[int, list[int]]] = [(0, [])]
        for fragment in self._open(pins[-1]).get_fragments():
            count, chosen = shares[-1]
            rows = fragment.count_rows()
            if chosen and count + rows > rows_each:
                count, chosen = 0, []
                shares.append((0, chosen))
            chosen.append(fragment.fragment_id)
            shares[-1] = (count + rows, chosen)
        return [FragmentShare(pins[-1], tuple(chosen)) for _, chosen in shares]

    def read_share(
        self, share: FragmentShare, columns: Sequence[Column] | None = None, where: str | None = None
    ) -> Iterator[pa.Table]:
        """The rows of a share, a batch at a time."""
        dataset = self.graph.datasets.open(*share.pin.place)
        fragments = [dataset.get_fragment(number) for number in share.fragments]
        scanner = dataset.scanner(
            columns=[*self.type.needed(columns), UPDATED], filter=where, fragments=fragments, batch_size=BATCH_ROWS
        )
        for batch in scanner.to_batches():
            yield self._cast(pa_table(batch))

    def _pins(self, window: Window) -> list[Pin]:
        last = EMPTY + (window.commit or 0) if window.mode == "as_of" else self.manifest.version
        since = EMPTY + self.activation
        return [pin for pin in self.manifest.history[self.type.key] if since <= pin.published_at <= last]

    def read(
        self,
        window: Window,
        columns: Sequence[Column] | None = None,
        where: str | None = None,
        gone: list[int] | None = None,
    ) -> pa.Table:
        """Identity, commit and fields. `gone` collects commits whose rows a cleanup removed."""
        pins = self._pins(window)
        if window.deduplicated:
            parts = [self._rows(pins[-1], columns, where)] if pins else []
        else:
            parts = list(self._versions(pins, window, columns, where, gone))
        if parts:
            return pa.concat_tables([parts[0], *(part.cast(parts[0].schema) for part in parts[1:])])
        nothing = self._rows(None, columns, None)
        return nothing if window.deduplicated else _mark_removed(nothing)

    def _versions(
        self, pins: Sequence[Pin], window: Window, columns: Sequence[Column] | None, where: str | None, gone: Any
    ) -> Iterator[pa.Table]:
        """Every version of every row: of each published version, the rows that were written for it, and those that
        are not in it any more."""
        before, earlier = 0, None
        for pin in pins:
            found = self.graph.datasets.find(pin.path, pin.branch, pin.version)
            if window.mode != "since" or pin.published_at > EMPTY + (window.commit or 0):
                written = f"{UPDATED} > {before}"
                if found is not None:
                    yield _mark_removed(
                        self._rows(pin, columns, written if where is None else f"({where}) AND {written}")
                    )
                    yield from self._removals(earlier, found, pin, columns)
                elif gone is not None:
                    gone.append(pin.published_at - EMPTY)
            before, earlier = pin.version, found

    def _removals(
        self, earlier: LanceDataset | None, found: LanceDataset, pin: Pin, columns: Sequence[Column] | None
    ) -> Iterator[pa.Table]:
        """The rows that a version has no more, as they were, under the commit that took them away."""
        deleted = None if earlier is None else find_deleted(earlier, found)
        if deleted is not None and deleted.num_rows:
            commit = pa.array([pin.published_at - EMPTY] * deleted.num_rows, pa.int64())
            yield _mark_removed(self.type.from_graph(deleted.select(self.type.needed(columns)), commit), commit)

    def _rows(self, pin: Pin | None, columns: Sequence[Column] | None, where: str | None) -> pa.Table:
        wanted = [*self.type.needed(columns), UPDATED]
        if pin is None:
            empty = pa.schema([field for field in self.type.arrow if field.name in wanted]).empty_table()
            return self.type.from_graph(empty, pa.array([], pa.int64()))
        return self._cast(scan(self._open(pin), wanted, where))

    def _cast(self, rows: pa.Table) -> pa.Table:
        """Rows as an engine gives them back, each with the commit that published its version."""
        pins = self.manifest.history[self.type.key]
        versions = np.fromiter((it.version for it in pins), np.uint64, len(pins))
        published = np.fromiter((it.published_at - EMPTY for it in pins), np.int64, len(pins))
        places = np.searchsorted(versions, rows.column(UPDATED).to_numpy())
        return self.type.from_graph(rows, pa.array(published[np.minimum(places, len(pins) - 1)]))


def _mark_removed(rows: pa.Table, removed_by: pa.Array | None = None) -> pa.Table:
    """Versions with what superseded them, as far as removals are concerned."""
    return rows.append_column(SUPERSEDED_BY, pa.nulls(rows.num_rows, pa.int64()) if removed_by is None else removed_by)


def pa_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def scan(dataset: LanceDataset, columns: Sequence[str], where: str | None) -> pa.Table:
    return dataset.scanner(columns=list(columns), filter=where).to_table()


# --- what a plan needs of a type ---


def needed_columns(plan: Plan, type: GraphType) -> Sequence[Column] | None:
    """The fields a plan looks at; None for all. Only numbers and endpoints need fewer."""
    source = type.ref == plan.source
    if plan.only is not None and source:
        named = {column.physical: column for column in type.schema.columns}
        wanted = {named[name].name for name in plan.only if name in named}
    elif (source and not plan.aggregates) or any(type.ref in (hop.relation, hop.entity) for hop in plan.hops):
        return None
    else:
        wanted = set()
    operands: list[FieldExpr[Any] | None] = [condition.operand for condition in plan.conditions()]
    operands += [*plan.groups, *(order.operand for order in plan.order)]
    operands += [aggregate.operand for _, aggregate in plan.aggregates]
    operands += [condition.aggregate.operand for condition in plan.having]
    wanted |= {operand.name for operand in operands if operand is not None and operand.owner == type.ref}
    return [column for column in type.schema.columns if column.name in wanted]


def pushed_filter(plan: Plan, type: GraphType, keys: pa.Table | None, *, by_ends: bool = False) -> str | None:
    """The part of a plan's filters on a type that Lance can test while it scans; `by_ends` where the ids of edges do
    not tell which they are."""
    predicates: list[Predicate] = list(plan.where) if type.ref == plan.source else []
    if type.ref != plan.source:
        reached = [hop for hop in plan.hops if type.ref in (hop.relation, hop.entity)]
        if len(reached) == 1:  # where a type stands in several places of a path, each has filters of its own
            predicates += reached[0].where
    elif any(type.ref in (hop.relation, hop.entity) for hop in plan.hops):
        predicates = []
    parts = [text for predicate in predicates if (text := _translate(predicate, type)) is not None]
    if keys is not None and plan.keyed and type.ref == plan.source and keys.num_rows <= MANY:
        ids = ("src", sorted(set(keys.column("left_key").to_pylist()))) if by_ends else ("id", type.ids_of(keys))
        parts.append(is_in(*ids))
    return " AND ".join(f"({part})" for part in parts) or None


def row_by_key(plan: Plan, tables: Mapping[str, pa.Table | None]) -> pa.Table | None:
    """The answer to a plan that asks for one entity of a state by its key: there is nothing to sort or to put together,
    so that rows go by without DuckDB. None for any other plan."""
    key = plan.sought_key
    rows = tables.get(GraphRows(plan.source).name)
    if key is None or rows is None:
        return None

    names = [COMMIT_ID, *(column.physical for column in plan.schema.columns)]
    return rows.filter(pc.equal(rows.column(plan.source.identity[0]), key)).select(names)


def _translate(predicate: Predicate, type: GraphType) -> str | None:
    if isinstance(predicate, Combination):
        parts = [_translate(part, type) for part in predicate.parts]
        if predicate.op == "or" and None in parts:
            return None
        known = [f"({part})" for part in parts if part is not None]
        return f" {predicate.op.upper()} ".join(known) or None
    return _compare(predicate, type) if isinstance(predicate, Condition) else None


def _compare(condition: Condition, type: GraphType) -> str | None:
    operand = condition.operand
    if operand.owner != type.ref or operand.side or operand.steps or operand.item_path is not None:
        return None
    column, scalar = _column(operand, type)
    if column is None or (scalar == "float" and condition.op in ("gt", "ge")):  # not-a-number is above all others
        return None
    if condition.op in ("is_null", "is_not_null"):
        return f"`{column}` {condition.op.replace('_', ' ').upper()}"
    values = condition.value if condition.op == "in" else (condition.value,)
    literals = [_literal(value, scalar) for value in values]
    if None in literals or (condition.op not in _OPERATORS and condition.op != "in"):
        return None
    if condition.op == "in":
        return f"`{column}` IN ({', '.join(map(str, literals))})" if literals else "false"
    return f"`{column}` {_OPERATORS[condition.op]} {literals[0]}"


def _column(operand: FieldExpr[Any], type: GraphType) -> tuple[str | None, str]:
    """Where a field lies, and what it holds; a key of text is the id itself, which has an index."""
    ends = {"left_key": "src", "right_key": "dst"} if type.ref.kind == "relation" else {"entity_key": "id"}
    if operand.name in ends and operand.name not in type.schema.by_name:
        return ends[operand.name], "str"
    found = type.schema.by_name.get(operand.name)
    if found is None or found.scalar is None:
        return None, ""
    if operand.name == type.schema.primary_key and found.scalar == "str":
        return "id", "str"
    return type.columns[operand.name], found.scalar


def _literal(value: Any, scalar: str) -> str | None:
    """A value as Lance's SQL has it, where it means there what it means here."""
    if isinstance(value, bool):
        return str(value).lower() if scalar == "bool" else None
    if isinstance(value, str):
        return quote_text(value) if scalar == "str" else None
    if isinstance(value, int) and abs(value) < 2**53:
        return str(value) if scalar == "int" else (f"{value}.0" if scalar == "float" else None)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value) if scalar == "float" else None
    return None


class GraphRows(StoredRows):
    """Rows that were read, under a name that the statement uses; where they are `versions`, with removals."""

    def __init__(self, ref: TypeRef, *, versions: bool = False) -> None:
        self.ref = ref
        self.key = ("graph", ref, versions)
        self.has_removals = versions
        self.name = f"rows of {ref}"

    def rows(self, window: Window, columns: Sequence[Column], *, probe: bool, removals: bool = False) -> exp.Select:
        chosen: list[Any] = [_column_expression(name) for name in (*self.ref.identity, COMMIT_ID)]
        for column in columns:
            found: Any = _column_expression(column.physical)
            if column.scalar == "float":
                # DuckDB hands comparisons of plain columns to Arrow, where not-a-number is not above infinity.
                product = exp.Mul(this=found, expression=exp.Literal.number("1.0"))
                found = exp.alias_(exp.cast(product, "DOUBLE"), column.physical, quoted=True)
            chosen.append(found)
        table = exp.Table(this=exp.to_identifier(self.name, quoted=True), alias=exp.TableAlias(this="t"))
        if self.has_removals and removals:
            chosen.append(_column_expression(SUPERSEDED_BY))
        select = exp.select(*chosen).from_(table)
        return select.where(exp.not_(is_removal("t"))) if self.has_removals and not removals else select


def _column_expression(name: str) -> exp.Column:
    return exp.column(name, table="t", quoted=True)
