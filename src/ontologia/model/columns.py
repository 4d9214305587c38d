"""How a field is stored: one table for SQLite, Parquet/Arrow and Spark (RFC 0009 §5).

Every engine takes its column types from here, so that a value has one meaning wherever it lies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ontologia.model.typespec import TypeSpec, render, scalar_of

if TYPE_CHECKING:
    import pyarrow as pa

ENTITY_IDENTITY = ("entity_key",)
RELATION_IDENTITY = ("left_key", "right_key", "instance_key")
COMMIT_ID = "commit_id"
SCHEMA_VERSION_ID = "schema_version_id"
SUPERSEDED_BY = "superseded_by"
"""The commit that superseded a row, where a file or table says so; null for a row in force. A row that says that
something was removed keeps the values it had, and is superseded by its own commit."""

# Names a data table or file uses itself. A field of the same name is stored under another one (see `layout`).
SYSTEM_COLUMNS = frozenset(
    (
        *ENTITY_IDENTITY,
        *RELATION_IDENTITY,
        COMMIT_ID,
        SCHEMA_VERSION_ID,
        "entity_type",
        "relation_type",
        "fields_json",
        SUPERSEDED_BY,
        "rowid",
        "_rowid_",
        "oid",
    )
)


@dataclass(frozen=True, slots=True)
class StorageType:
    """One row of the mapping: the same scalar in each of the systems we write."""

    sqlite: str
    arrow: str
    spark: str


SCALARS: dict[str, StorageType] = {
    "str": StorageType("TEXT", "string", "string"),
    "int": StorageType("INTEGER", "int64", "bigint"),
    "float": StorageType("REAL", "float64", "double"),
    "bool": StorageType("INTEGER", "bool", "boolean"),
    "datetime": StorageType("TEXT", "timestamp", "timestamp"),
    "date": StorageType("TEXT", "date32", "date"),
    "bytes": StorageType("BLOB", "binary", "binary"),
}
JSON = StorageType("TEXT", "string", "string")


@dataclass(frozen=True, slots=True)
class Column:
    """A field's place in a table: its name there, and the scalar it holds, or None for JSON text."""

    name: str
    physical: str
    scalar: str | None
    nullable: bool
    spec: TypeSpec

    def __hash__(self) -> int:
        return hash((self.name, self.physical, self.scalar))

    @property
    def storage(self) -> Literal["scalar", "json"]:
        return "json" if self.scalar is None else "scalar"

    @property
    def storage_type(self) -> StorageType:
        return JSON if self.scalar is None else SCALARS[self.scalar]

    @property
    def sqlite_type(self) -> str:
        return self.storage_type.sqlite

    @property
    def spark_type(self) -> str:
        return self.storage_type.spark

    @property
    def arrow_type(self) -> pa.DataType:
        return arrow_type(self.storage_type.arrow)

    def describe(self) -> str:
        return render(self.spec)


def arrow_type(name: str) -> pa.DataType:
    import pyarrow as pa

    if name == "timestamp":
        return pa.timestamp("us", tz="UTC")
    factory = {"bool": "bool_"}.get(name, name)
    return getattr(pa, factory)()


def layout(specs: Iterable[tuple[str, TypeSpec]]) -> tuple[Column, ...]:
    """Columns for fields, in the order given.

    Column names ignore case in SQLite, DuckDB and Spark, and some are taken by the storage itself. A field whose name
    would collide is stored as `name__2`, `name__3`, …; the choice depends on the set of names, not on their order.
    """
    pairs = list(specs)
    taken = {name.casefold() for name in SYSTEM_COLUMNS}
    physical: dict[str, str] = {}
    for name in sorted(name for name, _ in pairs):
        candidate, number = name, 1
        while candidate.casefold() in taken:
            number += 1
            candidate = f"{name}__{number}"
        taken.add(candidate.casefold())
        physical[name] = candidate
    return tuple(_column(name, physical[name], spec) for name, spec in pairs)


def _column(name: str, physical: str, spec: TypeSpec) -> Column:
    scalar, nullable = scalar_of(spec)
    return Column(name, physical, scalar, nullable or scalar is None, spec)


def identity_of(kind: str) -> tuple[str, ...]:
    return ENTITY_IDENTITY if kind == "entity" else RELATION_IDENTITY


def arrow_schema(kind: str, columns: Sequence[Column]) -> pa.Schema:
    """Identity, commit, version, then fields: the shape of a type's rows in every engine."""
    import pyarrow as pa

    fields: list[Any] = [pa.field(name, pa.string(), nullable=False) for name in identity_of(kind)]
    fields += [pa.field(name, pa.int64(), nullable=False) for name in (COMMIT_ID, SCHEMA_VERSION_ID)]
    fields += [pa.field(column.physical, column.arrow_type, nullable=column.nullable) for column in columns]
    return pa.schema(fields)
