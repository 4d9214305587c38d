"""What the data source reads: shares planned on the driver, rows read on executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    InputPartition,
)
from pyspark.sql.types import DataType, StructType

from ontologia.engines.base import Engine
from ontologia.engines.shares import Share
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, Predicate, TypeSchema, commit_column, removed_column
from ontologia.objects import Location
from ontologia.query.compiler import REMOVED
from ontologia.query.in_force import mark_removals
from ontologia.query.plan import Across, Plan, Window
from ontologia.runtime.delta import OPERATION
from ontologia.spark.reading.changes import (
    change_rows,
    change_struct,
    check_one_version,
    check_remembered,
    operation_column,
    up_to,
)
from ontologia.spark.reading.nested import Nested, nested_column, nested_struct, nested_types
from ontologia.spark.types import nullable, result_struct, stored_struct
from ontologia.spark.workers import engine_at, plainly_said, settle


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What the options of a read ask for, resolved against the store once, on the driver."""

    location: Location
    schema: TypeSchema
    window: Window
    head: int
    stored: bool = False
    changes: bool = False
    where: tuple[Predicate, ...] = ()
    across: Across | None = None
    nested: Nested = "json"
    may_lack: bool = False
    """Whether rows can lack fields that the schema requires."""

    @property
    def struct(self) -> StructType:
        if self.stored:
            shown = stored_struct(self.schema, settled=not self.window.deduplicated)
        elif self.changes:
            shown = change_struct(self.schema)
        else:
            shown = result_struct(self.schema, versions=not self.window.deduplicated)
        shown = shown if self.stored else nested_struct(shown, self.nested_types)
        return nullable(shown) if self.may_lack else shown

    @property
    def nested_types(self) -> dict[str, DataType]:
        return {} if self.stored else nested_types(self.schema, self.nested)

    def physical(self, name: str) -> str:
        """The stored name of a column of the result."""
        if self.stored:
            return name
        if not self.window.deduplicated and name == commit_column(self.schema):
            return COMMIT_ID
        if not (self.window.deduplicated or self.changes) and name == removed_column(self.schema):
            return REMOVED
        if self.changes and name == operation_column(self.schema):
            return OPERATION
        column = self.schema.by_name.get(name)
        return name if column is None else column.physical


class SharePartition(InputPartition):
    """One task's share of the rows."""

    def __init__(self, share: Share) -> None:
        super().__init__(share)
        self.share = share


class OntologiaReader(DataSourceReader):
    """Plans shares on the driver, files or ranges of keys, and reads them on executors.

    It takes no filters: Spark keeps a reader for every question to a DataFrame, and with it what it was given for
    one of them. A typed query, or `read` with its `where`, filters where the rows lie.
    """

    def __init__(self, wanted: ReadPlan, schema: StructType) -> None:
        self.wanted = wanted
        self.nullable = {field.name: field.nullable for field in schema}

    @plainly_said()
    def partitions(self) -> Sequence[InputPartition]:
        wanted = self.wanted
        engine = engine_at(wanted.location)
        if wanted.changes:
            check_remembered(engine.catalog(), wanted.schema, wanted.window.commit or 0)
        if wanted.changes and wanted.across is None:
            check_one_version(engine, wanted.schema, wanted.window.commit or 0)
        head = None if wanted.changes else wanted.head
        shares = engine.shares(wanted.schema, wanted.window, head=head, across=wanted.across is not None)
        return [SharePartition(share) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SharePartition)
        with plainly_said():
            for table in self._rows(engine_at(self.wanted.location), partition.share):
                yield from to_batches(self.wanted, table, self.nullable)
        settle()

    def _rows(self, engine: Engine, share: Share) -> Iterator[pa.Table]:
        wanted = self.wanted
        if wanted.changes:
            after = wanted.window.commit or 0
            yield change_rows(engine, wanted.schema, share.keys, after, wanted.head, wanted.across)
            return
        for table in engine.read_share(self._plan(), share):
            yield table if wanted.window.deduplicated else up_to(table, wanted.head)

    def _plan(self) -> Plan:
        schema, window = self.wanted.schema, self.wanted.window
        only = tuple(map(self.wanted.physical, self.nullable))
        if not window.deduplicated:
            only += (COMMIT_ID, REMOVED)
        plan = Plan.of(schema, window, self.wanted.where, stored=True, only=only, unordered=True)
        return plan.change(across=self.wanted.across)


def to_batches(wanted: ReadPlan, table: pa.Table, nullable: Mapping[str, bool]) -> Iterator[pa.RecordBatch]:
    """Stored rows under the names and in the order that Spark was promised, and with None where it was told of it."""
    if REMOVED in table.column_names:
        table = table.append_column(SUPERSEDED_BY, mark_removals(table.column(REMOVED), table.column(COMMIT_ID)))
    columns = {name: table.column(wanted.physical(name)) for name in nullable}
    for name, kind in wanted.nested_types.items():
        if name in columns:
            columns[name] = nested_column(columns[name], kind)
    fields = [pa.field(name, column.type, nullable[name]) for name, column in columns.items()]
    yield from pa.table(list(columns.values()), schema=pa.schema(fields)).to_batches(max_chunksize=131_072)
