"""Rows as JSON documents: the `fields_json` of both v1 engines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from ontologia.model import Column, TypeSchema, encode_json, parse_texts

if TYPE_CHECKING:
    import pyarrow as pa

_FROM_JSON: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "bytes": bytes.fromhex,
}


def scalar_from_json(scalar: str, value: Any) -> Any:
    """A scalar as a document has it, as the value it is."""
    decode = _FROM_JSON.get(scalar)
    return value if decode is None else decode(value)


def documents(schema: TypeSchema, rows: pa.Table) -> Iterator[str]:
    """Rows as canonical JSON texts."""
    if not schema.columns:
        yield from ["{}"] * rows.num_rows
        return
    names = [column.name for column in schema.columns]
    values = [
        parse_texts(rows.column(column.physical).to_pylist())
        if column.scalar is None
        else rows.column(column.physical).to_pylist()
        for column in schema.columns
    ]
    for row in zip(*values, strict=True):
        yield encode_json(dict(zip(names, row, strict=True)))


def split_documents(fields: Sequence[Column], texts: Sequence[str]) -> list[Sequence[Any]]:
    """Documents as columns of values; a field that is JSON stays text."""
    parsed = [json.loads(text) for text in texts]
    columns: list[Sequence[Any]] = []
    for column in fields:
        decode = encode_json if column.scalar is None else _FROM_JSON.get(column.scalar)
        values = [document.get(column.name) for document in parsed]
        if decode is not None:
            values = [None if value is None else decode(value) for value in values]
        columns.append(values)
    return columns
