"""The commits after a snapshot, kept as small tables in memory.

A tail of fifty commits is fifty small files, and opening them costs more than reading the million rows before them.
So the newest rows of a tail are loaded once, into a table of the in-process database, and a longer tail grows out of
the one before it: only the files that are new are read. Files never change, so neither does such a table.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Sequence

from ontologia.engines.base import TypeLayout
from ontologia.engines.parquet.log.records import IndexEntry
from ontologia.files.duck import AS_STORED, Duck
from ontologia.files.quoting import quote_names
from ontologia.files.reading import FileReader
from ontologia.model import COMMIT_ID, TypeRef

MOST_ROWS = 200_000
TABLES_KEPT = 12

Key = tuple[TypeRef, int, tuple[str, ...]]


class Tails:
    """The tables of one repository. Longer tails than `MOST_ROWS` are read from their files, as before."""

    def __init__(self, duck: Duck, reader: FileReader) -> None:
        self._duck = duck
        self._reader = reader
        self._known: OrderedDict[Key, str] = OrderedDict()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def table(self, layout: TypeLayout, tail: Sequence[IndexEntry]) -> str | None:
        """The table with the newest row of each identity in these commits; None where files are to be read."""
        if len(tail) < 2 or sum(MOST_ROWS if e.row_count is None else e.row_count for e in tail) > MOST_ROWS:
            return None
        paths = tuple(entry.path for entry in tail)
        with self._lock:
            known = self._known.get(_key(layout, paths))
            if known is None:
                known = self._made(layout, tail, paths)
            self._known.move_to_end(_key(layout, paths))
            return known

    def _made(self, layout: TypeLayout, tail: Sequence[IndexEntry], paths: tuple[str, ...]) -> str:
        """Make a table, out of the longest one that is a beginning of it."""
        before = next((n for n in range(len(paths) - 1, 0, -1) if _key(layout, paths[:n]) in self._known), 0)
        older = self._known[_key(layout, paths[:before])] if before else None
        name = f"tail_{next(self._numbers)}"
        new = tail[before:]
        identity = quote_names(layout.ref.identity)
        columns = quote_names([*layout.ref.identity, COMMIT_ID, *(column.physical for column in layout.schema.columns)])
        new_files = [file for entry in new for file in entry.files]
        with self._reader.places(new_files) as places, self._duck.cursor() as cursor:
            files = list(places.values())
            newest = (
                f"SELECT {columns} FROM read_parquet($files, {AS_STORED}) "
                f"QUALIFY row_number() OVER (PARTITION BY {identity} ORDER BY {COMMIT_ID} DESC) = 1"
            )
            cursor.execute(f"CREATE TABLE {name} AS {newest}", {"files": files})
            if older is not None:
                kept = f"SELECT {columns} FROM {older} ANTI JOIN (SELECT {identity} FROM {name}) USING ({identity})"
                cursor.execute(f"INSERT INTO {name} {kept}")
            self._known[_key(layout, paths)] = name
            while len(self._known) > TABLES_KEPT:
                _, dropped = self._known.popitem(last=False)
                cursor.execute(f"DROP TABLE {dropped}")
        return name


def _key(layout: TypeLayout, paths: tuple[str, ...]) -> Key:
    return layout.ref, layout.schema_version_id, paths
