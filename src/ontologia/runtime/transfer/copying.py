"""A store copied with its whole history, between any two engines, or from v1 to v2 in place.

The copy pins a head of the source and writes commit after commit as it was made. It can be cut off at any point, and
goes on from there. At the end every commit is read back and compared, and only then does it become a store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ontologia.config import OntologiaConfig
from ontologia.engines.base import Engine
from ontologia.engines.catalog import SchemaVersion
from ontologia.engines.copies import AFTERWARDS, check_free, full_name, open_copy, open_source, unfinished_copy
from ontologia.engines.dispatch import KNOWN_VERSIONS, LATEST_VERSION
from ontologia.engines.features import FORGOTTEN, REMOVALS
from ontologia.engines.history import (
    AsDeclared,
    CopyNote,
    CopyTarget,
    History,
    Past,
    PastCommit,
    PastShare,
    WriteParts,
    cannot_begin_at,
    past_commits,
)
from ontologia.errors import CopyMismatchError, EngineVersionError, RemovalsUnsupportedError, ValidationError
from ontologia.model import Declared, encode_json
from ontologia.runtime.transfer.digests import RowsDigest, differences, digests
from ontologia.runtime.transfer.export_source import ExportSource, is_export

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.engines.staging import Staging
    from ontologia.files.data_files import DataFile

BATCH_COMMITS = 256
BATCH_ROWS = 100_000

Progress = Callable[[str, int, int], None]
"""What is being done, how many commits of it are done, and of how many."""


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What was copied, or would be: up to which commit, and after which one, where an earlier copy was cut off."""

    source: str
    target: str
    engine: str
    engine_version: str
    head: int
    applied: bool
    resumed_after: int = 0
    rows: int = 0
    in_place: bool = False
    commits_by_workers: int = 0
    """How many commits were large enough for tasks to write them side by side."""
    compared: bool = True
    """Whether every commit was read back and compared; an imported state was not."""


class CopyWorkers(Protocol):
    """Tasks that work side by side, for commits that are large."""

    def takes(self, rows: int, place: str) -> bool:
        """Whether they read and write a commit of so many rows, of a store at this place."""

    def write(self, shares: Sequence[PastShare], staging: Staging) -> list[DataFile]:
        """Write rows of a commit where it takes them from."""

    def digest(self, version: SchemaVersion, shares: Sequence[PastShare]) -> RowsDigest:
        """Hash rows, to compare them."""


def copy_history(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    engine_version: str | None = None,
    in_place: bool = False,
    dry_run: bool = False,
    types: Iterable[type[Declared]] = (),
    config: OntologiaConfig | None = None,
    progress: Progress | None = None,
    workers: CopyWorkers | None = None,
) -> CopyReport:
    """Copy a store with all commits, their rows, times, notes and schema versions; say what was copied.

    The target is an empty place, or one where the same copy was cut off. `in_place` brings a v1 store to v2 where it
    is; its readers go on meanwhile, and writers wait. The source may also be the folder of an export that has a
    history. `types` are the classes, which stores and exports of 0.3 need: it forgot what a type looks like inside,
    and left out fields that have a default.

    >>> copy_history("onto.db", "s3://my-bucket/onto")  # doctest: +SKIP
    """
    origin = os.fspath(source)
    place = _place_of_copy(origin, target, in_place=in_place)
    if engine_version is not None and engine_version not in KNOWN_VERSIONS:
        raise EngineVersionError(f"engine version {engine_version!r} is unknown; known are {', '.join(KNOWN_VERSIONS)}")
    with _open(origin, config, in_place=in_place) as engine:
        history = engine.history({cls.__declaration__.ref: as_declared(cls) for cls in types})
        past = history.past()
        begun = unfinished_copy(place, config)
        note = _copy_note(history, past, origin, engine.engine_version, engine_version, begun, in_place=in_place)
        if note.engine_version == "v1" and REMOVALS in engine.features():
            raise RemovalsUnsupportedError(f"{origin} has removals, and engine v1 keeps every row: copy it to v2")
        if begun is None and not in_place:
            check_free(place, config)
        past = past.at(note.head)
        backend = "s3" if "://" in full_name(place) else "sqlite"
        report = CopyReport(origin, place, backend, note.engine_version, note.head, applied=False, in_place=in_place)
        base = _history_base(engine, note)
        if base and note.engine_version != "v2":
            raise cannot_begin_at(base)
        if dry_run:
            return report
        with open_copy(place, config, note, begun=begun) as copy:
            job = _Job(past, workers, progress)
            before = copy.done
            job.copy(_Side(history, origin), copy)
            job.verify(_Side(history, origin), _Side(copy.history(), place))
            base = _history_base(engine, note)  # not the one from before: what went meanwhile was compared as gone
            if base:
                copy.begin_history_at(base)
            engine.close()  # in place, its readers would keep the old bytes
            copy.finish()
    return replace(report, applied=True, resumed_after=before, rows=job.rows, commits_by_workers=job.by_workers)


def _place_of_copy(origin: str, target: str | os.PathLike[str] | None, *, in_place: bool) -> str:
    if in_place == (target is not None):
        raise ValidationError("a copy needs a target, or in_place=True and none")
    if target is None:
        return origin
    place = os.fspath(target)
    if full_name(place) == full_name(origin):
        raise ValidationError(f"{place} is the source itself: name another place, or ask for in_place")
    return place


def largest_commit(
    source: str | os.PathLike[str], config: OntologiaConfig | None = None, *, in_place: bool = False
) -> int:
    """How many rows the largest commit of a store has that others than this process can read; 0 where there is none."""
    if is_export(os.fspath(source)):
        return 0
    with open_source(os.fspath(source), config, in_place=in_place) as engine:
        return max(engine.history().commit_sizes().values(), default=0)


