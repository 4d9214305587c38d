"""Rows of a type as a DataFrame: through Spark's own Parquet reader where it can reach the files, else through Arrow.

The driver plans with head, index and statistics before any task starts; both ways give the same rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from ontologia.config import OntologiaConfig
from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog
from ontologia.engines.diagnostics import window_diagnostics
from ontologia.engines.dispatch import open_engine
from ontologia.engines.shares import FilesInForce
from ontologia.engines.targets import parse_storage_target
from ontologia.errors import ValidationError
from ontologia.files.data_files import DataFile
from ontologia.model import (
    COMMIT_ID,
    SUPERSEDED_BY,
    Declaration,
    Kind,
    Predicate,
    TypeRef,
    TypeSchema,
    commit_column,
    removed_column,
)
from ontologia.model.upgraders import Upgraders, registered_upgraders
from ontologia.objects import Location
from ontologia.query.in_force import is_current, is_removal, rank
from ontologia.query.plan import LATEST, Across, Plan, Window, check_commit
from ontologia.spark import s3a
from ontologia.spark.comments import field_comments
from ontologia.spark.failures import explain_failures
from ontologia.spark.reading.across import across_options
from ontologia.spark.reading.filters import check_filter, is_of_one_type, to_text
from ontologia.spark.reading.nested import Nested, check_nested, parse_structured
from ontologia.spark.sentences import put_sentences_first
from ontologia.spark.types import by_place, narrow, nullable, quote_name, result_struct, stored_struct, with_nullability

FORMAT = "ontologia"
PATTERN = frozenset("*?[]{}\\")
"""What Spark takes for a pattern in a path."""
RANK = "rank?"
"""Beside the columns of a type while it is needed; no field can be called so."""


@dataclass(frozen=True, slots=True)
class SourceAddress:
    """What to read: a type of a store, in a window that is pinned to a head."""

    location: Location
    ref: TypeRef
    window: Window

    def options(self) -> dict[str, str]:
        """The same as options of `format("ontologia")`."""
        found = {"type": self.ref.name, "kind": self.ref.kind, "settings": self.location.settings_text()}
        if self.location.branch is not None:
            found["branch"] = self.location.branch
        match self.window.mode:
            case "as_of":
                found["asOf"] = str(self.window.commit)
            case "since":
                found["since"] = str(self.window.commit)
            case "history":
                found["history"] = "true"
        return found


def read(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Location,
    type_: type[Any] | str,
    *,
    kind: Kind | None = None,
    as_of: int | None = None,
    timestamp_as_of: datetime | None = None,
    history: bool = False,
    since: int | None = None,
    where: Predicate | None = None,
    columns: Sequence[str] | None = None,
    nested: Nested = "json",
    config: OntologiaConfig | None = None,
    across_versions: bool = False,
    upgraders: Upgraders | None = None,
) -> DataFrame:
    """A type as a DataFrame: the latest state, the state at a commit or a time, every version, or those since.

    `where` is a filter as a typed query has it, applied where the rows lie. `columns` are those that are wanted, and no
    others are read. `nested` says how structured fields come: as JSON text, as structs, arrays and maps as far as their
    types are declared, or as variants. With `across_versions`, rows of earlier schema versions are read as rows of
    today's, on executors past the `upgraders` where they need them: those registered, unless others are given.

    >>> read(spark, "s3://bucket/onto", Customer, as_of=12)                        # doctest: +SKIP
    >>> read(spark, "s3://bucket/onto", Customer, where=Customer.age > 30, columns=["id"])   # doctest: +SKIP
    """
    from ontologia.spark.reading.queries import to_spark

    check_nested(nested)
    location = existing(Location.of(uri, config))
    with open_engine(location) as engine, explain_failures(f"reading {location.uri}"):
        _, schema = resolve(engine, type_, kind)
        window = window_of(engine, as_of=as_of, timestamp_as_of=timestamp_as_of, history=history, since=since)
        names = choose_names(schema, window, columns)
        across = across_of(type_, upgraders) if across_versions else None
        if window.mode != "latest":  # of which a caller is warned as elsewhere
            window_diagnostics(window, () if across else (schema.ref,), engine, engine.catalog())
        if where is not None:
            check_filter(where, schema.ref)
            plan = Plan.of(schema, window, (where,), unordered=True, across=across)
            found, by_name = by_place(to_spark(spark, engine, plan))
            found = found.select(*(by_name[name].alias(name) for name in names))
        else:
            stored = stored_names(schema, window)
            only = frozenset(stored[name] for name in names)
            rows = read_stored_rows(spark, engine, engine.catalog(), schema, window, only=only, across=across)
            found = _rename(rows, stored, names)
    return _add_comments(parse_structured(found, schema, nested), type_)


def _add_comments(rows: DataFrame, type_: type[Any] | str) -> DataFrame:
    """Rows with what their class says of its fields."""
    said = {} if isinstance(type_, str) else field_comments(type_)
    if not said.keys() & set(rows.columns):
        return rows
    noted = {name: {"metadata": {"comment": said[name]}} if name in said else {} for name in rows.columns}
    rows, by_name = by_place(rows)
    return rows.select(*(column.alias(name, **noted[name]) for name, column in by_name.items()))


def choose_names(schema: TypeSchema, window: Window, columns: Sequence[str] | None) -> list[str]:
    """The columns of a result: all, or those that were asked for, in that order."""
    all_ = result_struct(schema, versions=not window.deduplicated).fieldNames()
    unknown = [name for name in columns or () if name not in all_]
    if unknown:
        raise ValidationError(f"{schema.ref} has no column {', '.join(unknown)}; it has {', '.join(all_)}")
    return all_ if columns is None else list(columns)


def stored_names(schema: TypeSchema, window: Window) -> dict[str, str]:
    """What is stored under which name, by the names callers know."""
    found = {name: name for name in schema.ref.identity} | {column.name: column.physical for column in schema.columns}
    if window.deduplicated:
        return found
    return {**found, commit_column(schema): COMMIT_ID, removed_column(schema): SUPERSEDED_BY}


def read_stream(
    spark: SparkSession,
    uri: str | os.PathLike[str] | Location,
    type_: type[Any] | str,
    *,
    kind: Kind | None = None,
    since: int = 0,
    max_commits_per_batch: int | None = None,
    nested: Nested = "json",
    config: OntologiaConfig | None = None,
) -> DataFrame:
    """Commits after one as a stream of changes: rows with their commit and operation, in the order of commits.

    `nested` says how structured fields come, as in `read`.

    >>> read_stream(spark, "s3://bucket/onto", Customer, since=12)   # doctest: +SKIP
    """
    with open_engine(existing(Location.of(uri, config))) as engine:
        ref, _ = resolve(engine, type_, kind)
        request = SourceAddress(engine.location, ref, Window("since", check_commit("since", since)))
    put_sentences_first()
    stream = spark.readStream.format(FORMAT).options(**request.options(), changes="true", nested=check_nested(nested))
    if max_commits_per_batch is not None:
        stream = stream.option("maxCommitsPerBatch", str(max_commits_per_batch))
    return stream.load(request.location.uri)


def existing(location: Location) -> Location:
    """The location, if it is not a file that is missing: opening that would make a new store."""
    target = parse_storage_target(location.uri)
    if target.backend == "sqlite" and not os.path.exists(target.location):
        raise ValidationError(f"{target.location}: there is no such file")
    return location


def resolve(engine: Engine, type_: type[Any] | str, kind: str | None) -> tuple[TypeRef, TypeSchema]:
    """The stored type that a class or a name means. A class must agree with the store."""
    catalog = engine.catalog()
    declaration = getattr(type_, "__declaration__", None)
    if isinstance(declaration, Declaration):
        catalog.check({declaration.ref: declaration.schema})
        return declaration.ref, declaration.schema
    layout = catalog.find_type(str(type_), kind)
    return layout.ref, layout.schema


def across_of(type_: type[Any] | str, upgraders: Upgraders | None) -> Across:
    """How rows of earlier schema versions are read: by these upgraders, or by those that are registered."""
    declaration = getattr(type_, "__declaration__", None)
    across = Across(upgraders=registered_upgraders() if upgraders is None else upgraders)
    return across.knowing(declaration) if isinstance(declaration, Declaration) else across


def window_of(
    engine: Engine,
    *,
    as_of: int | None = None,
    timestamp_as_of: datetime | None = None,
    history: bool = False,
    since: int | None = None,
) -> Window:
    said = [as_of is not None, timestamp_as_of is not None, history, since is not None]
    if sum(said) > 1:
        raise ValidationError("choose one of as_of, timestamp_as_of, history and since")
    if timestamp_as_of is not None:
        return Window("as_of", engine.commit_at(timestamp_as_of))
    if as_of is not None:
        return Window("as_of", check_commit("as_of", as_of))
    if since is not None:
        return Window("since", check_commit("since", since))
    return Window("history") if history else LATEST


def read_stored_rows(
    spark: SparkSession,
    engine: Engine,
    catalog: Catalog,
    schema: TypeSchema,
    window: Window,
    *,
    where: Sequence[Predicate] = (),
    only: frozenset[str] | None = None,
    across: Across | None = None,
) -> DataFrame:
    """The rows of a window at a head, under their stored names: identity, commit, fields; where they are versions, with
    what superseded them, by which removals are known.

    `where` may leave out rows, and `only` columns; Spark's own reader is told neither, it sees them in the plan.
    """
    ref = schema.ref
    catalog.check_remembers(window)
    layout = catalog.layouts.get(ref)
    struct = stored_struct(schema, settled=not window.deduplicated)
    if engine.capabilities.read_only:
        struct = nullable(struct)
    if layout is None:
        return spark.createDataFrame([], struct)
    back = across_options(engine, catalog, schema, window, across)
    files = None if back else engine.files_in_force(ref, window, catalog)
    if files is not None:
        if not files.base and not files.tail:
            return spark.createDataFrame([], struct)
        paths = native_paths(spark, engine, [*files.base, *files.tail_files])
        if paths is not None:
            return _native(spark, schema, files, paths, window)
    pinned = Window("as_of", catalog.head) if window.mode == "latest" else window
    request = SourceAddress(engine.location, ref, pinned)
    reader = spark.read.format(FORMAT).options(**request.options(), **back, stored="true", head=str(catalog.head))
    if where and is_of_one_type(where):
        reader = reader.option("where", to_text(where))
    if only:
        reader = reader.schema(narrow(struct, only if window.deduplicated else only | {COMMIT_ID}))
    return reader.load(request.location.uri)


def native_paths(spark: SparkSession, engine: Engine, files: Sequence[DataFile]) -> dict[str, str] | None:
    """Where Spark itself can read the files; None where it cannot."""
    objects = engine.objects
    if objects is None:
        return None
    if objects.local_path(files[0].path) is not None:
        places = {file.path: f"file://{objects.local_path(file.path)}" for file in files}
    elif s3a.reaches(spark, objects):
        places = {file.path: objects.url(file.path).replace("s3://", "s3a://", 1) for file in files}
    else:
        return None
    return None if any(set(place) & PATTERN for place in places.values()) else places


def read_files(spark: SparkSession, struct: StructType, places: Iterable[str]) -> DataFrame:
    """Data files on Spark's own reader, which compares pages with their checksums, as ours do.

    The files have times of one calendar, whatever the session takes those of other files for.
    """
    reader = spark.read.option("parquet.page.verify-checksum.enabled", True).option("datetimeRebaseMode", "CORRECTED")
    rows = reader.schema(struct).parquet(*places)
    return with_nullability(rows, struct)


def _native(
    spark: SparkSession, schema: TypeSchema, files: FilesInForce, paths: dict[str, str], window: Window
) -> DataFrame:
    """The rows in force, on Spark's reader."""
    identity = list(schema.ref.identity)
    names = [field.name for field in stored_struct(schema)]

    def rows(some: Sequence[DataFile], *, settled: bool = False) -> DataFrame:
        places = [paths[file.path] for file in some]
        found = read_files(spark, stored_struct(schema, settled=settled), places)
        return found if files.upper is None else found.where(sql.col(COMMIT_ID) <= files.upper)

    if not window.deduplicated:
        found = rows([*files.base, *files.tail_files], settled=True)
        return found.where(sql.col(COMMIT_ID) > (window.commit or 0)) if window.mode == "since" else found
    tail = None
    if files.tail:
        tail = _newest(rows(files.tail_files, settled=files.has_removals), identity, mixed=files.tail_is_mixed)
        if files.has_removals:
            tail = tail.where(~_is_removal()).select(*_quote(names))
    if not files.base:
        assert tail is not None
        return tail
    base = rows(files.base, settled=True)
    in_force = is_current(at=files.upper if files.inside_snapshot else None)
    base = base.where(in_force.sql("spark")).select(*_quote(names))
    if tail is None or files.inside_snapshot:
        return base
    # The tail is short: its keys go to every task, and the snapshot is not shuffled.
    later = rows(files.tail_files).select(*_quote(identity)).distinct()
    return base.join(sql.broadcast(later), identity, "left_anti").select(*_quote(names)).unionByName(tail)


