"""Rows of a type as a DataFrame: through Spark's own Parquet reader where it can reach the files, else through Arrow.

The driver plans with head, index and statistics before any task starts; both ways give the same rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ontologia.config import OntologiaConfig
from ontologia.engines.base import Catalog, TypeLayout
from ontologia.engines.dispatch import parse_storage_target
from ontologia.engines.parquet.engine import S3Repository
from ontologia.engines.parquet.log.records import IndexEntry
from ontologia.engines.parquet.read.scan import SUPERSEDED_BY, Scan, scan
from ontologia.engines.rowwise import RowwiseRepository
from ontologia.errors import ValidationError
from ontologia.model import COMMIT_ID, Declaration, Kind, TypeRef, TypeSchema, commit_column
from ontologia.query.plan import LATEST, Window
from ontologia.runtime.store import open_target
from ontologia.spark import s3a
from ontologia.spark.types import result_struct, stored_struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "ontologia"


@dataclass(frozen=True, slots=True)
class Request:
    """What to read: a type of a store, in a window that is pinned to a head."""

    uri: str
    ref: TypeRef
    window: Window

    def options(self) -> dict[str, str]:
        """The same as options of `format("ontologia")`."""
        found = {"type": self.ref.name, "kind": self.ref.kind}
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
    uri: str | os.PathLike[str],
    type_: type[Any] | str,
    *,
    kind: Kind | None = None,
    as_of: int | None = None,
    timestamp_as_of: datetime | None = None,
    history: bool = False,
    since: int | None = None,
    config: OntologiaConfig | None = None,
) -> DataFrame:
    """A type as a DataFrame: the latest state, the state at a commit or a time, every version, or those since.

    >>> read(spark, "s3://bucket/onto", Customer, as_of=12)          # doctest: +SKIP
    """
    check_exists(os.fspath(uri))
    with open_target(uri, config) as repository:
        _, schema = resolve(repository, type_, kind)
        window = window_of(repository, as_of=as_of, timestamp_as_of=timestamp_as_of, history=history, since=since)
        rows = stored_rows(spark, repository, repository.catalog(), schema, window)
    return _shown(rows, schema, versions=not window.deduplicated)


def read_stream(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    type_: type[Any] | str,
    *,
    kind: Kind | None = None,
    since: int = 0,
    max_commits_per_batch: int | None = None,
) -> DataFrame:
    """Commits after one as a stream of changes: rows with their commit and operation, in the order of commits.

    >>> read_stream(spark, "s3://bucket/onto", Customer, since=12)   # doctest: +SKIP
    """
    check_exists(os.fspath(uri))
    with open_target(uri, None) as repository:
        ref, _ = resolve(repository, type_, kind)
        where = uri_of(repository)
    stream = spark.readStream.format(FORMAT).options(type=ref.name, kind=ref.kind, since=str(since), changes="true")
    if max_commits_per_batch is not None:
        stream = stream.option("maxCommitsPerBatch", str(max_commits_per_batch))
    return stream.load(where)


def check_exists(uri: str) -> None:
    """Opening a file that is not there would make a new store, which is not what a reader means."""
    target = parse_storage_target(storage_uri=uri) if "://" in uri else parse_storage_target(uri)
    if target.backend == "sqlite" and not os.path.exists(target.location):
        raise ValidationError(f"{target.location}: there is no such file")


def resolve(repository: RowwiseRepository, type_: type[Any] | str, kind: str | None) -> tuple[TypeRef, TypeSchema]:
    """The stored type that a class or a name means. A class must agree with the store."""
    catalog = repository.catalog()
    declaration = getattr(type_, "__declaration__", None)
    if isinstance(declaration, Declaration):
        catalog.check({declaration.ref: declaration.schema})
        return declaration.ref, declaration.schema
    found = [ref for ref in catalog.layouts if ref.name == type_ and kind in (None, ref.kind)]
    if not found:
        known = ", ".join(sorted(map(str, catalog.layouts))) or "none yet"
        raise ValidationError(f"there is no type {type_!r} in this store; it has: {known}")
    if len(found) > 1:
        raise ValidationError(f"{type_!r} is an entity and a relation here: say which with kind")
    return found[0], catalog.layouts[found[0]].schema


def window_of(
    repository: RowwiseRepository,
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
        return Window("as_of", repository.commit_at(timestamp_as_of))
    if as_of is not None:
        return Window("as_of", max(as_of, 0))
    if since is not None:
        return Window("since", max(since, 0))
    return Window("history") if history else LATEST


def stored_rows(
    spark: SparkSession, repository: RowwiseRepository, catalog: Catalog, schema: TypeSchema, window: Window
) -> DataFrame:
    """The rows of a window at a head, under their stored names: identity, commit, fields."""
    ref = schema.ref
    layout = catalog.layouts.get(ref)
    if layout is None:
        return spark.createDataFrame([], stored_struct(schema))
    if isinstance(repository, S3Repository):
        files = planned(repository, catalog, layout, window)
        if not files.entries:
            return spark.createDataFrame([], stored_struct(schema))
        paths = native_paths(spark, repository, files.entries)
        if paths is not None:
            return _native(spark, schema, files, paths, window)
    pinned = Window("as_of", catalog.head) if window.mode == "latest" else window
    request = Request(uri_of(repository), ref, pinned)
    reader = spark.read.format(FORMAT).options(**request.options()).option("stored", "true")
    return reader.load(request.uri)


def planned(repository: S3Repository, catalog: Catalog, layout: TypeLayout, window: Window) -> Scan:
    return scan(repository._entries(catalog.version, layout.ref, layout), window, catalog.version)


def native_paths(spark: SparkSession, repository: S3Repository, entries: Sequence[IndexEntry]) -> dict[str, str] | None:
    """Where Spark itself can read the files; None where it cannot."""
    names = [file.path for entry in entries for file in entry.files]
    if set(repository.objects.uri) & set("*?[]{}"):  # Spark would take it for a pattern
        return None
    if repository.objects.local_path(names[0]) is not None:
        return {name: f"file://{repository.objects.local_path(name)}" for name in names}
    if s3a.reaches(spark, repository.objects):
        return {name: repository.objects.url(name).replace("s3://", "s3a://", 1) for name in names}
    return None


def _native(spark: SparkSession, schema: TypeSchema, files: Scan, paths: dict[str, str], window: Window) -> DataFrame:
    """What `FilesRelation` says in SQL, on Spark's reader."""
    from pyspark.sql import functions as sql

    identity = list(schema.ref.identity)
    names = [field.name for field in stored_struct(schema)]

    def rows(entries: Sequence[IndexEntry], *, settled: bool = False) -> DataFrame:
        places = [paths[file.path] for entry in entries for file in entry.files]
        found = spark.read.schema(stored_struct(schema, settled=settled)).parquet(*places)
        return found if files.upper is None else found.where(sql.col(COMMIT_ID) <= files.upper)

    if not window.deduplicated:
        found = rows(files.entries)
        return found.where(sql.col(COMMIT_ID) > (window.commit or 0)) if window.mode == "since" else found
    tail = _newest(rows(files.tail), identity, commits=len(files.tail)) if files.tail else None
    if files.snapshot is None:
        assert tail is not None
        return tail
    base = rows([files.snapshot], settled=True)
    in_force = sql.col(SUPERSEDED_BY).isNull()
    if files.inside_snapshot:
        in_force = in_force | (sql.col(SUPERSEDED_BY) > (files.upper or 0))
    base = base.where(in_force).select(*_quoted(names))
    if tail is None or files.inside_snapshot:
        return base
    # The tail is short: its keys go to every task, and the snapshot is not shuffled.
    later = rows(files.tail).select(*_quoted(identity)).distinct()
    return base.join(sql.broadcast(later), identity, "left_anti").select(*_quoted(names)).unionByName(tail)


