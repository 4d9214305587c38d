"""What a frame was and is, for people: history, differences, sizes, and how it shows itself."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import pyarrow as pa

from ontologia.apiary import scan
from ontologia.apiary.compaction import CompactionPolicy
from ontologia.apiary.entries import AddCells, Cell, CreateFrame, Entry
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.results import CellDifference, VersionChange
from ontologia.apiary.state import FrameSnapshot, changed_cells, partition_of
from ontologia.apiary.types import FrameSchema
from ontologia.errors import ValidationError
from ontologia.files.quoting import quote_name


def changes(node: Node, name: FrameName, limit: int | None) -> list[VersionChange]:
    """The versions, the newest first. Rows that went are counted, so the state before is needed too."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ValidationError(f"limit is a whole number above 0, not {limit!r}")
    ledger = node.ledger(name)
    newest = ledger.snapshot().version
    first = 0 if limit is None else max(0, newest + 1 - limit)
    before = ledger.snapshot(first - 1) if first else None
    cells: dict[str, Cell] = {cell.id: cell for cell in before.cells} if before else {}
    found = [_change(entry, cells) for entry in ledger.entries(first, newest)]
    return found[::-1]


def _change(entry: Entry, cells: dict[str, Cell]) -> VersionChange:
    removed_ids, added = changed_cells(entry.action)
    removed = [cells.pop(cell_id) for cell_id in removed_ids if cell_id in cells]
    cells.update((cell.id, cell) for cell in added)
    return VersionChange(
        entry.version,
        entry.timestamp,
        entry.node_id,
        _operation(entry),
        len(added),
        len(removed),
        sum(cell.rows for cell in added),
        sum(cell.rows for cell in removed),
        sum(cell.bytes for cell in added),
        sum(cell.bytes for cell in removed),
    )


def _operation(entry: Entry) -> str:
    if entry.operation is not None:
        return entry.operation
    match entry.action:
        case CreateFrame():
            return "create"
        case AddCells():
            return "write"
    return "rewrite"


@dataclass(frozen=True)
class VersionDifference(CellDifference):
    """From version `a` to version `b`. `rows()` looks into the cells: a rewrite moves more rows than it changes."""

    a: int
    b: int
    _node: Node
    _name: FrameName
    _snapshot: FrameSnapshot

    def rows(self) -> pa.Table:
        """The rows themselves, with a column `change`: `added` or `removed`."""
        schema = self._snapshot.schema
        here = (self._node, self._name, schema)
        with (
            self._node.reading(self._name, self.a),
            self._node.reading(self._name, self.b),
            scan.sources(*here, self.added) as new,
            scan.sources(*here, self.removed) as old,
        ):
            before, after = _with_signs(schema, old.sql), _with_signs(schema, new.sql)
            columns = _from_signs(schema)
            sql = (
                f"SELECT {columns}, 'removed' AS change FROM (({before}) EXCEPT ALL ({after})) UNION ALL "
                f"SELECT {columns}, 'added' AS change FROM (({after}) EXCEPT ALL ({before}))"
            )
            return scan.rows(self._node, sql)

    def __repr__(self) -> str:
        return (
            f"VersionDifference({self._name}, version {self.a} to {self.b}: "
            f"+{len(self.added)} cells with {self.rows_added:,} rows, "
            f"-{len(self.removed)} cells with {self.rows_removed:,} rows)"
        )


SIGN = "\u200bsign of "


def _floats(schema: FrameSchema) -> list[str]:
    return [field.name for field in schema.fields if pa.types.is_floating(field.arrow)]


def _with_signs(schema: FrameSchema, sql: str) -> str:
    """Rows with a column per float that tells -0.0 from 0.0, which DuckDB takes for the same."""
    signs = [
        f"{quote_name(name)} = 0 AND signbit({quote_name(name)}) AS {quote_name(SIGN + name)}"
        for name in _floats(schema)
    ]
    return f"SELECT {', '.join(['*', *signs])} FROM ({sql})"


def _from_signs(schema: FrameSchema) -> str:
    """The columns of a frame, as they were before `_with_signs`."""
    floats = _floats(schema)
    return ", ".join(
        f"CASE WHEN {quote_name(SIGN + name)} THEN -abs({quote_name(name)}) ELSE {quote_name(name)} END AS "
        f"{quote_name(name)}"
        if name in floats
        else quote_name(name)
        for name in schema.names
    )


def difference(node: Node, name: FrameName, a: int, b: int) -> VersionDifference:
    ledger = node.ledger(name)
    before, after = ledger.snapshot(a), ledger.snapshot(b)
    old, new = {cell.id for cell in before.cells}, {cell.id for cell in after.cells}
    return VersionDifference(
        [cell for cell in after.cells if cell.id not in old],
        [cell for cell in before.cells if cell.id not in new],
        a,
        b,
        node,
        name,
        after,
    )


def summary(node: Node, name: FrameName, snapshot: FrameSnapshot) -> dict[str, Any]:
    sizes = sorted(cell.bytes for cell in snapshot.cells)
    policy = CompactionPolicy.for_sizing(node.capacity.sizing)
    return {
        "frame": str(name),
        "version": snapshot.version,
        "rows": snapshot.rows,
        "bytes": snapshot.bytes,
        "cells": len(sizes),
        "small_cells": len(policy.small(snapshot.cells, snapshot.schema)),
        "partitions": len({partition_of(cell.partition_values, snapshot.partition_by) for cell in snapshot.cells}),
        "partition_by": list(snapshot.partition_by),
        "smallest_cell": sizes[0] if sizes else 0,
        "largest_cell": sizes[-1] if sizes else 0,
    }


def describe(node: Node, name: FrameName, snapshot: FrameSnapshot) -> str:
    """A frame in a terminal."""
    facts = summary(node, name, snapshot)
    columns = [
        f"  {field.name}: {field.data_type}{'' if field.nullable else ' not null'}"
        f"{' (partition)' if field.name in snapshot.partition_by else ''}"
        for field in snapshot.schema.fields
    ]
    return "\n".join(
        [
            f"Frame {name}, version {facts['version']}: {facts['rows']:,} rows in {facts['cells']:,} cells, "
            f"{facts['partitions']:,} partitions, {size_text(facts['bytes'])}",
            *columns,
        ]
    )


def describe_html(node: Node, name: FrameName, snapshot: FrameSnapshot) -> str:
    """A frame in a notebook: its columns, and what its last versions did."""
    facts = summary(node, name, snapshot)
    head = (
        f"<b>{escape(str(name))}</b> · version {facts['version']} · {facts['rows']:,} rows · "
        f"{facts['cells']:,} cells · {facts['partitions']:,} partitions · {size_text(facts['bytes'])}"
    )
    columns = _table(
        ["column", "type", "null", "partition"],
        [
            [
                field.name,
                field.data_type,
                "yes" if field.nullable else "no",
                "yes" if field.name in snapshot.partition_by else "",
            ]
            for field in snapshot.schema.fields
        ],
    )
    versions = _table(
        ["version", "when", "operation", "rows +", "rows −", "cells +", "cells −"],
        [
            [
                str(change.version),
                f"{change.timestamp:%Y-%m-%d %H:%M:%S}",
                change.operation,
                f"{change.rows_added:,}",
                f"{change.rows_removed:,}",
                str(change.cells_added),
                str(change.cells_removed),
            ]
            for change in changes(node, name, 5)
        ],
    )
    return f"<div>{head}{columns}{versions}</div>"


def _table(head: list[str], rows: list[list[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def size_text(size: float) -> str:
    """
    >>> size_text(2048)
    '2.0 kB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"
