"""Rows that pass upgraders on their way from the version they are stored in to the one in code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pydantic

from ontologia.engines.object_rows import identity_of, table_of, transpose
from ontologia.errors import MigrationError
from ontologia.model import Declaration, Declared, TypeRef, TypeSchema, TypeSchemaDiff, parse_texts
from ontologia.model.typespec import accepts_none
from ontologia.model.upgraders import Row, Upgrader
from ontologia.model.values import plain

if TYPE_CHECKING:
    import pyarrow as pa

MOST_NAMED = 20  #: rows that an error names


@dataclass(frozen=True, slots=True)
class Leg:
    """From one version to the next: the upgraders that somebody wrote, then what changes by itself.

    `filled` has values for fields that are new in the next version and that the row does not have yet.
    """

    target: TypeSchema
    change: TypeSchemaDiff
    functions: tuple[Upgrader, ...] = ()
    filled: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Journey:
    """All the way from a stored version to the class, which validates what arrives."""

    stored: TypeSchema
    declaration: Declaration
    legs: tuple[Leg, ...]

    @property
    def ref(self) -> TypeRef:
        return self.stored.ref

    @property
    def new_fields(self) -> set[str]:
        """The fields of the class that rows did not have when they set out."""
        names: set[str] = set()
        for leg in self.legs:
            after = dict(leg.change.renamed)
            names = {after.get(name, name) for name in names} - set(leg.change.removed) | set(leg.change.added)
        return names


class Failures:
    """Rows that could not be upgraded: the first are named, all are counted."""

    def __init__(self, ref: TypeRef, most_named: int | None = MOST_NAMED) -> None:
        self._ref = ref
        self._most_named = most_named
        self._named: list[MigrationError] = []
        self._total = 0

    def add(self, problem: MigrationError) -> None:
        self._total += 1
        if self._most_named is None or len(self._named) < self._most_named:
            self._named.append(problem)

    def messages(self) -> list[str]:
        return list(map(str, self._named))

    def raise_any(self) -> None:
        if self._total == 1:
            raise self._named[0]
        if self._total:
            more = f"; and {self._total - MOST_NAMED:,} more" if self._total > MOST_NAMED else ""
            said = "; ".join(map(str, self._named))
            raise MigrationError(f"{self._total:,} rows of {self._ref} cannot be upgraded: {said}{more}") from (
                self._named[0].__cause__
            )


def upgrade_rows(journey: Journey, table: pa.Table, failures: Failures | None = None) -> pa.Table:
    """Stored rows, carried over and validated: identity and fields. Those that fail go to `failures`, or are raised."""
    arrived, failed, new = [], failures or Failures(journey.ref), journey.new_fields
    for identity, row in _rows(journey.stored, table):
        try:
            arrived.append((identity, _upgrade(journey, identity, row, new)))
        except MigrationError as problem:
            failed.add(problem)
    if failures is None:
        failed.raise_any()
    identities = transpose([identity for identity, _ in arrived], len(journey.ref.identity))
    columns = [[obj.__dict__[name] for _, obj in arrived] for name in journey.declaration.schema.names]
    return table_of(journey.declaration, identities, columns)


def _rows(schema: TypeSchema, table: pa.Table) -> Iterator[tuple[tuple[str, ...], Row]]:
    """Rows as an upgrader sees them: fields by name, a relation's endpoints and instance key among them."""
    keys = zip(*(table.column(name).to_pylist() for name in schema.ref.identity), strict=True)
    columns = []
    for column in schema.columns:
        values = table.column(column.physical).cast(column.arrow_type).to_pylist()  # instants in UTC, whoever read them
        if column.scalar is None:
            values = parse_texts(values)
        columns.append(values)
    names = [column.name for column in schema.columns]
    rows = zip(*columns, strict=True) if columns else ((),) * table.num_rows
    for identity, values in zip(keys, rows, strict=True):
        row: Row = dict(zip(names, values, strict=True))
        yield identity, row | _keys(schema, identity)


def _keys(schema: TypeSchema, identity: Sequence[str]) -> Row:
    """What a relation's upgrader need not return: the keys of its ends, and its instance key."""
    if schema.ref.kind == "entity":
        return {}
    keys: Row = {"left_key": identity[0], "right_key": identity[1]}
    return keys if schema.instance_key is None else {**keys, schema.instance_key: identity[2]}


def _upgrade(journey: Journey, identity: tuple[str, ...], old: Row, new: set[str]) -> Declared:
    row = dict(old)
    try:
        for leg in journey.legs[:-1]:
            row = _as_read(leg.target, _carry_row(leg, identity, row))
        row = _carry_row(journey.legs[-1], identity, row)
        obj = _build(journey.declaration, row, new)
    except Exception as problem:
        raise MigrationError(
            f"{journey.ref} {'/'.join(identity)!r} cannot be upgraded: {_reason(problem)}. The row is {old!r}"
        ) from problem
    if identity_of(obj) != identity:
        raise MigrationError(
            f"{journey.ref} {'/'.join(identity)!r}: an upgrader must keep the identity of a row, and this one became "
            f"{'/'.join(identity_of(obj))!r}. The row is {old!r}"
        )
    return obj


def _carry_row(leg: Leg, identity: tuple[str, ...], row: Row) -> Row:
    for function in leg.functions:
        row = function(row)
        if not isinstance(row, dict):
            raise TypeError(f"{getattr(function, '__name__', function)} returned {row!r}, not a dict")
        row = _keys(leg.target, identity) | row
    names = dict(leg.change.renamed)
    kept = {name: value for name, value in row.items() if name not in names}  # what has a new name already stays
    row = {names[name]: value for name, value in row.items() if name in names} | kept
    return dict(leg.filled) | {name: value for name, value in row.items() if name not in leg.change.removed}


def _as_read(schema: TypeSchema, row: Row) -> Row:
    """A row on its way as it would be had it been stored in between: what is JSON there has become plain."""
    structured = {column.name for column in schema.columns if column.scalar is None}
    return {name: plain(value) if name in structured else value for name, value in row.items()}


def _build(declaration: Declaration, row: Row, new: set[str]) -> Declared:
    """The row as an object of the class, which validates it and gives new fields their defaults."""
    values = dict(row)
    for name in new - values.keys():
        if declaration.options[name].required and accepts_none(declaration.schema.by_name[name].spec):
            values[name] = None
    return declaration.cls(**values)


def _reason(problem: Exception) -> str:
    if isinstance(problem, pydantic.ValidationError):
        return "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in problem.errors())
    return f"{type(problem).__name__}: {problem}"
