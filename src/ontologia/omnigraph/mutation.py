"""A mutation of any number of tables: what it must not do is found out before anything is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ontologia.errors import GraphValidationError
from ontologia.omnigraph.fragments import StagedFragments, commit_of_files
from ontologia.omnigraph.lookups import missing_from, not_among, rows_with
from ontologia.omnigraph.manifest import GraphManifest, Table
from ontologia.omnigraph.phases import Apply, Commit, GraphWrite, TableWork
from ontologia.omnigraph.snapshots import StoredSnapshot
from ontologia.omnigraph.uniqueness import clashes, unique_columns

if TYPE_CHECKING:
    from lance import LanceDataset

    from ontologia.omnigraph.datasets import Datasets
    from ontologia.omnigraph.graph import Graph

ENDS = ("src", "dst")
MOST_NAMED = 20  #: offending rows that an error names
UPSERT_ROWS = 500_000  #: in one Lance commit: its join holds them in memory


@dataclass
class TableChange:
    """The wanted state of some rows of a table. Each id is written or deleted, not both, and once.

    `new` are ids that must not exist yet; with `all_new` none of the rows may. `table` and `schema` come with a table
    that this change creates; a `table` alone carries new notes.
    """

    key: str
    rows: pa.Table | None = None
    deleted: Sequence[str] = ()
    new: frozenset[str] = frozenset()
    all_new: bool = False
    table: Table | None = None
    schema: pa.Schema | None = None
    replace_all: bool = False  #: the rows given are all there will be
    reshaped: bool = False  #: and in columns of their own, for a new version of the type
    files: StagedFragments | None = None  #: hold the rows already; `rows` has what is checked of them, and all are new
    notes: Mapping[str, Any] = field(default_factory=dict)  #: kept with the published version


@dataclass
class Checks:
    """Which rules a mutation is held to."""

    endpoints: bool = True
    cascade: bool = False


def endpoints_of(table: Table) -> tuple[str, str] | None:
    """The node tables that an edge joins."""
    ends = table.notes.get("endpoints")
    return None if not ends else (ends[0], ends[1])


def plan_mutation(
    graph: Graph,
    manifest: GraphManifest,
    changes: Sequence[TableChange],
    checks: Checks,
    details: Mapping[str, Any],
) -> GraphWrite | None:
    """Validate a mutation against the state it will be applied to, and say what each table will do."""
    snapshot = StoredSnapshot(graph, manifest)
    by_key = {change.key: change for change in changes}
    problems = _Problems()
    for change in changes:
        _as_stored(snapshot, change, problems)
    problems.refuse("the transaction was refused")
    for change in changes:
        _check_new(snapshot, change, problems)
        _check_unique(snapshot, change, manifest, problems)
    if checks.endpoints:
        _check_endpoints(snapshot, by_key, manifest, problems)
    _follow_deletes(snapshot, by_key, manifest, checks, problems)
    problems.refuse("the transaction was refused")
    works, tables, notes = [], [], {}
    for change in by_key.values():
        if change.table is not None:
            tables.append(change.table)
        work = _work(graph.datasets, snapshot, change)
        if work is not None:
            works.append(work)
            pin = manifest.pins.get(change.key)
            notes[change.key] = {**(pin.notes if pin is not None else {}), **change.notes}
    if not works and not tables:
        return None
    return GraphWrite(works, tables, details=details, pin_notes={key: note for key, note in notes.items() if note})


class _Problems:
    """Every offending row is counted, the first ones are named."""

    def __init__(self) -> None:
        self.named: list[str] = []
        self.total = 0

    def add(self, rows: Sequence[str], total: int | None = None) -> None:
        self.total += len(rows) if total is None else total
        self.named += rows[: max(0, MOST_NAMED - len(self.named))]

    def refuse(self, what: str) -> None:
        if self.total:
            raise GraphValidationError(what, self.named, self.total)


def _as_stored(snapshot: StoredSnapshot, change: TableChange, problems: _Problems) -> None:
    """Rows in the columns that the table has, and within what another writer of it allows. Where it has rules that are
    not known here, nothing is written: it could not be held to them."""
    if change.key not in snapshot or change.schema is not None:
        return
    notes = snapshot.manifest.tables[change.key].notes
    if notes.get("barred") and (change.rows is not None or change.deleted):
        raise GraphValidationError(
            f"{change.key} is read-only here, and can be written with the writer that made it",
            [f"it has {reason}" for reason in notes["barred"]],
        )
    if change.rows is None or change.files is not None or change.reshaped:
        return
    stored = snapshot.dataset(change.key).schema
    if not change.rows.schema.equals(stored):
        change.rows = _convert(change.key, change.rows, stored, problems)
    for column, allowed in notes.get("allowed", {}).items():
        _check_allowed(change, column, allowed, problems)


def _convert(key: str, rows: pa.Table, stored: pa.Schema, problems: _Problems) -> pa.Table:
    arrays = []
    for column in stored:
        values = rows.column(column.name)
        try:
            arrays.append(values if values.type == column.type else _stored_values(values, column.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as problem:
            problems.add([f"{key} stores {column.name} as {column.type}: {problem}"])
            return rows
        if values.null_count and not column.nullable:
            problems.add([f"{key} has no empty {column.name}, and {values.null_count} rows have one"])
    return pa.table(arrays, schema=stored) if not problems.total else rows


def _stored_values(values: pa.ChunkedArray, kind: pa.DataType) -> Any:
    """Values in the type that a column has; those that would change by it are an error."""
    if pa.types.is_nested(kind):
        return pa.array([None if text is None else json.loads(text) for text in values.to_pylist()], kind)
    if pa.types.is_date64(kind):
        moments = values.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
        return pa.chunked_array([chunk.view(kind) for chunk in moments.chunks], kind)
    return values.cast(kind)


def _check_allowed(change: TableChange, column: str, allowed: Mapping[str, Any], problems: _Problems) -> None:
    assert change.rows is not None
    for name, value in zip(change.rows.column("id").to_pylist(), change.rows.column(column).to_pylist(), strict=True):
        found = value if isinstance(value, list) else [value]
        for item in found:
            if item is None:
                continue
            if "enum" in allowed and item not in allowed["enum"]:
                said = f"one of {', '.join(allowed['enum'])}"
            elif "min" in allowed and item < allowed["min"]:
                said = f"at least {allowed['min']}"
            elif "max" in allowed and item > allowed["max"]:
                said = f"at most {allowed['max']}"
            else:
                continue
            problems.add([f"{change.key} {name!r} has the {column} {item!r}, and it is {said}"])


def _check_new(snapshot: StoredSnapshot, change: TableChange, problems: _Problems) -> None:
    taken = snapshot.existing(change.key, sorted(change.new))
    if change.all_new and change.rows is not None and change.key in snapshot:
        found = rows_with(snapshot.dataset(change.key), "id", change.rows.column("id"), ["id"])
        taken |= set(found.column("id").to_pylist())
    problems.add([f"{change.key} has {name!r} already, and insert() takes new keys" for name in sorted(taken)])


def _check_unique(snapshot: StoredSnapshot, change: TableChange, manifest: GraphManifest, problems: _Problems) -> None:
    table = change.table or manifest.tables[change.key]
    columns = unique_columns(table)
    if not columns or change.rows is None:
        return
    found = clashes(snapshot, change.key, columns, change.rows, change.deleted, replace_all=change.replace_all)
    problems.add([clash.describe(change.key) for clash in found])


def _check_endpoints(
    snapshot: StoredSnapshot, changes: Mapping[str, TableChange], manifest: GraphManifest, problems: _Problems
) -> None:
    for change in changes.values():
        table = change.table or manifest.tables[change.key]
        ends = endpoints_of(table)
        if ends is None or change.rows is None:
            continue
        for column, node in zip(ENDS, ends, strict=True):
            missing = missing_nodes(snapshot, changes.get(node), node, change.rows.column(column))
            if len(missing):
                edges = change.rows.select(["id", column])
                edges = edges.filter(pc.is_in(edges.column(column), value_set=missing))
                problems.add(
                    [
                        f"{change.key} {row['id']!r} has the {column} {row[column]!r}, and there is no such {node}"
                        for row in edges.slice(0, MOST_NAMED).to_pylist()
                    ],
                    edges.num_rows,
                )


def missing_nodes(snapshot: StoredSnapshot, change: TableChange | None, node: str, ids: pa.ChunkedArray) -> pa.Array:
    """Those of these nodes that will not exist after the mutation."""
    unknown = ids if change is None or change.rows is None else not_among(ids, change.rows.column("id"))
    if change is not None and change.replace_all:
        return _one(pc.unique(unknown))
    absent = missing_from(snapshot.find(node), "id", unknown)
    if change is None or not change.deleted:
        return _one(absent)
    gone = pa.array(sorted(set(change.deleted)), pa.string())
    deleted = unknown.filter(pc.is_in(unknown, value_set=gone))
    return pa.concat_arrays([_one(absent), _one(pc.unique(deleted))])


def _one(values: Any) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _follow_deletes(
    snapshot: StoredSnapshot,
    changes: dict[str, TableChange],
    manifest: GraphManifest,
    checks: Checks,
    problems: _Problems,
) -> None:
    """Deleting a node takes its edges with it where that was asked for, and is refused where edges remain."""
    if not checks.endpoints:
        return
    joined = {end for key in manifest.pins for end in endpoints_of(manifest.tables[key]) or ()}
    deleted = {key: gone for key in joined & changes.keys() if (gone := _gone(snapshot, changes[key]))}
    for key in manifest.pins:
        ends = endpoints_of(manifest.tables[key])
        change = changes.get(key)
        if ends is None or not deleted.keys() & set(ends) or (change is not None and change.replace_all):
            continue
        written = set() if change is None or change.rows is None else set(change.rows.column("id").to_pylist())
        settled = written | (set() if change is None else set(change.deleted))
        for column, node in zip(ENDS, ends, strict=True):
            if node not in deleted:
                continue
            touching = snapshot.rows_of(key, sorted(deleted[node]), ["id", column], by=column).to_pylist()
            left = [row for row in touching if row["id"] not in settled]
            if left and checks.cascade:
                change = changes.setdefault(key, TableChange(key))
                change.deleted = [*change.deleted, *(row["id"] for row in left)]
                settled |= {row["id"] for row in left}
            else:
                replaced = changes[node].replace_all
                advice = "load edges without it, too" if replaced else "cascade=True deletes it too"
                problems.add([f"{node} {row[column]!r} has the edge {key} {row['id']!r}: {advice}" for row in left])


def _gone(snapshot: StoredSnapshot, change: TableChange) -> set[str]:
    """The rows that a change takes away: those it names, or where it replaces all, those that it leaves out."""
    stored = snapshot.find(change.key)
    if not change.replace_all or stored is None:
        return set(change.deleted)
    ids = stored.to_table(columns=["id"]).column("id")
    return set((ids if change.rows is None else not_among(ids, change.rows.column("id"))).to_pylist())


def _work(datasets: Datasets, snapshot: StoredSnapshot, change: TableChange) -> TableWork | None:
    """The commits of one table: none where nothing changes, since even an empty delete would be a version."""
    rows = change.rows if change.rows is not None and (change.rows.num_rows or change.replace_all) else None
    gone = sorted(snapshot.existing(change.key, sorted(set(change.deleted))))
    steps: list[Any] = []
    if rows is not None:
        steps += _writing(datasets, snapshot, change, rows)
    if gone:
        steps.append(lambda dataset: datasets.stage_delete(dataset, gone))
    if not steps and change.schema is None:
        return None
    return TableWork(change.key, _in_turn(steps), len(steps), change.schema)


def _writing(datasets: Datasets, snapshot: StoredSnapshot, change: TableChange, rows: pa.Table) -> list[Any]:
    """The commits that write rows. New ones are streamed into files, others joined with the table, some at a time."""
    files = change.files
    if files is not None:
        return [lambda dataset: commit_of_files(datasets, dataset, files, replace_all=change.replace_all)]
    if change.replace_all:
        return [lambda dataset: datasets.stage_overwrite(dataset, rows)]
    pin = snapshot.manifest.pins.get(change.key)
    if change.all_new or pin is None or not pin.rows:
        return [lambda dataset: datasets.stage_append(dataset, _align(rows, dataset))]

    def upsert(start: int) -> Any:
        return lambda dataset: datasets.stage_upsert(dataset, _align(rows.slice(start, UPSERT_ROWS), dataset))

    return [upsert(start) for start in range(0, rows.num_rows, UPSERT_ROWS)]


def _align(rows: pa.Table, dataset: LanceDataset) -> pa.Table:
    """Rows in the columns of the dataset."""
    return rows if rows.schema.equals(dataset.schema) else rows.select(dataset.schema.names).cast(dataset.schema)


def _in_turn(steps: Sequence[Any]) -> Apply:
    def apply(dataset: LanceDataset, commit: Commit) -> LanceDataset:
        for stage in steps:
            dataset = commit(dataset, stage(dataset))
        return dataset

    return apply
