"""The rows of a type as a statement over files, for views: what `rows._native` says of DataFrames, in SQL.

A view of Spark's catalog is text. So files are named in it, many of them by one pattern, and columns come from what the
files say of themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog
from ontologia.engines.shares import FilesInForce
from ontologia.files.data_files import DataFile
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, TypeRef, TypeSchema
from ontologia.query.in_force import is_current, is_removal, rank
from ontologia.query.plan import Window
from ontologia.spark.reading.rows import RANK, choose_names, native_paths, stored_names
from ontologia.spark.types import quote_name, stored_struct

OPTIONS = "WITH ('datetimeRebaseMode' = 'CORRECTED', 'parquet.page.verify-checksum.enabled' = 'true')"


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """A statement, and the names of its columns."""

    text: str
    names: tuple[str, ...]


def select_from_files(
    spark: SparkSession, engine: Engine, catalog: Catalog, ref: TypeRef, window: Window
) -> SelectedRows | None:
    """The rows of a window over the files themselves; None where Spark cannot read them, or a pattern not name them."""
    schema = catalog.layouts[ref].schema
    catalog.check_remembers(window)
    files = engine.files_in_force(ref, window, catalog)
    if files is None:
        return None
    every = [*files.base, *files.tail_files]
    paths = native_paths(spark, engine, every) if every else {}
    if paths is None or any("," in path for path in paths.values()):
        return None
    stored = stored_names(schema, window)
    names = {name: stored[name] for name in choose_names(schema, window, None)}
    rows = _Statements(schema, files, paths)
    found = rows.none() if not every else rows.in_force() if window.deduplicated else rows.versions()
    shown = ", ".join(
        (is_removal().sql("spark") if physical == SUPERSEDED_BY else quote_name(physical)) + f" AS {quote_name(name)}"
        for name, physical in names.items()
    )
    return SelectedRows(f"SELECT {shown} FROM ({found})", tuple(names))


@dataclass(frozen=True, slots=True)
class _Statements:
    schema: TypeSchema
    files: FilesInForce
    paths: dict[str, str]

    @property
    def _columns(self) -> str:
        return ", ".join(quote_name(field.name) for field in stored_struct(self.schema))

    @property
    def _identity(self) -> str:
        return ", ".join(map(quote_name, self.schema.ref.identity))

    def none(self) -> str:
        struct = stored_struct(self.schema, settled=True)
        fields = (f"CAST(NULL AS {field.dataType.simpleString()}) AS {quote_name(field.name)}" for field in struct)
        return f"SELECT {', '.join(fields)} WHERE false"

    def versions(self) -> str:
        return self._settled([*self.files.base, *self.files.tail_files])

    def in_force(self) -> str:
        files = self.files
        tail = self._tail() if files.tail else None
        if not files.base:
            assert tail is not None
            return tail
        current = is_current(at=files.upper if files.inside_snapshot else None).sql("spark")
        base = f"SELECT {self._columns} FROM ({self._settled(files.base)}) WHERE ({current})"
        if tail is None or files.inside_snapshot:
            return base
        # The tail is short: its keys go to every task, and the snapshot is not shuffled.
        later = f"SELECT DISTINCT {self._identity} FROM ({self._settled(files.tail_files)})"
        kept = f"SELECT /*+ BROADCAST(later) */ {self._columns} FROM ({base}) LEFT ANTI JOIN ({later}) AS later"
        return f"{kept} USING ({self._identity}) UNION ALL {tail}"

    def _tail(self) -> str:
        rows = self._settled(self.files.tail_files)
        if self.files.tail_is_mixed:
            ranked = (
                f"SELECT *, {rank(list(self.schema.ref.identity)).sql('spark')} AS {quote_name(RANK)} FROM ({rows})"
            )
            rows = f"SELECT * FROM ({ranked}) WHERE {quote_name(RANK)} = 1"
        return f"SELECT {self._columns} FROM ({rows}) WHERE NOT ({is_removal().sql('spark')})"

    def _settled(self, some: Sequence[DataFile]) -> str:
        """Rows with what superseded them; not all files have that column."""
        known = self.files.settled_paths
        groups = {settled: [file for file in some if (file.path in known) == settled] for settled in (True, False)}
        return " UNION ALL ".join(self._of_files(files, settled=settled) for settled, files in groups.items() if files)

    def _of_files(self, files: Sequence[DataFile], *, settled: bool) -> str:
        marks = SUPERSEDED_BY if settled else f"CAST(NULL AS BIGINT) AS {SUPERSEDED_BY}"
        upper = self.files.upper
        where = "" if upper is None else f" WHERE {COMMIT_ID} <= {upper}"
        return f"SELECT {self._columns}, {marks} FROM parquet.{quote_name(self._pattern(files))} {OPTIONS}{where}"

    def _pattern(self, files: Sequence[DataFile]) -> str:
        """All files by one path: one relation of Spark's, however many they are."""
        places = [self.paths[file.path] for file in files]
        if len(places) == 1:
            return places[0]
        root = places[0][: -len(files[0].path)]
        return f"{root}{{{','.join(place.removeprefix(root) for place in places)}}}"
