"""The whole past of a store, commit by commit, as one engine gives it and another takes it.

A `History` is read in the order of commits and never held: rows come as streams, one per schema version, which
`past_commits` brings together. A `CopyTarget` takes commits as they were made, and is a store once it is finished.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self

from ontologia.engines.catalog import Commit, SchemaVersion
from ontologia.errors import HistoryForgottenError, StorageBackendError
from ontologia.files.json_objects import now
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, TypeRef, TypeSchema
from ontologia.objects import new_uuid

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.engines.staging import Staging
    from ontologia.files.data_files import DataFile

COPYING = "copying-"
"""Before the engine version, in the stamp of a place that is not a store yet."""


@dataclass(frozen=True, slots=True)
class Past:
    """What a store has been, but for its rows: its head, every schema version, and in which commit types were dropped.

    `purged` are those of the dropped types whose rows are gone.
    """

    head: int
    versions: Sequence[SchemaVersion] = ()
    dropped: Mapping[TypeRef, int] = field(default_factory=dict)
    purged: frozenset[TypeRef] = frozenset()

    def at(self, commit_id: int) -> Past:
        """What it was at one of its commits."""
        kept = [v for v in self.versions if v.activation_commit_id is None or v.activation_commit_id <= commit_id]
        dropped = {ref: number for ref, number in self.dropped.items() if number <= commit_id}
        return replace(self, head=commit_id, versions=kept, dropped=dropped)


@dataclass(frozen=True, slots=True)
class AsDeclared:
    """A type as its class has it, for stores that forgot part of that: its schema, and what stands, in stored form, for
    a field that a row does not have."""

    schema: TypeSchema
    defaults: Mapping[str, Any]


Declared = Mapping[TypeRef, AsDeclared]


class History(ABC):
    """The past of one store."""

    @abstractmethod
    def past(self) -> Past: ...

    @abstractmethod
    def commits(self, after: int, up_to: int) -> Iterator[Commit]:
        """The log, oldest first."""

    @abstractmethod
    def rows(self, version: SchemaVersion, after: int, up_to: int) -> Iterator[pa.Table]:
        """The rows that were written under a schema version, in the order of commits.

        Identity, `commit_id` and fields as storage names them; and `superseded_by` where there are removals, which
        have their own commit there.
        """

    def commit_sizes(self) -> Mapping[int, int]:
        """About how many rows each commit wrote, where others can read `shares` of them; nothing where they cannot."""
        return {}

    def shares(self, version: SchemaVersion, commit_id: int) -> Sequence[PastShare]:
        """The rows that one commit wrote under a schema version, for tasks that read side by side."""
        raise StorageBackendError("the past of this store is read by one process")


class PastShare(ABC):
    """A range of the rows that a commit wrote under a schema version. It can be sent to who reads it."""

    @abstractmethod
    def tables(self) -> Iterator[pa.Table]:
        """The rows in the order of their identity, as `History.rows` has them, without their commit."""


WriteParts = Callable[["Staging"], "list[DataFile]"]
"""Has rows written by others, into where a commit takes them from."""


@dataclass(frozen=True, slots=True)
class PastCommit:
    """One commit as it was made. `rows` are read once, before the next commit is asked for.

    `recorded` are the schema versions that came with it, `dropped` the types that went, with their rows or without.
    Rows of a commit that is copied by others come as `shares`, and go by `parts`.
    """

    commit: Commit
    recorded: Sequence[SchemaVersion]
    rows: Iterator[tuple[SchemaVersion, pa.Table]]
    dropped: Mapping[TypeRef, bool]
    shares: Sequence[tuple[SchemaVersion, Sequence[PastShare]]] = ()
    parts: Sequence[tuple[SchemaVersion, WriteParts]] = ()


def without_removals(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows of a commit as those that were written and those that were removed with it."""
    import pyarrow.compute as pc

    if SUPERSEDED_BY not in rows.column_names:
        return rows, rows.slice(0, 0)
    is_removal = pc.is_valid(rows.column(SUPERSEDED_BY))
    plain = rows.drop_columns([SUPERSEDED_BY])
    return plain.filter(pc.invert(is_removal)), plain.filter(is_removal)


