"""Records that `onto export` of Ontologia 0.3 wrote, as ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ontologia.errors import ValidationError
from ontologia.model import TypeRef, TypeSchema

_NAMES = {"type_kind": "kind", "type_name": "type"}


def ours(record: dict[str, Any]) -> dict[str, Any]:
    """The record under our names; itself where it has them already."""
    if "type_kind" not in record or "kind" in record:
        return record
    return {_NAMES.get(name, name): value for name, value in record.items()}


def without_leftovers(record: dict[str, Any], schema: TypeSchema) -> dict[str, Any]:
    """The record without what an upgrader of 0.3 left behind: keys the type does not have, which 0.3 did not read."""
    fields = record.get("fields")
    if not isinstance(fields, dict):
        return record
    return {**record, "fields": {name: value for name, value in fields.items() if name in schema.by_name}}


class OutdatedRecords:
    """Rows of earlier schema versions, which an export of a history has among the others.

    They do not fit the type as it is now, and need not: the last record of an identity counts. One that no later
    record replaces is an error.
    """

    def __init__(self) -> None:
        self._problems: dict[tuple[Any, ...], ValidationError] = {}

    def add(self, ref: TypeRef, record: Mapping[str, Any], problem: ValidationError) -> None:
        self._problems.setdefault(_identity(ref, record), problem)

    def settle(self, ref: TypeRef, record: Mapping[str, Any]) -> None:
        if self._problems:
            self._problems.pop(_identity(ref, record), None)

    def check(self) -> None:
        for problem in self._problems.values():
            raise problem


def _identity(ref: TypeRef, record: Mapping[str, Any]) -> tuple[Any, ...]:
    return ref, *(str(record.get(name) or "") for name in ("key", "left_key", "right_key", "instance_key"))
