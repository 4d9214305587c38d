"""The commits after a snapshot, kept as small tables in memory.

A tail of fifty commits is fifty small files, and opening them costs more than reading the million rows before them.
So the newest rows of a tail are loaded once, into a table of the in-process database, and a longer tail grows out of
the one before it: only the files that are new are read. Files never change, so neither does such a table.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ontologia.engines.base import TypeLayout
from ontologia.engines.parquet.log.records import IndexEntry
from ontologia.files.duck import AS_STORED, Duck
from ontologia.files.quoting import quote_names
from ontologia.files.reading import FileReader
from ontologia.model import COMMIT_ID, TypeRef

MOST_ROWS = 200_000
TABLES_KEPT = 12

Key = tuple[TypeRef, int, tuple[str, ...]]
_numbers = itertools.count(1)


@dataclass(slots=True)
class _Table:
    """A table, and how many questions read it now."""

    name: str
    users: int = 0


class Tails:
    """The tables of one engine. Longer tails than `MOST_ROWS` are read from their files, as before."""

    def __init__(self, duck: Duck, reader: FileReader) -> None:
        self._duck = duck
        self._reader = reader
        self._known: OrderedDict[Key, _Table] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def table(self, layout: TypeLayout, tail: Sequence[IndexEntry]) -> Iterator[str | None]:
        """The table with the newest row of each identity in these commits; None where files are to be read.

        It stays while in the block, however many others are asked for meanwhile.
        """
        if len(tail) < 2 or sum(MOST_ROWS if e.row_count is None else e.row_count for e in tail) > MOST_ROWS:
            yield None
            return
        key = _key(layout, tuple(entry.path for entry in tail))
        with self._lock:
            found = self._known.get(key) or self._made(layout, tail, key)
            self._known.move_to_end(key)
            found.users += 1
        try:
            yield found.name
        finally:
            with self._lock:
                found.users -= 1
                self._drop_unused()

    def _drop_unused(self) -> None:
        """Keep the tables that were used last, and all that are in use."""
        surplus = len(self._known) - TABLES_KEPT
        if surplus <= 0:
            return
        idle = [key for key, table in self._known.items() if not table.users][:surplus]
        with self._duck.cursor() as cursor:
            for key in idle:
                cursor.execute(f"DROP TABLE {self._known.pop(key).name}")

    def _made(self, layout: TypeLayout, tail: Sequence[IndexEntry], key: Key) -> _Table:
        """Make a table, out of the longest one that is a beginning of it."""
        *_, paths = key
        before = next((n for n in range(len(paths) - 1, 0, -1) if _key(layout, paths[:n]) in self._known), 0)
        older = self._known[_key(layout, paths[:before])].name if before else None
        name = f"tail_{next(_numbers)}"
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
        found = self._known[key] = _Table(name)
        return found


def _key(layout: TypeLayout, paths: tuple[str, ...]) -> Key:
    return layout.ref, layout.schema_version_id, paths
