"""The data source `ontologia`: `spark.read.format("ontologia").option("type", "Customer").load(uri)`.

Spark finds it without registration through the module `pyspark_ontologia`. Tasks read with the engine of the store
and hand over Arrow batches.
"""

from __future__ import annotations

from contextlib import suppress

from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ontologia.engines.base import Engine
from ontologia.engines.dispatch import open_engine
from ontologia.errors import OntologiaError, ValidationError
from ontologia.objects import Location
from ontologia.query.plan import Window
from ontologia.spark import tables
from ontologia.spark.options import check_options, moment, number, truth
from ontologia.spark.reading import rows as reading
from ontologia.spark.reading.across import ACROSS, MODELS, UPGRADERS, across_from
from ontologia.spark.reading.filters import from_text
from ontologia.spark.reading.nested import check_nested
from ontologia.spark.reading.reader import OntologiaReader, ReadPlan
from ontologia.spark.workers import plainly_said

READ_OPTIONS = (
    *("path", "type", "kind", "asOf", "versionAsOf", "timestampAsOf", "history", "since"),
    *("changes", "maxCommitsPerBatch", "stored", "head", "where", "branch", "settings", tables.COMMENTS),
    "nested",
    *(ACROSS, MODELS, UPGRADERS),
)


class OntologiaSource(DataSource):
    """Types of an ontology and of its graphs, and frames, under one format name.

    Spark makes one for each DataFrame and keeps it. It settles at once which state it shows, so that a DataFrame shows
    one state for good, in self-joins, too, whatever is committed meanwhile.
    """

    def __init__(self, options: dict[str, str]) -> None:
        self._makes_table = tables.is_table(options)
        super().__init__(CaseInsensitiveDict(tables.find_table_options(options)) if self._makes_table else options)
        self._settled: ReadPlan | None = None
        if "frame" not in self.options and "type" in self.options:
            with suppress(OntologiaError):  # it may be meant for a write, and what is wrong is said when it is used
                self._settled = self._plan_read()

    @classmethod
    def name(cls) -> str:
        return reading.FORMAT

    @plainly_said()
    def schema(self) -> StructType:
        struct = self._struct()
        return tables.with_address(struct, self.options) if self._makes_table else struct

    def _struct(self) -> StructType:
        if "frame" in self.options:
            from ontologia.spark.frames import source as frames
            from ontologia.spark.frames.types import struct_of

            check_options(self.options, frames.READ_OPTIONS)
            return struct_of(frames.plan_read(self.options)[0].schema)
        return (self._settled or self._plan_read()).struct

    @plainly_said()
    def reader(self, schema: StructType) -> DataSourceReader:
        is_table = self._find_table(schema)
        if "frame" in self.options:
            from ontologia.spark.frames import source as frames

            check_options(self.options, frames.READ_OPTIONS)
            return frames.FrameReader(self.options, schema)
        wanted = self._settled or self._plan_read()
        has = {field.name: field.dataType for field in wanted.struct}
        for field in schema:
            if field.name not in has:
                altered = f". {tables.ALTERED}" if is_table else ""
                raise ValidationError(
                    f"{wanted.schema.ref} has no column {field.name!r}; it has {', '.join(has)}{altered}"
                )
            if field.dataType != has[field.name]:
                found, asked = has[field.name].simpleString(), field.dataType.simpleString()
                raise ValidationError(f"{wanted.schema.ref}.{field.name} is {found}, not {asked}: read it so, and cast")
        return OntologiaReader(wanted, schema)

    @plainly_said()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if "path" not in self.options:
            raise ValidationError(tables.WRITE)
        if "frame" in self.options:
            from ontologia.spark.frames import source as frames

            check_options(self.options, frames.WRITE_OPTIONS)
            return frames.FrameWriter(self.options, overwrite)
        from ontologia.spark.writing.plan import META, WRITE_OPTIONS, plan_write
        from ontologia.spark.writing.writer import OntologiaWriter

        check_options(self.options, WRITE_OPTIONS, prefix=META)
        return OntologiaWriter(plan_write(self.options, schema, overwrite=overwrite))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from ontologia.spark.streaming.source import MAX_COMMITS, ChangeStreamReader, RefusedStream

        limit = self.options.get(MAX_COMMITS)
        try:
            return ChangeStreamReader(self._plan_read(), schema, None if limit is None else number(MAX_COMMITS, limit))
        except OntologiaError as problem:
            return RefusedStream(problem)

    @plainly_said()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from ontologia.spark.streaming.sink import SINK_OPTIONS, OntologiaStreamWriter, stream_of
        from ontologia.spark.writing.plan import META, plan_write

        check_options(self.options, SINK_OPTIONS, prefix=META)
        if overwrite:
            raise ValidationError('a stream adds to a store: write it with .outputMode("append")')
        return OntologiaStreamWriter(plan_write(self.options, schema, overwrite=overwrite), stream_of(self.options))

    def _find_table(self, schema: StructType) -> bool:
        """Take the options of a table from its columns, where Spark does not say them: it never does for a table.

        Options that are given beside a table's name are refused. Spark mixes them up with those of another mention of
        the table in the same statement.
        """
        if "path" in self.options:
            return False
        address = tables.address_of(schema)
        if not address:
            raise ValidationError(f"nothing says where the rows of this table are: {tables.HOW}")
        if self.options:
            raise ValidationError(
                f"a table takes no options, and was given {', '.join(self.options)}: for the state of a commit, attach "
                "the store under another name with ontologia.spark.attach(spark, uri, name, as_of=…)"
            )
        self.options = CaseInsensitiveDict(address)
        return True

    def _plan_read(self) -> ReadPlan:
        options = self.options
        check_options(options, READ_OPTIONS)
        uri = options.get("path")
        if not uri:
            raise ValidationError('say where the store is: .load("s3://bucket/prefix")')
        if "type" not in options:
            raise ValidationError('say which type: .option("type", "Customer")')
        location = reading.existing(Location.from_text(uri, options.get("settings"), options.get("branch")))
        with open_engine(location) as engine:
            _, schema = reading.resolve(engine, options["type"], options.get("kind"))
            window = self._window(engine)
            head = engine.catalog().head
            if "head" in options:  # of the DataFrame that this one is a part of
                head = min(head, number("head", options["head"]))
            if window.mode == "latest":  # every task must read the same state
                window = Window("as_of", head)
            location, may_lack = engine.location, engine.capabilities.read_only
        changes = truth("changes", options.get("changes", "false"))
        stored = truth("stored", options.get("stored", "false"))
        across = across_from(options) if truth(ACROSS, options.get(ACROSS, "false")) else None
        where = from_text(options.get("where", "[]"), schema)
        nested = check_nested(options.get("nested", "json"))
        return ReadPlan(location, schema, window, head, stored, changes, where, across, nested, may_lack)

    def _window(self, engine: Engine) -> Window:
        options = self.options
        as_of, since = options.get("asOf") or options.get("versionAsOf"), options.get("since")
        at = options.get("timestampAsOf")
        window = reading.window_of(
            engine,
            as_of=None if as_of is None else number("asOf", as_of),
            timestamp_as_of=None if at is None else moment("timestampAsOf", at),
            history=truth("history", options.get("history", "false")),
            since=None if since is None else number("since", since),
        )
        if not truth("changes", options.get("changes", "false")):
            return window
        if window.mode == "as_of":
            raise ValidationError("changes are what happened since a commit: they have no state as of one")
        return Window("since", window.commit or 0)
