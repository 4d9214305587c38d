"""The data source `ontologia`: `spark.read.format("ontologia").option("type", "Customer").load(uri)`.

Spark finds it without registration through the module `pyspark_ontologia`. Tasks read with the engine of the store
and hand over Arrow batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ontologia.engines.parquet.repository import S3Repository
from ontologia.engines.rowwise import RowwiseRepository
from ontologia.errors import ValidationError
from ontologia.model import COMMIT_ID, FieldExpr, Predicate, TypeSchema, commit_column
from ontologia.query.plan import Plan, Window
from ontologia.runtime.store import open_target
from ontologia.spark import reading
from ontologia.spark.splits import KeyRange, cuts_of_files, cuts_of_table, key_ranges
from ontologia.spark.types import result_struct, stored_struct

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options of a read ask for, resolved against the store once, on the driver."""

    uri: str
    schema: TypeSchema
    window: Window
    stored: bool

    @property
    def struct(self) -> StructType:
        if self.stored:
            return stored_struct(self.schema)
        return result_struct(self.schema, versions=not self.window.deduplicated)

    def physical(self, name: str) -> str:
        """The stored name of a column of the result."""
        if self.stored:
            return name
        if name == commit_column(self.schema) and not self.window.deduplicated:
            return COMMIT_ID
        column = self.schema.by_name.get(name)
        return name if column is None else column.physical


@lru_cache(maxsize=16)
def repository_at(uri: str) -> RowwiseRepository:
    """One open repository per store in a worker process, which lives for many tasks."""
    return open_target(uri, None)


class OntologiaSource(DataSource):
    """Types of an ontology, and later frames and graphs, under one format name."""

    @classmethod
    def name(cls) -> str:
        return reading.FORMAT

    def schema(self) -> StructType:
        return self._wanted().struct

    def reader(self, schema: StructType) -> DataSourceReader:
        return OntologiaReader(self._wanted(), schema)

    def _wanted(self) -> Wanted:
        options = self.options
        uri = options.get("path")
        if not uri:
            raise ValidationError('say where the store is: .load("s3://bucket/prefix")')
        if "type" not in options:
            raise ValidationError('say which type: .option("type", "Customer")')
        with open_target(uri, None) as repository:
            _, schema = reading.resolve(repository, options["type"], options.get("kind"))
            moment = options.get("timestampAsOf")
            as_of, since = options.get("asOf") or options.get("versionAsOf"), options.get("since")
            window = reading.window_of(
                repository,
                as_of=None if as_of is None else _number("asOf", as_of),
                timestamp_as_of=None if moment is None else datetime.fromisoformat(moment),
                history=_truth("history", options.get("history", "false")),
                since=None if since is None else _number("since", since),
            )
            if window.mode == "latest":  # every task must read the same state
                window = Window("as_of", repository.get_head_commit_id())
        return Wanted(uri, schema, window, _truth("stored", options.get("stored", "false")))


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValidationError(f"the option {name} takes a commit id, not {text!r}") from None


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValidationError(f"the option {name} is true or false, not {text!r}")
    return text.lower() == "true"


class KeyRangePartition(InputPartition):
    """One task's share."""

    def __init__(self, keys: KeyRange) -> None:
        super().__init__(keys)
        self.keys = keys


class OntologiaReader(DataSourceReader):
    """Plans ranges of keys on the driver, reads them on executors."""

    def __init__(self, wanted: Wanted, schema: StructType) -> None:
        self.wanted = wanted
        self.names = schema.fieldNames()
        self.filters: list[Predicate] = []

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:
        """Take what the engine can answer; Spark evaluates the rest."""
        for filter_ in filters:
            predicate = translated(self.wanted, filter_)
            if predicate is None:
                yield filter_
            else:
                self.filters.append(predicate)

    def partitions(self) -> Sequence[InputPartition]:
        with open_target(self.wanted.uri, None) as repository:
            catalog = repository.catalog()
            layout = catalog.layouts.get(self.wanted.schema.ref)
            if layout is None:
                return [KeyRangePartition(KeyRange())]
            if isinstance(repository, S3Repository):
                files = reading.planned(repository, catalog, layout, self.wanted.window)
                cuts = cuts_of_files(repository, files) if files.files else []
            else:
                cuts = cuts_of_table(repository, catalog, layout, self.wanted.window)
        return [KeyRangePartition(keys) for keys in key_ranges(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, KeyRangePartition)
        schema = self.wanted.schema
        where = (*self.filters, *partition.keys.predicates(schema))
        plan = Plan(schema.ref, {schema.ref: schema}, self.wanted.window, where, stored=True, unordered=True)
        table = repository_at(self.wanted.uri).table(plan)
        chosen = table.select([self.wanted.physical(name) for name in self.names]).rename_columns(self.names)
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
    if name in schema.ref.identity:
        return FieldExpr(schema.ref, name, None)
    if wanted.physical(name) == COMMIT_ID:
        return None
    column = next((item for item in schema.columns if name == (item.physical if wanted.stored else item.name)), None)
    if column is None or column.scalar is None:
        return None
    return FieldExpr(schema.ref, column.name, column)
