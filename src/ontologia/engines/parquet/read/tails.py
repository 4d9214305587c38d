"""Small commits, kept as one table in memory, and the places of the rows that they supersede in large files.

A tail of fifty commits is fifty small files, and opening them costs more than reading the million rows before them. So
the rows in force of small commits are loaded once, into a table of the in-process database, and a longer tail grows out
of the one before it: only the files that are new are read, and only their keys are looked for in the large files. Files
never change, so neither does what is known of them.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ontologia.engines.catalog import TypeLayout
from ontologia.engines.parquet.log.records import IndexEntry
from ontologia.engines.parquet.read.layers import Layers
from ontologia.engines.parquet.read.packed import SmallFiles
from ontologia.engines.parquet.read.superseded import Found, find
from ontologia.engines.parquet.read.wanted import WantedKeys
from ontologia.files.arrays import numbers_of, scalar_of
from ontologia.files.data_files import DataFile
from ontologia.files.duck import Duck
from ontologia.files.identity import identity_key
from ontologia.files.quoting import quote_name, quote_names
from ontologia.files.reading import FileReader
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, TypeRef, TypeSchema
from ontologia.objects import system
from ontologia.query.in_force import is_removal, keep_newest

TABLES_KEPT = 12

Numbers = npt.NDArray[np.int64]
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Places:
    """Rows of a large file that small commits supersede: the table that has, as `n`, their numbers in the file, how
    many they are, and the first and the last of them."""

    table: str
    rows: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Tail:
    """The rows in force of small commits: their table, and what they supersede, by the path of each large file."""

    table: str
    rows: int
    superseded: Mapping[str, Places] = field(default_factory=dict)


class TailKey:
    """What a tail is of. Its hash is taken once: it may be of thousands of paths."""

    __slots__ = ("_hash", "of", "small")

    def __init__(self, layout: TypeLayout, layers: Layers) -> None:
        self.of: tuple[TypeRef, int, tuple[str, ...]] = (
            layout.ref,
            layout.schema_version_id,
            tuple(entry.path for entry in layers.large),
        )
        self.small = tuple(entry.path for entry in layers.small)
        self._hash = hash((self.of, self.small))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, TailKey)
            and self._hash == other._hash
            and (self.of, self.small) == (other.of, other.small)
        )

    def begins(self, other: TailKey) -> bool:
        """Whether the other one is this, and more commits after it."""
        return self.of == other.of and self.small == other.small[: len(self.small)]


@dataclass(slots=True)
class _Kept:
    """A tail in the making or made, and how many questions read it now."""

    number: int
    places: dict[str, Numbers] = field(default_factory=dict)
    """The numbers of superseded rows, in order, by the path of their file."""
    users: int = 0
    tail: Tail | None = None

    @property
    def table(self) -> str:
        return f"tail_{self.number}"


class Tails:
    """The tails of one engine."""

    def __init__(self, duck: Duck, reader: FileReader) -> None:
        self._duck = duck
        self._reader = reader
        self._small = SmallFiles(reader)
        self._known: OrderedDict[TailKey, _Kept] = OrderedDict()
        self._lock = system().lock()

    @contextmanager
    def load(self, layout: TypeLayout, layers: Layers, key: TailKey) -> Iterator[Tail]:
        """The rows of these small commits that are in force. They stay while in the block, however many others are
        asked for meanwhile."""
        with self._lock:
            kept = self._known.get(key) or self._make(layout, layers, key)
            self._known.move_to_end(key)
            kept.users += 1
            assert kept.tail is not None
        try:
            yield kept.tail
        finally:
            with self._lock:
                kept.users -= 1
                self._drop_unused()

    def _drop_unused(self) -> None:
        """Keep the tails that were used last, and all that are in use."""
        surplus = len(self._known) - TABLES_KEPT
        if surplus > 0:
            for key in [key for key, kept in self._known.items() if not kept.users][:surplus]:
                self._drop(self._known.pop(key))

    def _drop(self, kept: _Kept) -> None:
        with self._duck.cursor() as cursor:
            for table in (kept.table, *(_table_of_places(kept, number) for number in range(len(kept.places)))):
                cursor.execute(f"DROP TABLE IF EXISTS {table}")

    def _make(self, layout: TypeLayout, layers: Layers, key: TailKey) -> _Kept:
        """Make a tail: grow the longest one that is a beginning of it, in place where nobody reads that."""
        older = max((known for known in self._known if known.begins(key)), key=lambda k: len(k.small), default=None)
        before = None if older is None else self._known[older]
        if older is not None and before is not None and not before.users:
            del self._known[older]
            kept = before
        else:
            kept = _Kept(next(_numbers), {} if before is None else dict(before.places))
        new = layers.small[0 if older is None else len(older.small) :]
        try:
            rows = self._in_force(layout.schema, new, layers, kept)
            self._store(layout.schema, rows, kept, grown_from=before)
        except BaseException:
            self._drop(kept)
            raise
        self._known[key] = kept
        return kept

    def _in_force(self, schema: TypeSchema, new: Sequence[IndexEntry], layers: Layers, kept: _Kept) -> pa.Table:
        """The rows of new commits without those that a later large file has; what they supersede is noted by its
        place."""
        files = [file for entry in new for file in entry.files]
        rows = self._small.rows(schema, files, are_all=len(new) == len(layers.small))
        for large in layers.large:
            after = rows.filter(pc.greater(rows.column(COMMIT_ID), scalar_of(large.max_commit_id, pa.int64())))
            wanted = WantedKeys.of(schema.ref.identity, after)
            for file in large.files:
                self._note(kept, file, find(self._reader, file, wanted))
            if after.num_rows < rows.num_rows:
                rows = self._without(schema, rows, large)
        return rows

    def _note(self, kept: _Kept, file: DataFile, found: Iterable[Found]) -> None:
        places = [item.places for item in found]
        if places:
            kept.places[file.path] = np.union1d(
                kept.places.get(file.path, np.empty(0, np.int64)), np.concatenate(places)
            )

    def _without(self, schema: TypeSchema, rows: pa.Table, large: IndexEntry) -> pa.Table:
        """Without the rows of commits before a large one that have an identity of it."""
        is_before = pc.less(rows.column(COMMIT_ID), scalar_of(large.min_commit_id, pa.int64()))
        wanted = WantedKeys.of(schema.ref.identity, rows.filter(is_before))
        # Of a file with removals all rows count: what was removed there has no row in force.
        found = [
            item.identities
            for file in large.files
            for item in find(self._reader, file, wanted, in_force=not file.removals)
        ]
        if not found:
            return rows
        known = pa.chunked_array([chunk for column in found for chunk in column.chunks])
        gone = pc.and_(is_before, pc.is_in(identity_key(rows, schema.ref.identity), value_set=known))
        return rows.filter(pc.invert(gone))

    def _store(self, schema: TypeSchema, rows: pa.Table, kept: _Kept, grown_from: _Kept | None) -> None:
        """Put rows into the table of a tail, in place of older ones of the same identity."""
        identity = quote_names(schema.ref.identity)
        newest = keep_newest(exp.select("*").from_("fresh"), schema.ref.identity).sql("duckdb")
        if SUPERSEDED_BY in rows.column_names:
            removed = is_removal().sql("duckdb")
            newest = f"SELECT * EXCLUDE ({SUPERSEDED_BY}) FROM ({newest}) WHERE NOT ({removed})"
        with self._duck.cursor(fresh=rows) as cursor:
            if grown_from is None:
                cursor.execute(f"CREATE TABLE {kept.table} AS {newest}")
            else:
                same = " AND ".join(f"old.{name} = new.{name}" for name in map(quote_name, schema.ref.identity))
                if grown_from is not kept:
                    cursor.execute(f"CREATE TABLE {kept.table} AS SELECT * FROM {grown_from.table}")
                cursor.execute(f"DELETE FROM {kept.table} old USING (SELECT {identity} FROM fresh) new WHERE {same}")
                cursor.execute(f"INSERT INTO {kept.table} {newest}")
            (count,) = cursor.execute(f"SELECT count(*) FROM {kept.table}").fetchone() or (0,)
        superseded = {}
        for number, (path, places) in enumerate(kept.places.items()):
            table = _table_of_places(kept, number)
            with self._duck.cursor(fresh=pa.table({"n": numbers_of(places)})) as cursor:
                cursor.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT n FROM fresh")
            superseded[path] = Places(table, len(places), int(places[0]), int(places[-1]))
        kept.tail = Tail(kept.table, count, superseded)


def _table_of_places(kept: _Kept, number: int) -> str:
    return f"{kept.table}_superseded_{number}"