def _newest(rows: DataFrame, identity: list[str], *, commits: int) -> DataFrame:
    """The last row of each identity. One commit has each identity once, so that there is nothing to do."""
    from pyspark.sql import Window as SparkWindow
    from pyspark.sql import functions as sql

    if commits == 1:
        return rows
    newest_first = SparkWindow.partitionBy(*identity).orderBy(sql.col(COMMIT_ID).desc())
    ranked = rows.withColumn("__rank", sql.row_number().over(newest_first))
    return ranked.where("__rank = 1").drop("__rank")


def _shown(rows: DataFrame, schema: TypeSchema, *, versions: bool) -> DataFrame:
    """Rows under the names callers know."""
    from pyspark.sql import functions as sql

    stored = {column.name: column.physical for column in schema.columns}
    if versions:
        stored[commit_column(schema)] = COMMIT_ID
    names = [field.name for field in result_struct(schema, versions=versions)]
    return rows.select(*(sql.col(f"`{stored.get(name, name)}`").alias(name) for name in names))


def _quoted(names: Sequence[str]) -> list[str]:
    return [f"`{name}`" for name in names]


def uri_of(repository: RowwiseRepository) -> str:
    """How another process opens the same store."""
    if isinstance(repository, S3Repository):
        return repository.objects.uri
    return os.path.abspath(str(repository.storage_info()["db_path"]))
