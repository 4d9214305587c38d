"""Rows, carried over from the version they are stored in to the one in code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pydantic

from ontologia.engines.base import Transaction
from ontologia.engines.catalog import TypeLayout
from ontologia.errors import MigrationError
from ontologia.model import Declared, TypeRef, TypeSchema
from ontologia.model.typespec import accepts_none
from ontologia.runtime.migration.planning import Step
from ontologia.runtime.rows import identity_of, table_of, transposed
from ontologia.runtime.upgraders import Row, Upgrader, Upgraders

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 10_000
MOST_NAMED = 20  #: rows that an error names


def rewrite_rows(transaction: Transaction, step: Step, upgraders: Upgraders) -> int:
    """Bring the latest state of a type into its new version. Returns how many rows there were."""
    old = list(transaction.scan(step.ref))
    layout = open_target(transaction, step)
    return carry_over(transaction, layout, step, old, upgraders)


def open_target(transaction: Transaction, step: Step) -> TypeLayout:
    """Where rows go: the new version of a type, or, where it has another name now, the type that takes its place."""
    if step.new_ref == step.ref:
        return transaction.activate(step.declaration.schema, step.target)
    layout = transaction.activate(step.declaration.schema)
    transaction.drop(step.ref, purge=False)
    return layout


def carry_over(
    transaction: Transaction,
    layout: TypeLayout,
    step: Step,
    stored: Sequence[tuple[int, pa.Table]],
    upgraders: Upgraders,
) -> int:
    """Append stored rows in their new version; how many. Rows that cannot be upgraded are all named, or counted."""
    rows, failures = 0, Failures(step.ref)
    for version, table in stored:
        for start in range(0, table.num_rows, ROWS_AT_ONCE):
            upgraded = upgraded_rows(step, version, table.slice(start, ROWS_AT_ONCE), upgraders, failures)
            transaction.append(layout, upgraded)
            rows += upgraded.num_rows
    failures.raise_any()
    return rows


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


def upgraded_rows(
    step: Step, version: int, table: pa.Table, upgraders: Upgraders, failures: Failures | None = None
) -> pa.Table:
    """Stored rows of one version, carried over and validated. Those that fail are left to `failures`, or raised."""
    chain = _chain(step, version, upgraders)
    upgraded, failed = [], failures or Failures(step.ref)
    for identity, row in _stored_rows(step.versions[version], table):
        try:
            upgraded.append(_upgraded(step, identity, row, chain))
        except MigrationError as problem:
            failed.add(problem)
    if failures is None:
        failed.raise_any()
    identities = transposed([identity for identity, _ in upgraded], len(step.ref.identity))
    columns = [[obj.__dict__[name] for _, obj in upgraded] for name in step.declaration.schema.names]
    return table_of(step.declaration, identities, columns)


def _chain(step: Step, version: int, upgraders: Upgraders) -> list[Upgrader]:
    name = step.ref.name
    return [upgraders[name, number] for number in range(version, step.target) if (name, number) in upgraders]


def _stored_rows(schema: TypeSchema, table: pa.Table) -> Iterator[tuple[tuple[str, ...], Row]]:
    """Rows as an upgrader sees them: fields by name, a relation's endpoints and instance key among them."""
    keys = zip(*(table.column(name).to_pylist() for name in schema.ref.identity), strict=True)
    columns = []
    for column in schema.columns:
        values = table.column(column.physical).cast(column.arrow_type).to_pylist()  # instants in UTC, whoever read them
        if column.scalar is None:
            values = [None if text is None else json.loads(text) for text in values]
        columns.append(values)
    names = [column.name for column in schema.columns]
    rows = zip(*columns, strict=True) if columns else ((),) * table.num_rows
    for identity, values in zip(keys, rows, strict=True):
        row: Row = dict(zip(names, values, strict=True))
        if schema.ref.kind == "relation":
            row |= {"left_key": identity[0], "right_key": identity[1]}
            if schema.instance_key is not None:
                row[schema.instance_key] = identity[2]
        yield identity, row


def _upgraded(
    step: Step, identity: tuple[str, ...], old: Row, chain: Sequence[Upgrader]
) -> tuple[tuple[str, ...], Declared]:
    row = dict(old)
    try:
        for function in chain:
            row = function(row)
            if not isinstance(row, dict):
                raise TypeError(f"{getattr(function, '__name__', function)} returned {row!r}, not a dict")
            row = _keys_of(step, identity) | row
        obj = _built(step, _under_new_names(step, row))
    except Exception as problem:
        raise MigrationError(
            f"{step.ref} {'/'.join(identity)!r} cannot be upgraded: {_reason(problem)}. The row is {old!r}"
        ) from problem
    if identity_of(obj) != identity:
        raise MigrationError(
            f"{step.ref} {'/'.join(identity)!r}: an upgrader must keep the identity of a row, and this one became "
            f"{'/'.join(identity_of(obj))!r}. The row is {old!r}"
        )
    return identity, obj


def _keys_of(step: Step, identity: tuple[str, ...]) -> Row:
    """What a relation's upgrader need not return: the keys of its ends, and its instance key."""
    if step.ref.kind == "entity":
        return {}
    keys: Row = {"left_key": identity[0], "right_key": identity[1]}
    if step.declaration.instance_key is not None:
        keys[step.declaration.instance_key] = identity[2]
    return keys


def _under_new_names(step: Step, row: Row) -> Row:
    """Values under the names that the class has for them; what an upgrader gave a new name already stays."""
    names = dict(step.difference.renamed)
    kept = {name: value for name, value in row.items() if name not in names}
    return {names[name]: value for name, value in row.items() if name in names} | kept


def _built(step: Step, row: Row) -> Declared:
    """The upgraded row as an object of the class, which validates it. Fields the class gave up are left out."""
    declaration = step.declaration
    values = {name: value for name, value in row.items() if name not in step.difference.removed}
    for name in step.difference.added:
        needed = name not in values and declaration.options[name].required
        if needed and accepts_none(declaration.schema.by_name[name].spec):
            values[name] = None
    return declaration.cls(**values)


def _reason(problem: Exception) -> str:
    if isinstance(problem, pydantic.ValidationError):
        return "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in problem.errors())
    return f"{type(problem).__name__}: {problem}"