def _open(source: str, config: OntologiaConfig | None, *, in_place: bool) -> Engine | ExportSource:
    if not is_export(source):
        return open_source(source, config, in_place=in_place)
    if in_place:
        raise ValidationError(f"{source} is an export: name a target for its copy")
    return ExportSource(Path(source), config)


def _history_base(engine: Engine | ExportSource, note: CopyNote) -> int:
    """The commit at which the history of the source begins; 0 where all of it is there."""
    if isinstance(engine, ExportSource) or FORGOTTEN not in engine.features():
        return 0
    base = engine.catalog().base
    if base > note.head:
        raise ValidationError(
            f"the copy was begun up to commit {note.head}, and the history of its source now begins at {base}: delete "
            "the copy and begin again"
        )
    return base


def as_declared(cls: type[Declared]) -> AsDeclared:
    """A class, with its defaults as they would be stored."""
    declaration = cls.__declaration__
    defaults: dict[str, Any] = {}
    for column in declaration.schema.columns:
        if not declaration.options[column.name].required:
            value = declaration.default_of(column.name)
            defaults[column.name] = encode_json(value) if column.scalar is None and value is not None else value
    return AsDeclared(declaration.schema, defaults)


def _copy_note(
    history: History,
    past: Past,
    source: str,
    stored: str,
    wanted: str | None,
    begun: CopyNote | None,
    *,
    in_place: bool,
) -> CopyNote:
    """What the copy is to be. One that was begun must be the same."""
    first = next((commit.created_at for commit in history.commits(0, min(1, past.head))), "")
    version = wanted or (LATEST_VERSION if begun is None else begun.engine_version)
    note = CopyNote(full_name(source), past.head, version, first, in_place)
    if in_place and AFTERWARDS.get(stored) != version:
        raise ValidationError(f"{source} has engine version {stored}, and in place a v1 store becomes a v2 store")
    if begun is None:
        return note
    same = ("source", "first_commit", "engine_version", "in_place")
    if any(getattr(begun, name) != getattr(note, name) for name in same) or begun.head > past.head:
        raise ValidationError(
            f"the target holds a copy of {begun.source} to engine version {begun.engine_version} that is not complete, "
            f"and this would be another one, of {note.source} to {version}: finish that, or delete it first"
        )
    return replace(begun, head=past.head) if in_place else begun


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two that are compared, and where it is."""

    history: History
    place: str

    def shared(self, workers: CopyWorkers | None) -> frozenset[int]:
        """The commits that tasks read side by side."""
        if workers is None:
            return frozenset()
        sizes = self.history.commit_sizes()
        return frozenset(number for number, rows in sizes.items() if workers.takes(rows, full_name(self.place)))


class _Job:
    """What is done to copy a past and to compare it: in this process, or for large commits by workers."""

    def __init__(self, past: Past, workers: CopyWorkers | None, progress: Progress | None) -> None:
        self.past = past
        self.workers = workers
        self.progress = progress
        self.rows = 0
        self.by_workers = 0

    def copy(self, source: _Side, copy: CopyTarget) -> None:
        """Write what is missing, in steps after each of which the copy can be cut off."""
        done = copy.done
        shared = source.shared(self.workers if copy.takes_parts else None)
        commits = (
            self._count(found) for found in past_commits(source.history, self.past, done, self.past.head, shared)
        )
        for first in commits:
            batch = _Batch(first, commits, lambda: self.rows)
            copy.write(batch)
            done += batch.count
            self._tell("copying", done)

    def _count(self, found: PastCommit) -> PastCommit:
        """A commit whose rows are counted as they pass, and whose shares are written by workers."""
        self.by_workers += bool(found.shares)
        parts = [(version, self._write(shares)) for version, shares in found.shares]
        return replace(found, rows=self._passing(found), parts=parts)

    def _passing(self, found: PastCommit) -> Iterator[tuple[SchemaVersion, pa.Table]]:
        for version, rows in found.rows:
            self.rows += rows.num_rows
            yield version, rows

    def _write(self, shares: Sequence[PastShare]) -> WriteParts:
        def write(staging: Staging) -> list[DataFile]:
            assert self.workers is not None
            parts = self.workers.write(shares, staging)
            self.rows += sum(part.row_count or 0 for part in parts)
            return parts

        return write

    def verify(self, source: _Side, target: _Side) -> None:
        """Read every commit on both sides and compare it: notes, schema versions, drops, and rows by their hash."""
        sides = []
        for side, past in ((source, self.past), (target, target.history.past().at(self.past.head))):
            digest = None if self.workers is None else self.workers.digest
            sides.append(digests(side.history, past, side.shared(self.workers), digest))
        for number, (wanted, got) in enumerate(zip_longest(*sides), 1):
            told = differences(wanted, got)
            if told:
                raise CopyMismatchError(
                    f"the copy differs from its source in commit {number}: {told}. It was not made a store; if the "
                    "source was changed meanwhile by a drop with its history or by an erasure, delete the copy and "
                    "begin again"
                )
            if number % BATCH_COMMITS == 0 or number == self.past.head:
                self._tell("comparing", number)

    def _tell(self, what: str, done: int) -> None:
        if self.progress is not None:
            self.progress(what, done, self.past.head)


class _Batch:
    """Some commits, taken from those that are to come until they are enough for one step."""

    def __init__(self, first: PastCommit, more: Iterator[PastCommit], rows: Callable[[], int]) -> None:
        self._first = first
        self._more = more
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[PastCommit]:
        following: PastCommit | None = self._first
        most = self._rows() + BATCH_ROWS
        while following is not None:
            self.count += 1
            yield following
            is_full = self.count >= BATCH_COMMITS or self._rows() >= most
            following = None if is_full else next(self._more, None)