def past_commits(
    history: History, past: Past, after: int, up_to: int, shared: Collection[int] = ()
) -> Iterator[PastCommit]:
    """The commits of a past after one and up to another, each with its rows; every number is there.

    Those that are `shared` come with shares of their rows.
    """
    expected = after
    streams: list[_Stream] = []
    waiting = sorted(
        (version for version in past.versions if version.activation_commit_id is not None),
        key=lambda version: version.activation_commit_id or 0,
    )
    unused = [version for version in past.versions if version.activation_commit_id is None]
    for commit in history.commits(after, up_to):
        expected += 1
        if commit.id != expected:
            raise StorageBackendError(f"the log has commit {commit.id} where {expected} should be: part of it is gone")
        while waiting and (waiting[0].activation_commit_id or 0) <= commit.id:
            version = waiting.pop(0)
            streams.append(_Stream(version, _rows_between(history, version, after, up_to, shared)))
        recorded = [version for version in past.versions if version.activation_commit_id == commit.id]
        if commit.id == past.head:
            recorded += unused  # registered, and never in force: nothing tells since when
        gone = {ref: ref in past.purged for ref, number in past.dropped.items() if number == commit.id}
        shares = _shares_of(history, past, commit.id) if commit.id in shared else ()
        yield PastCommit(commit, recorded, _rows_of(streams, commit.id), gone, shares)
        for stream in streams:
            stream.pass_by(commit.id)
        streams = [stream for stream in streams if stream.next_commit is not None]
    if expected != up_to:
        raise StorageBackendError(f"the log ends at commit {expected}, before {up_to}")


def _rows_between(
    history: History, version: SchemaVersion, after: int, up_to: int, shared: Collection[int]
) -> Iterator[pa.Table]:
    """The rows of a version, without those of commits that are shared."""
    for commit_id in sorted(number for number in shared if after < number <= up_to):
        if after < commit_id - 1:
            yield from history.rows(version, after, commit_id - 1)
        after = commit_id
    if after < up_to:
        yield from history.rows(version, after, up_to)


def _shares_of(history: History, past: Past, commit_id: int) -> Sequence[tuple[SchemaVersion, Sequence[PastShare]]]:
    in_force = [version for version in past.versions if (version.activation_commit_id or commit_id + 1) <= commit_id]
    found = [(version, history.shares(version, commit_id)) for version in in_force]
    return [(version, shares) for version, shares in found if shares]


def _rows_of(streams: Sequence[_Stream], commit_id: int) -> Iterator[tuple[SchemaVersion, pa.Table]]:
    for stream in streams:
        for rows in stream.take(commit_id):
            yield stream.version, rows


class _Stream:
    """Rows of one schema version, handed out by commit. It looks one table ahead."""

    def __init__(self, version: SchemaVersion, tables: Iterator[pa.Table]) -> None:
        self.version = version
        self._tables = tables
        self._held: pa.Table | None = None
        self._advance()

    @property
    def next_commit(self) -> int | None:
        """The commit of the next row; None at the end."""
        return None if self._held is None else int(self._held.column(COMMIT_ID)[0].as_py())

    def take(self, commit_id: int) -> Iterator[pa.Table]:
        import pyarrow.compute as pc

        while self._held is not None and self.next_commit == commit_id:
            held = self._held
            own = pc.sum(pc.equal(held.column(COMMIT_ID), commit_id)).as_py()
            if own == held.num_rows:
                self._advance()
            else:
                self._held = held.slice(own)
            yield held.slice(0, own).drop_columns([COMMIT_ID])

    def pass_by(self, commit_id: int) -> None:
        """Whoever took the commit must have taken its rows."""
        if self.next_commit is not None and self.next_commit <= commit_id:
            raise StorageBackendError(
                f"rows of {self.version.ref}, version {self.version.schema_version_id}, are out of place: one of "
                f"commit {self.next_commit} comes after those of {commit_id}"
            )

    def _advance(self) -> None:
        self._held = next((table for table in self._tables if table.num_rows), None)


@dataclass(frozen=True, slots=True)
class CopyNote:
    """What a copy in the making says of itself: of what, up to which commit, and what it is to become."""

    source: str
    head: int
    engine_version: str
    first_commit: str = ""
    """When the first commit of the source was made: another store at the same place is another source."""
    in_place: bool = False
    copy_id: str = field(default_factory=lambda: new_uuid().hex)
    started_at: str = field(default_factory=now)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        return cls(**{item.name: body[item.name] for item in fields(cls)})

    def body(self) -> dict[str, Any]:
        return asdict(self)


def cannot_begin_at(base: int) -> HistoryForgottenError:
    return HistoryForgottenError(
        f"the history of the source begins at commit {base}, and only stores of engine v2 can say so: copy it into "
        "one, or move the state with onto export and onto import"
    )


class CopyTarget(ABC):
    """A store in the making. Nobody takes it for a store before `finish`, and it can be gone on with at any point."""

    note: CopyNote
    takes_parts = False
    """Whether others may write rows of a commit, as `PastCommit.parts`."""

    @property
    @abstractmethod
    def done(self) -> int:
        """The last commit that is safely there."""

    @abstractmethod
    def write(self, commits: Iterable[PastCommit]) -> None:
        """Take commits as they were made. They are safely there when this returns."""

    @abstractmethod
    def history(self) -> History:
        """What was written, read back from where it is."""

    def begin_history_at(self, base: int) -> None:
        """Say in the copy that its history begins at a commit, as that of the source does."""
        raise cannot_begin_at(base)

    @abstractmethod
    def finish(self) -> None:
        """Make it a store. Done again after it was cut off, it ends the same."""
