"""The data source `ontologia`: `spark.read.format("ontologia").option("type", "Customer").load(uri)`.

Spark finds it without registration through the module `pyspark_ontologia`. Tasks read with the engine of the store
and hand over Arrow batches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from ontologia.engines.base import output_schema
from ontologia.engines.parquet.engine import S3Repository
from ontologia.engines.parquet.read.relation import FilesRelation
from ontologia.engines.parquet.read.scan import Scan, rows_in_force
from ontologia.engines.rowwise import RowwiseRepository
from ontologia.engines.shares import range_predicates
from ontologia.errors import ValidationError
from ontologia.files.duck import BATCH_ROWS
from ontologia.files.key_ranges import KeyRange, key_ranges
from ontologia.model import COMMIT_ID, FieldExpr, Predicate, TypeSchema, commit_column
from ontologia.query.plan import Plan, Window
from ontologia.runtime.delta import OPERATION
from ontologia.runtime.store import open_target
from ontologia.spark import reading
from ontologia.spark.changes import change_rows, change_struct, operation_column, up_to
from ontologia.spark.splits import cuts_of_files, cuts_of_table, file_shares
from ontologia.spark.types import result_struct, stored_struct
from ontologia.spark.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa

READ_OPTIONS = (
    *("path", "type", "kind", "asOf", "versionAsOf", "timestampAsOf", "history", "since"),
    *("changes", "maxCommitsPerBatch", "stored"),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options of a read ask for, resolved against the store once, on the driver."""

    uri: str
    schema: TypeSchema
    window: Window
    head: int
    stored: bool = False
    changes: bool = False

    @property
    def struct(self) -> StructType:
        if self.stored:
            return stored_struct(self.schema)
        if self.changes:
            return change_struct(self.schema)
        return result_struct(self.schema, versions=not self.window.deduplicated)

    def physical(self, name: str) -> str:
        """The stored name of a column of the result."""
        if self.stored:
            return name
        if name == commit_column(self.schema) and not self.window.deduplicated:
            return COMMIT_ID
        if self.changes and name == operation_column(self.schema):
            return OPERATION
        column = self.schema.by_name.get(name)
        return name if column is None else column.physical


def repository_at(uri: str) -> RowwiseRepository:
    """One open repository per store in a worker process, which lives for many tasks: longer than a file may."""
    found = None if "://" in uri or not os.path.exists(uri) else os.stat(uri)
    return _opened(uri, None if found is None else (found.st_dev, found.st_ino))


@lru_cache(maxsize=16)
def _opened(uri: str, file: tuple[int, int] | None) -> RowwiseRepository:
    return open_target(uri, None)


