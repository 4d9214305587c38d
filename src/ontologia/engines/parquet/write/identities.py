"""Whether a commit has one row of each identity at most, seen before its head is swapped.

The files of a type are apart as a rule, and what is known of them says so. Where the spans of two meet, the keys
that both may have are read: the fewer are held, the others pass through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ontologia.engines.row_files import RowFile
from ontologia.engines.transaction import written_twice
from ontologia.files.data_files import DataFile, KeySpan
from ontologia.files.identity import find_repeated, identity_key
from ontologia.files.reading import FileReader
from ontologia.files.spools import Spool
from ontologia.files.writing import LOOKUP_GROUP_ROWS
from ontologia.model import TypeRef


@dataclass(frozen=True, slots=True)
class _RowsOfCommit:
    """One file of a commit: how many rows it has, between which keys, and how it is read."""

    count: int
    span: KeySpan | None
    open: Callable[[], AbstractContextManager[Any]]

    def keys_within(self, identity: Sequence[str], shared: KeySpan | None) -> Iterator[pa.Table]:
        """The identities whose first part lies in a span."""
        with self.open() as source, pq.ParquetFile(source) as parquet:
            for batch in parquet.iter_batches(LOOKUP_GROUP_ROWS, columns=list(identity), use_threads=False):
                keys = pa.Table.from_batches([batch])
                if shared is not None:
                    first = keys.column(identity[0])
                    inside = pc.and_(pc.greater_equal(first, shared.low), pc.less_equal(first, shared.high))
                    keys = keys.filter(inside)
                if keys.num_rows:
                    yield keys


def check_each_once(
    ref: TypeRef, reader: FileReader, parts: Sequence[DataFile], own: tuple[RowFile, Spool] | None
) -> None:
    """Refuse a commit that has an identity of a type twice: in parts that others wrote, or in the rows added here."""
    files = [_RowsOfCommit(part.row_count or 0, part.keys, _opener(reader, part)) for part in parts]
    if own is not None:
        rows, spool = own
        file = _RowsOfCommit(rows.count, rows.keys, lambda: _spooled(spool))
        if rows.is_mixed:
            repeated = find_repeated(pa.concat_tables(file.keys_within(ref.identity, None)), ref.identity)
            if repeated is not None:
                raise written_twice(ref, repeated)
        files.append(file)
    for one, other in combinations(files, 2):
        if one.span is None or other.span is None or one.span.overlaps(other.span):
            _check_apart(ref, *sorted((one, other), key=lambda file: file.count))


def _check_apart(ref: TypeRef, fewer: _RowsOfCommit, more: _RowsOfCommit) -> None:
    shared = None
    if fewer.span is not None and more.span is not None:
        shared = KeySpan(max(fewer.span.low, more.span.low), min(fewer.span.high, more.span.high))
    held = [identity_key(keys, ref.identity) for keys in fewer.keys_within(ref.identity, shared)]
    if not held:
        return
    known = pa.chunked_array([chunk for keys in held for chunk in keys.chunks])
    for keys in more.keys_within(ref.identity, shared):
        both = keys.filter(pc.is_in(identity_key(keys, ref.identity), value_set=known))
        if both.num_rows:
            raise written_twice(ref, tuple(both.column(name)[0].as_py() for name in ref.identity))


def _opener(reader: FileReader, file: DataFile) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: reader.open(file)


@contextmanager
def _spooled(spool: Spool) -> Iterator[Any]:
    data = spool.in_memory
    with pa.OSFile(str(spool.path)) if data is None else pa.BufferReader(data) as source:
        yield source
