"""Types as tables of Spark's catalog, so that SQL, BI tools and joins need no options.

Spark hands a table's options to a Python source when the table is made, and never again. What comes back with every
question is the table's columns, with what is noted at them. So a table's address is noted at its first column.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from ontologia.config import OntologiaConfig
from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog
from ontologia.engines.dispatch import open_engine
from ontologia.errors import ValidationError
from ontologia.model import TypeRef
from ontologia.objects import Location
from ontologia.query.plan import LATEST, Window
from ontologia.spark.comments import comment_of, field_comments
from ontologia.spark.reading.nested import Nested, check_nested
from ontologia.spark.types import quote_name, quote_text

ADDRESS, COMMENTS = "ontologia", "comments"
MARK = "ontologia.uri"
"""The property of a view that says whose files it shows."""
EXECUTION, OUTERMOST = "spark.sql.execution.id", "spark.sql.execution.root.id"
DETAILS = "# Detailed Table Information"
VIEWS: dict[str, dict[str, str]] = {"": {}, "_history": {"history": "true"}, "_changes": {"changes": "true"}}
"""What there is of each type, by the end of the table's name."""
HOW = (
    "make a table with CREATE TABLE name USING ontologia OPTIONS (path '…', type '…'), without columns, or with "
    "ontologia.spark.attach"
)
WRITE = (
    "Spark does not tell a source of Python which table rows go to, so none are written by a table's name: write them "
    "with df.write.format('ontologia').option('type', …).mode('append').save(uri), and " + HOW
)

ALTERED = (
    "ALTER TABLE changes the table in Spark's catalog alone: drop the table and make it again, and add a field by a "
    "migration"
)


def attach(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Location,
    name: str,
    *,
    as_of: int | None = None,
    types: Iterable[type[Any]] = (),
    nested: Nested = "json",
    config: OntologiaConfig | None = None,
) -> list[str]:
    """Make every type of a store a table in the schema `name`, and its history and its changes, too.

    The docstrings of `types`, classes of the store, become the comments of their tables and columns. `nested` says how
    structured fields come, as in `read`.

    All tables show one commit, the latest or that of `as_of`, until the store is attached again: so SQL travels in time
    by the name of a schema. Where Spark reads the files of the store itself, they are views of these: it reads the
    columns and row groups that a question needs, and knows their sizes. Returns the names of the tables.

    >>> attach(spark, "s3://bucket/onto", "shop")                             # doctest: +SKIP
    >>> attach(spark, "s3://bucket/onto", "shop_12", as_of=12)                # doctest: +SKIP
    >>> spark.sql("SELECT id FROM shop.Customer EXCEPT SELECT id FROM shop_12.Customer")   # doctest: +SKIP
    """
    from ontologia.spark.failures import explain_failures
    from ontologia.spark.reading.rows import existing

    check_nested(nested)
    classes = {cls.__declaration__.ref: cls for cls in types}
    made = []
    with (
        open_engine(existing(Location.of(uri, config))) as engine,
        explain_failures(f"attaching {engine.location.uri}"),
    ):
        catalog = engine.catalog()
        store = AttachedStore(spark, engine, catalog, nested)
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quote_name(name)}")
        views = VIEWS if as_of is None else {"": {"asOf": str(as_of)}}
        for table, ref in _name_tables(sorted(catalog.layouts, key=str)):
            for ending, more in views.items():
                full = f"{quote_name(name)}.{quote_name(table + ending)}"
                _make_way(spark, full)
                store.make(full, ref, more, classes.get(ref))
                made.append(f"{name}.{table}{ending}")
    return made


@dataclass(frozen=True, slots=True)
class AttachedStore:
    """A store at one commit, whose types become tables: views of the files where Spark reads them itself."""

    spark: SparkSession
    engine: Engine
    catalog: Catalog
    nested: Nested

    def make(self, table: str, ref: TypeRef, options: Mapping[str, str], cls: type[Any] | None) -> None:
        from ontologia.spark.reading.views import select_from_files

        said = None if cls is None else comment_of(cls)
        noted = {} if cls is None else field_comments(cls)
        window = self._window(options)
        rows = None
        if window is not None and self.nested == "json" and not self.engine.capabilities.read_only:
            rows = select_from_files(self.spark, self.engine, self.catalog, ref, window)
        if rows is None:
            self._make_table(table, ref, options, said, noted)
            return
        columns = ", ".join(
            quote_name(name) + (f" COMMENT {quote_text(noted[name])}" if name in noted else "") for name in rows.names
        )
        comment = "" if said is None else f" COMMENT {quote_text(said)}"
        mark = f" TBLPROPERTIES ({quote_text(MARK)} = {quote_text(self.engine.location.uri)})"
        self.spark.sql(f"CREATE VIEW {table} ({columns}){comment}{mark} AS {rows.text}")

    def _window(self, options: Mapping[str, str]) -> Window | None:
        """What a view shows; None for changes, which files do not have."""
        if "changes" in options:
            return None
        if "history" in options:
            return Window("history")
        return Window("as_of", int(options["asOf"])) if "asOf" in options else LATEST

    def _make_table(
        self, table: str, ref: TypeRef, options: Mapping[str, str], said: str | None, noted: Mapping[str, str]
    ) -> None:
        """A table over the Python source, which is pinned to the same commit."""
        from ontologia.spark.reading.rows import FORMAT

        location = self.engine.location
        given = {"uri": location.uri, "settings": location.settings_text(), "nested": self.nested}
        given |= {"type": ref.name, "kind": ref.kind, "head": str(self.catalog.head), **options}
        if location.branch is not None:
            given["branch"] = location.branch
        if noted:
            given[COMMENTS] = json.dumps(noted)
        create: Any = self.spark.catalog.createTable
        create(table, path=_place(location.uri), source=FORMAT, description=said, **given)