def _newest(rows: DataFrame, identity: list[str], *, mixed: bool) -> DataFrame:
    """The last row of each identity; nothing to do where each has one."""
    if not mixed:
        return rows
    ranked = rows.withColumn(RANK, sql.expr(rank(identity).sql("spark")))
    return ranked.where(sql.col(RANK) == 1).drop(RANK)


def _is_removal() -> Column:
    """Whether a row, which knows what superseded it, says that something was removed."""
    return sql.expr(is_removal().sql("spark"))


def _rename(rows: DataFrame, stored: Mapping[str, str], names: Sequence[str]) -> DataFrame:
    """Rows under the names callers know."""

    def column(name: str) -> Column:
        return _is_removal() if stored[name] == SUPERSEDED_BY else sql.col(quote_name(stored[name]))

    return rows.select(*(column(name).alias(name) for name in names))


def _quote(names: Sequence[str]) -> list[str]:
    return [quote_name(name) for name in names]


def check_reach(spark: SparkSession, engine: Engine) -> None:
    """Executors on other machines cannot reach a file of this one."""
    if "://" in engine.location.uri:
        return
    if engine.location.uri == ":memory:":
        raise ValidationError("a store in memory cannot be loaded by Spark: use a file")
    master = str(spark.conf.get("spark.master", "local"))
    if not master.startswith("local"):
        raise ValidationError(
            f"executors on a cluster ({master}) cannot reach the file {engine.location.uri}: "
            "load into object storage, or run with master local[*]"
        )
