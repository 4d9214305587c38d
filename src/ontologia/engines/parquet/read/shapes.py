"""The shape of a row that was taken out of a file: commit, identity and fields, whatever the file has.

Where removals are among the rows, `superseded_by` stands behind the fields, so that they are known for what they are.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ontologia.model import COMMIT_ID, SUPERSEDED_BY, TypeSchema
from ontologia.query.compiler import Statement
from ontologia.query.in_force import are_removals
from ontologia.query.plan import Plan


def row_shape(schema: TypeSchema, *, removals: bool = False) -> pa.Schema:
    """Commit, identity and fields."""
    fields = [(COMMIT_ID, pa.int64()), *((name, pa.string()) for name in schema.ref.identity)]
    fields += [(column.physical, column.arrow_type) for column in schema.columns]
    return pa.schema([*fields, (SUPERSEDED_BY, pa.int64())] if removals else fields)


def output_names(plan: Plan) -> tuple[str, ...]:
    """The columns of the answer to a plan that asks for rows, as files have them."""
    identity = plan.source.identity if plan.stored or plan.source.kind == "relation" else ()
    return (COMMIT_ID, *identity, *(column.physical for column in plan.schema.columns))


@dataclass(frozen=True, slots=True)
class AnsweredStatement(Statement):
    """A statement that need not run, because its rows are found another way."""

    names: tuple[str, ...]
    """The columns of its outputs, as files have them."""

    @classmethod
    def of(cls, statement: Statement, plan: Plan, **more: Any) -> Self:
        given = {field.name: getattr(statement, field.name) for field in fields(statement)}
        return cls(**given, names=output_names(plan), **more)

    @abstractmethod
    def table(self) -> pa.Table | None:
        """Its rows; None where it has to run after all."""

    def last_resort(self) -> pa.Table | None:
        """Its rows where it ran, and DuckDB had no memory for it."""
        return None

    def explained(self) -> str | None:
        """How the rows are found; None where the statement says it."""
        return None


def stored_names(schema: TypeSchema, metadata: pq.FileMetaData, *, removals: bool = False) -> list[str]:
    """The columns of a row that a file has."""
    there = set(metadata.schema.names)
    return [name for name in row_shape(schema, removals=removals).names if name in there]


def to_shape(schema: TypeSchema, rows: pa.Table, *, removals: bool = False) -> pa.Table:
    """Rows of a file in their shape; what the file has no column for is null."""
    shape = row_shape(schema, removals=removals)
    columns = [
        rows.column(field.name) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in shape
    ]
    return pa.table(columns, names=shape.names).cast(shape)


def without_removals(rows: pa.Table) -> pa.Table:
    """The rows that say that something is there, in the plain shape."""
    return rows.filter(pc.invert(are_removals(rows))).drop_columns([SUPERSEDED_BY])