class OntologiaSource(DataSource):
    """Types of an ontology, and later frames and graphs, under one format name."""

    @classmethod
    def name(cls) -> str:
        return reading.FORMAT

    def schema(self) -> StructType:
        return self._wanted().struct

    def reader(self, schema: StructType) -> DataSourceReader:
        wanted = self._wanted()
        has = {field.name: field.dataType for field in wanted.struct}
        for field in schema:
            if field.name not in has:
                raise ValidationError(f"{wanted.schema.ref} has no column {field.name!r}; it has {', '.join(has)}")
            if field.dataType != has[field.name]:
                found, asked = has[field.name].simpleString(), field.dataType.simpleString()
                raise ValidationError(f"{wanted.schema.ref}.{field.name} is {found}, not {asked}: read it so, and cast")
        return OntologiaReader(wanted, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ontologia.spark.writing import META, WRITE_OPTIONS, OntologiaWriter, plan_write

        check_options(self.options, WRITE_OPTIONS, prefix=META)
        return OntologiaWriter(plan_write(self.options, schema, overwrite=overwrite))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from ontologia.spark.streams import MAX_COMMITS, ChangeStreamReader

        limit = self.options.get(MAX_COMMITS)
        return ChangeStreamReader(self._wanted(), schema, None if limit is None else number(MAX_COMMITS, limit))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from ontologia.spark.streams import SINK_OPTIONS, OntologiaStreamWriter, stream_of
        from ontologia.spark.writing import META, plan_write

        check_options(self.options, SINK_OPTIONS, prefix=META)
        return OntologiaStreamWriter(plan_write(self.options, schema, overwrite=overwrite), stream_of(self.options))

    def _wanted(self) -> Wanted:
        options = self.options
        check_options(options, READ_OPTIONS)
        uri = options.get("path")
        if not uri:
            raise ValidationError('say where the store is: .load("s3://bucket/prefix")')
        if "type" not in options:
            raise ValidationError('say which type: .option("type", "Customer")')
        reading.check_exists(uri)
        with open_target(uri, None) as repository:
            _, schema = reading.resolve(repository, options["type"], options.get("kind"))
            window = self._window(repository)
            head = repository.get_head_commit_id()
            if window.mode == "latest":  # every task must read the same state
                window = Window("as_of", head)
            where = reading.uri_of(repository)
        changes = _truth("changes", options.get("changes", "false"))
        return Wanted(where, schema, window, head, _truth("stored", options.get("stored", "false")), changes)

    def _window(self, repository: RowwiseRepository) -> Window:
        options = self.options
        as_of, since = options.get("asOf") or options.get("versionAsOf"), options.get("since")
        moment = options.get("timestampAsOf")
        window = reading.window_of(
            repository,
            as_of=None if as_of is None else number("asOf", as_of),
            timestamp_as_of=None if moment is None else _moment("timestampAsOf", moment),
            history=_truth("history", options.get("history", "false")),
            since=None if since is None else number("since", since),
        )
        if not _truth("changes", options.get("changes", "false")):
            return window
        if window.mode == "as_of":
            raise ValidationError("changes are what happened since a commit: they have no state as of one")
        return Window("since", window.commit or 0)


def check_options(options: Mapping[str, str], known: Sequence[str], *, prefix: str | None = None) -> None:
    """An option that nobody reads is a mistake: a misspelt one would silently change what is read or written."""
    taken = {name.lower() for name in known}
    for name in options:
        if name.lower() not in taken and not (prefix and name.lower().startswith(prefix)):
            raise ValidationError(f"there is no option {name!r}; there are {', '.join(known)}")


def number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValidationError(f"the option {name} takes a commit id, not {text!r}") from None


def _moment(name: str, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValidationError(f"the option {name} takes a time such as 2026-01-31T12:00:00, not {text!r}") from None


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValidationError(f"the option {name} is true or false, not {text!r}")
    return text.lower() == "true"


class KeyRangePartition(InputPartition):
    """One task's share: the rows of a range of keys."""

    def __init__(self, keys: KeyRange) -> None:
        super().__init__(keys)
        self.keys = keys


class FilesPartition(InputPartition):
    """One task's share: the rows of some files."""

    def __init__(self, files: Scan) -> None:
        super().__init__(files)
        self.files = files


class OntologiaReader(DataSourceReader):
    """Plans shares on the driver, files or ranges of keys, and reads them on executors."""

    def __init__(self, wanted: Wanted, schema: StructType) -> None:
        self.wanted = wanted
        self.names = schema.fieldNames()
        self.filters: list[Predicate] = []

    @property
    def pushFilters(self) -> Any:
        return _Pushing(self)

    def push(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:
        """Take what the engine can answer; Spark evaluates the rest."""
        for filter_ in filters:
            # Whether a row is an insert depends on the versions before it, so none may be filtered away first.
            predicate = None if self.wanted.changes else translated(self.wanted, filter_)
            if predicate is None:
                yield filter_
            else:
                self.filters.append(predicate)

    def partitions(self) -> Sequence[InputPartition]:
        wanted = self.wanted
        return split(wanted.uri, wanted.schema, wanted.window, None if wanted.changes else wanted.head)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        repository = repository_at(self.wanted.uri)
        if isinstance(partition, FilesPartition):
            assert isinstance(repository, S3Repository)
            tables = self._as_stored(repository, partition.files) or rows_of_files(
                repository, self._plan(), partition.files
            )
        else:
            assert isinstance(partition, KeyRangePartition)
            tables = iter([self._rows(repository, partition.keys)])
        for table in tables:
            yield from shown(self.wanted, table, self.names)
        settle()

    def _as_stored(self, repository: S3Repository, files: Scan) -> Iterator[pa.Table] | None:
        """All rows of files without asking the engine, which is quicker where there is nothing to ask."""
        wanted = self.wanted
        if self.filters or not wanted.window.deduplicated:
            return None
        names = list(map(wanted.physical, self.names))
        return rows_in_force(repository.reader, files, names, KeyRange(), wanted.schema.ref.identity[0])

    def _rows(self, repository: RowwiseRepository, keys: KeyRange) -> pa.Table:
        wanted, window = self.wanted, self.wanted.window
        if wanted.changes:
            return change_rows(repository, wanted.schema, keys, window.commit or 0, wanted.head)
        table = repository.table(self._plan(*range_predicates(wanted.schema, keys)))
        return table if window.deduplicated else up_to(table, wanted.head)

    def _plan(self, *where: Predicate) -> Plan:
        schema, window = self.wanted.schema, self.wanted.window
        only = tuple(map(self.wanted.physical, self.names))
        if not window.deduplicated:
            only += (COMMIT_ID,)
        where = (*self.filters, *where)
        return Plan(schema.ref, {schema.ref: schema}, window, where, stored=True, only=only, unordered=True)


def rows_of_files(repository: S3Repository, plan: Plan, files: Scan) -> Iterator[pa.Table]:
    """The answer to a plan from these files alone, a batch at a time."""
    import pyarrow as pa

    with repository.reader.places(files.files) as places:
        relation = FilesRelation(plan.source, files, places)
        statement = repository._statement(plan, {plan.source: relation})
        schema = output_schema(statement)
        with repository.duck.cursor() as cursor:
            for batch in cursor.execute(statement.sql, statement.parameters(plan)).to_arrow_reader(BATCH_ROWS):
                yield pa.Table.from_batches([batch]).rename_columns(schema.names).cast(schema)


class _Pushing:
    """`pushFilters`, in a form that Spark accepts with filter pushdown off, which is its default.

    It refuses readers that override the method while it is off, and looks at `__func__` to tell. With pushdown on it
    calls whatever is there.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: OntologiaReader) -> None:
        self.reader = reader

    def __call__(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:
        return self.reader.push(filters)


def split(uri: str, schema: TypeSchema, window: Window, head: int | None = None) -> list[InputPartition]:
    """The rows of a window, up to a head if it is given, in shares: files as they are, where that can be."""
    with open_target(uri, None) as repository:
        catalog = repository.catalog()
        layout = catalog.layouts.get(schema.ref)
        if layout is None:
            return [KeyRangePartition(KeyRange())]
        if isinstance(repository, S3Repository):
            files = reading.planned(repository, catalog, layout, window)
            shares = None if head is None else file_shares(files, window, head)
            if shares is not None:
                return [FilesPartition(share) for share in shares]
            cuts = cuts_of_files(repository, files.entries, schema.ref.identity[0])
        else:
            cuts = cuts_of_table(repository, catalog, layout, window)
    return [KeyRangePartition(keys) for keys in key_ranges(cuts)]


def shown(wanted: Wanted, table: pa.Table, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Stored rows under the names and in the order that Spark was promised."""
    import pyarrow as pa

    chosen = pa.table([table.column(wanted.physical(name)) for name in names], names=list(names))
    yield from chosen.to_batches(max_chunksize=131_072)


def translated(wanted: Wanted, filter_: Any) -> Predicate | None:
    """A filter of Spark's as one of ours; None where we have no exact equivalent."""
    if isinstance(filter_, datasource.Not):
        inner = translated(wanted, filter_.child)
        return None if inner is None else ~inner
    attribute = getattr(filter_, "attribute", None)
    if attribute is None or len(attribute) != 1:
        return None
    field = _field(wanted, attribute[0])
    if field is None:
        return None
    value = getattr(filter_, "value", None)
    match filter_:
        case datasource.IsNull():
            return field.is_null()
        case datasource.IsNotNull():
            return field.is_not_null()
        case datasource.In() if all(item is not None for item in filter_.value):
            return field.in_(filter_.value)
    if value is None:
        return None
    if isinstance(value, bool):
        return (field.is_true() if value else field.is_false()) if isinstance(filter_, datasource.EqualTo) else None
    compare: dict[type[Any], Callable[[Any], Predicate]] = {
        datasource.EqualTo: field.__eq__,
        datasource.GreaterThan: field.__gt__,
        datasource.GreaterThanOrEqual: field.__ge__,
        datasource.LessThan: field.__lt__,
        datasource.LessThanOrEqual: field.__le__,
        datasource.StringStartsWith: field.startswith,
        datasource.StringEndsWith: field.endswith,
        datasource.StringContains: field.contains,
    }
    test = compare.get(type(filter_))
    return None if test is None else test(value)


def _field(wanted: Wanted, name: str) -> FieldExpr[Any] | None:
    schema = wanted.schema
    if name in schema.ref.identity and (wanted.stored or schema.ref.kind == "relation"):
        return FieldExpr(schema.ref, name, None)
    if wanted.physical(name) == COMMIT_ID:
        return None
    column = next((item for item in schema.columns if name == (item.physical if wanted.stored else item.name)), None)
    if column is None or column.scalar is None:
        return None
    return FieldExpr(schema.ref, column.name, column)