def _name_tables(refs: Iterable[TypeRef]) -> Iterator[tuple[str, TypeRef]]:
    """What tables are called: as their types, but for signs and cases that Spark's catalog does not tell apart."""
    taken: set[str] = set()
    for ref in refs:
        plain = re.sub(r"\W", "_", ref.name, flags=re.ASCII)
        found = next(
            candidate
            for candidate in (plain, f"{plain}_{ref.kind}", *(f"{plain}_{number}" for number in range(2, 10_000)))
            if not {(candidate + ending).lower() for ending in VIEWS} & taken
        )
        taken |= {(found + ending).lower() for ending in VIEWS}
        yield found, ref


def _make_way(spark: SparkSession, table: str) -> None:
    """Drop the table of an earlier time; one of somebody else is not ours to drop."""
    if not spark.catalog.tableExists(table):
        return
    if not _is_ours(spark, table):
        raise ValidationError(f"{table} is there already, and no table of ontologia: attach under another name")
    spark.sql(f"DROP {'VIEW' if _is_view(spark, table) else 'TABLE'} {table}")


def _is_ours(spark: SparkSession, table: str) -> bool:
    """Whether a table has an address, and is not a view or a copy of one that has: what is noted at columns goes along.

    Spark tells who provides the rows of its own tables and of most others, and not of those of Python.
    """
    from ontologia.spark.reading.rows import FORMAT

    if _is_view(spark, table):
        return any(row.key == MARK for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect())
    rows = [(row.col_name, row.data_type) for row in spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()]
    names = [name for name, _ in rows]
    said = dict(rows[names.index(DETAILS) :] if DETAILS in names else [])  # behind the columns, which have any name
    is_table = said.get("Type") != "VIEW" and said.get("Provider", FORMAT) == FORMAT
    return is_table and bool(address_of(spark.table(table).schema))


def _is_view(spark: SparkSession, table: str) -> bool:
    return spark.catalog.getTable(table).tableType == "VIEW"


def _place(uri: str) -> str:
    """A place for the catalog, which has to name one; what is read is at `uri`."""
    return uri if "://" in uri else os.path.abspath(uri)


def find_table_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that somebody gave to a table that is being made, among all that Spark says of it."""
    given = {name[len("option.") :]: text for name, text in options.items() if name.startswith("option.")}
    place = given.pop("path", options.get("path", ""))
    if place and "uri" not in given:
        given["path"] = _as_given(place)
    elif "uri" in given:
        given["path"] = given.pop("uri")
    return given


def _as_given(place: str) -> str:
    """Spark says `file:/x` of a directory that was given as `file:///x`, and of a file that was given as `/x`."""
    if not place.startswith("file:/") or place.startswith("file://"):
        return place
    path = place.removeprefix("file:")
    return path if os.path.isfile(path) else f"file://{path}"


def check_no_table_is_made() -> None:
    """Refuse, in a task, rows of a `saveAsTable` that makes a table, which could never be read: it has no address.

    Spark asks a source for the same writer as for a `save`. But it runs the write inside the command that makes the
    table, and tasks know of both. A write inside a stream's batch is also inside of something, and is let through.
    """
    context: Any = TaskContext.get()
    said = {} if context is None else context._localProperties
    if "sql.streaming.queryId" not in said and said.get(EXECUTION) != said.get(OUTERMOST):
        raise ValidationError(f"saveAsTable cannot note where the rows of a table are. {WRITE}")


def is_table(options: Mapping[str, str]) -> bool:
    """Whether a table is being made."""
    return "provider" in options


def with_address(struct: StructType, options: Mapping[str, str]) -> StructType:
    """The columns of a table, with its address noted at the first, and comments at all that have one."""
    said = json.loads(options.get(COMMENTS, "{}"))
    address = {name: text for name, text in options.items() if name != COMMENTS}
    fields = []
    for place, field in enumerate(struct):
        noted = {"comment": said[field.name]} if field.name in said else {}
        if place == 0:
            noted[ADDRESS] = json.dumps(address, sort_keys=True)
        fields.append(StructField(field.name, field.dataType, field.nullable, noted))
    return StructType(fields)


def address_of(struct: StructType) -> dict[str, str]:
    """The options of a table, from its columns; none where it has no address."""
    for field in struct:
        noted = (field.metadata or {}).get(ADDRESS)
        if isinstance(noted, str):
            return dict(json.loads(noted))
    return {}
