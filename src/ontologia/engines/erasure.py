"""Identities to be erased, and what is left of them: the words that the engines' erasures share."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ontologia.errors import ValidationError
from ontologia.model import TypeRef

if TYPE_CHECKING:
    import pyarrow as pa

ERASURE = "erasure"
"""The kind of the commit that says that one took place."""
SHORTEST_SEARCHED = 5
"""In bytes: shorter keys are found everywhere by chance."""
AT_ONCE = 200
"""Keys in one pattern: of many more, a pattern is too large."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to go of one type: identities; of a relation also all rows with one of these ends."""

    ref: TypeRef
    identities: frozenset[tuple[str, ...]] = frozenset()
    left: frozenset[str] = frozenset()
    right: frozenset[str] = frozenset()

    @property
    def columns(self) -> list[tuple[str, frozenset[str]]]:
        """Columns and values: a row that has one of them is meant. Single identities of relations are beside this."""
        if self.ref.kind == "entity":
            return [("entity_key", frozenset(key for (key,) in self.identities))]
        return [("left_key", self.left), ("right_key", self.right)]

    @property
    def rows_by_identity(self) -> frozenset[tuple[str, ...]]:
        """Single identities of relations."""
        return self.identities if self.ref.kind == "relation" else frozenset()

    def mask(self, rows: pa.Table) -> pa.ChunkedArray:
        """Which rows are meant. They have the columns of the identity."""
        import pyarrow as pa
        import pyarrow.compute as pc

        found: Any = pa.chunked_array([pa.array([False] * rows.num_rows, pa.bool_())])
        for name, values in self.columns:
            found = pc.or_(found, pc.is_in(rows.column(name), pa.array(sorted(values), pa.string())))
        if self.rows_by_identity:
            texts = zip(*(rows.column(name).to_pylist() for name in self.ref.identity), strict=True)
            exact = pa.array([identity in self.rows_by_identity for identity in texts], pa.bool_())
            found = pc.or_(found, pa.chunked_array([exact]))
        return found

    @property
    def first_keys(self) -> frozenset[str]:
        """Keys of the first identity column of which no row may be left."""
        return self.left if self.ref.kind == "relation" else frozenset(key for (key,) in self.identities)

    @property
    def needles(self) -> frozenset[str]:
        """The keys by which what is left is found."""
        keys = frozenset(key for (key,) in self.identities) if self.ref.kind == "entity" else frozenset()
        return keys | self.left | self.right


@dataclass(frozen=True, slots=True)
class FoundIdentities:
    """How much of one type is meant: identities, and versions of them in all commits."""

    ref: TypeRef
    identities: int
    rows: int


@dataclass(frozen=True, slots=True)
class Trace:
    """A place where an erased key still is. A `row` must not be there, nor `bytes` that belong to nothing any more; a
    `mention` is text that somebody wrote."""

    kind: str
    place: str


class Eraser(ABC):
    """Takes identities out of one store: what an engine hands out whose capabilities say `erasure`."""

    @abstractmethod
    def find(self, wanted: Sequence[Wanted]) -> list[FoundIdentities]:
        """How much of each type is meant, in all commits."""

    @abstractmethod
    def erase(self, wanted: Sequence[Wanted], metadata: Mapping[str, Any]) -> int:
        """Take every version of these identities away, and note in a commit that it was done. Its number."""

    @abstractmethod
    def is_pending(self, wanted: Sequence[Wanted]) -> bool:
        """Whether something is left of rows that are gone: an erasure was cut off, or they went another way."""

    @abstractmethod
    def finish(self, wanted: Sequence[Wanted]) -> None:
        """Do what is left of one that was cut off, without another commit."""

    @abstractmethod
    def traces(self, wanted: Sequence[Wanted]) -> list[Trace]:
        """Every place that still has one of these identities, by reading all there is."""


def copy_comes_first(where: str) -> ValidationError:
    """Why a store cannot be erased from while it is laid out anew: rows are in two places then."""
    return ValidationError(f"{where} is on its way to v2: finish that first, with onto copy --in-place")


def needles_of(wanted: Iterable[Wanted]) -> list[str]:
    return sorted({key for item in wanted for key in item.needles})


def as_bytes(needles: Sequence[str]) -> list[bytes]:
    """What is searched for in raw bytes."""
    return [data for data in (key.encode() for key in needles) if len(data) >= SHORTEST_SEARCHED]


def is_in_texts(parquet: Path | bytes, needles: Sequence[str]) -> bool:
    """Whether some text of a Parquet file is one of the keys, or has it as a value inside its JSON. One that cannot be
    read has none."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    keys = pa.array(needles, pa.string())
    patterns = [_inside_json(needles[first : first + AT_ONCE]) for first in range(0, len(needles), AT_ONCE)]
    try:
        with pq.ParquetFile(pa.BufferReader(parquet) if isinstance(parquet, bytes) else parquet) as file:
            texts = [field.name for field in file.schema_arrow if pa.types.is_string(field.type)]
            for batch in file.iter_batches(columns=texts, use_threads=False) if texts and needles else ():
                for column in batch.columns:
                    if len(needles) == 1:  # most often, and in few texts: plain search takes half the time
                        column = column.filter(pc.match_substring(column, needles[0]))
                    if pc.any(pc.is_in(column, keys)).as_py():
                        return True
                    if any(pc.any(pc.match_substring_regex(column, pattern)).as_py() for pattern in patterns):
                        return True
    except (pa.ArrowException, OSError):
        return False
    return False


def _inside_json(needles: Sequence[str]) -> str:
    """A pattern for one of these as a text or a number of JSON."""
    keys = "|".join(map(re.escape, needles))
    return rf'"({keys})"|[:,\[] ?({keys})[,}}\]]'


def is_in_file(path: Path, needles: Sequence[bytes]) -> bool:
    """Whether a file has one of these texts in its bytes."""
    return any(True for _ in _places_in_file(path, needles))


def count_in_file(path: Path, needles: Sequence[bytes]) -> int:
    """How often a file has these texts in its bytes."""
    return sum(_places_in_file(path, needles))


def _places_in_file(path: Path, needles: Sequence[bytes], *, chunk: int = 1 << 20) -> Iterator[int]:
    """How often a stretch of a file has one of the texts, for all where it has any."""
    if not needles:
        return
    longest = max(map(len, needles)) - 1
    with path.open("rb") as file:
        before = b""
        while data := file.read(chunk):
            for needle in needles:  # what begins in the stretch before is there as far as it cannot be whole
                found = (before[max(len(before) - len(needle) + 1, 0) :] + data).count(needle)
                if found:
                    yield found
            before = (before + data)[-longest:]
