"""Rows of 0.3 as ours: the JSON document of a row, its only full copy, taken apart into typed columns.

A migration of 0.3 stored whatever its upgrader returned. Keys that the schema does not have are left out, as 0.3 left
them out when it read; a field that is not there is null here, and gets its default when an object is made of the row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from ontologia.errors import StorageBackendError
from ontologia.model import COMMIT_ID, Column, TypeSchema, encode_json, is_unicode, to_utc

BATCH_ROWS = 10_000


class StoredRow(NamedTuple):
    """A row as it lies in the store."""

    identity: tuple[str, ...]
    commit_id: int
    document: str


def arrow_schema(schema: TypeSchema) -> pa.Schema:
    """Identity, commit, fields. Any field may be null here."""
    return pa.schema(
        [
            *((name, pa.string()) for name in schema.ref.identity),
            (COMMIT_ID, pa.int64()),
            *((column.physical, column.arrow_type) for column in schema.columns),
        ]
    )


def once_per_commit(rows: Iterable[StoredRow]) -> Iterator[StoredRow]:
    """Rows in the order of identity and commit, the last one where a commit has several of an identity."""
    held: StoredRow | None = None
    for row in rows:
        if held is not None and held[:2] != row[:2]:
            yield held
        held = row
    if held is not None:
        yield held


def tables(where: str, schema: TypeSchema, rows: Iterable[StoredRow]) -> Iterator[pa.Table]:
    """Rows as tables of some size."""
    batch: list[StoredRow] = []
    for row in rows:
        batch.append(row)
        if len(batch) >= BATCH_ROWS:
            yield _table(where, schema, batch)
            batch = []
    if batch:
        yield _table(where, schema, batch)


def _table(where: str, schema: TypeSchema, rows: Sequence[StoredRow]) -> pa.Table:
    documents = [_document(where, schema, row) for row in rows]
    arrays: list[Any] = [[row.identity[place] for row in rows] for place in range(len(schema.ref.identity))]
    arrays.append([row.commit_id for row in rows])
    for column in schema.columns:
        arrays.append([_value(where, schema, column, row, found) for row, found in zip(rows, documents, strict=True)])
    names = arrow_schema(schema)
    return pa.Table.from_arrays(
        [pa.array(values, field.type) for values, field in zip(arrays, names, strict=True)], schema=names
    )


def _document(where: str, schema: TypeSchema, row: StoredRow) -> dict[str, Any]:
    try:
        found = json.loads(row.document)
    except ValueError as problem:
        raise _bad_row(where, schema, row, f"its fields_json is not JSON ({problem})") from None
    if not isinstance(found, dict):
        raise _bad_row(where, schema, row, "its fields_json is not a JSON object")
    return found


def _value(where: str, schema: TypeSchema, column: Column, row: StoredRow, document: dict[str, Any]) -> Any:
    value = document.get(column.name)
    if value is None:
        return None
    try:
        return _CONVERT[column.scalar](value)
    except (ValueError, TypeError, OverflowError):
        shown = f"{json.dumps(value)[:80]} in the field {column.name}, which is {column.describe()}"
        raise _bad_row(where, schema, row, f"it has {shown}") from None


def _bad_row(where: str, schema: TypeSchema, row: StoredRow, reason: str) -> StorageBackendError:
    name = "/".join(filter(None, row.identity))
    return StorageBackendError(
        f"{where}: {schema.ref} {name!r} of commit {row.commit_id} cannot be read: {reason}",
        context={"operation": "read", "type": str(schema.ref)},
    )


def _text(value: Any) -> str:
    if not isinstance(value, str) or not is_unicode(value):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    found = int(value) if isinstance(value, str) else value
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if not isinstance(found, int) or not -(2**63) <= found < 2**63:
        raise ValueError
    return int(found)


def _truth(value: Any) -> bool:
    if value not in (True, False):
        raise ValueError
    return bool(value)


def _instant(value: Any) -> datetime:
    return to_utc(datetime.fromisoformat(_text(value)))


def _day(value: Any) -> date:
    return datetime.fromisoformat(_text(value)).date()


def _bytes(value: Any) -> bytes:
    return _text(value).encode()


def _json(value: Any) -> str:
    text = encode_json(value)
    if not is_unicode(text):
        raise TypeError
    return text


_CONVERT: dict[str | None, Callable[[Any], Any]] = {
    None: _json,
    "str": _text,
    "int": _whole,
    "float": float,
    "bool": _truth,
    "datetime": _instant,
    "date": _day,
    "bytes": _bytes,
}
