"""Every error this library raises on purpose, as one tree with stable codes.

The groups follow what a caller would do next: fix the declaration or the data, migrate, try again, or look at the
storage. `code` is stable across releases; messages are for people and may change.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ontologia.model.diff import TypeSchemaDiff


_PASSWORDS = (
    re.compile(r"(://[^/\s:@'\"]*):[^/\s@'\"]+@"),  # s3://user:password@bucket
    re.compile(r"(:thin:[^/\s:@'\"]*)/[^/\s@'\"]+@"),  # jdbc:oracle:thin:user/password@host
    re.compile(
        r"((?:[?&;]|\b)[\w.-]*(?:password|passwd|pwd|secret|secret[._]?key|access[._]?key|session[._]?token|"
        r"security-token|signature|credential)\s*=\s*)[^&;\s'\"]+",
        re.IGNORECASE,
    ),
)


def without_passwords(text: str) -> str:
    """Text with the passwords in its addresses made unreadable, for messages and logs.

    >>> without_passwords("jdbc:postgresql://u:hunter2@host/db?password=hunter2")
    'jdbc:postgresql://u:***@host/db?password=***'
    """
    user, oracle, option = _PASSWORDS
    return option.sub(r"\1***", oracle.sub(r"\1/***@", user.sub(r"\1:***@", text)))


class OntologiaError(RuntimeError):
    """The root of the tree: `except OntologiaError` catches all of it and nothing else.

    It is a `RuntimeError`, which is what programs written for the original Apiary catch.

    Its message has no passwords, whatever address it quotes.
    """

    code: ClassVar[str] = "ontologia"

    def __init__(self, *said: object) -> None:
        super().__init__(*(without_passwords(text) if isinstance(text, str) else text for text in said))


# --- fix the call or the data -----------------------------------------------------------------------------------


class ValidationError(OntologiaError):
    """What was asked for makes no sense for this store: a mismatched version, a dropped type, a bad target."""

    code = "validation"


class RemovalsUnsupportedError(ValidationError):
    """The engine of this store keeps every row: nothing can be removed from it. Nothing was written."""

    code = "removals_unsupported"


class RemovalLimitError(ValidationError):
    """A load in mode `sync` would remove more than it may. Nothing was written."""

    code = "removal_limit"


class SumOverflowError(ValidationError):
    """A sum of integers is more than 64 bits hold."""

    code = "sum_overflow"

    def __init__(self) -> None:
        super().__init__(
            "a sum of integers is more than 64 bits hold: filter or group the rows so that no sum is, "
            "or take avg() and count()"
        )


class MetadataUnavailableError(OntologiaError):
    """`obj.meta()` was called on an object that did not come out of a store."""

    code = "metadata_unavailable"


class BatchSizeExceededError(OntologiaError):
    """A commit would write more rows than `max_batch_size` allows. Nothing was written."""

    code = "batch_size_exceeded"

    def __init__(self, rows: int, limit: int) -> None:
        super().__init__(
            f"this commit would write {rows:,} rows, and max_batch_size is {limit:,}: commit in smaller steps, "
            "or raise OntologiaConfig.max_batch_size"
        )
        self.rows = self.count = rows
        self.limit = limit


class UnreadableFileError(ValidationError):
    """A file that was named is not there, cannot be opened, or is not what it should be."""

    code = "unreadable_file"


class MissingExtraError(ValidationError):
    """What was asked for needs a library that is not installed; the message names the extra that brings it."""

    code = "missing_extra"


class DropRefusedError(OntologiaError):
    """A drop that would leave relations without endpoints, or whose token is stale. Nothing was dropped."""

    code = "drop_refused"


class ErasureRefusedError(OntologiaError):
    """An erasure that would leave relations to what is gone, or whose token is stale. Nothing was erased."""

    code = "erasure_refused"


class ErasureIncompleteError(OntologiaError):
    """An erasure was done, and rows or bytes of an erased identity are there all the same. `traces` says where.

    `receipt` is that of the commit, where one was made.
    """

    code = "erasure_incomplete"

    def __init__(self, message: str, traces: Sequence[Any], receipt: str | None = None) -> None:
        super().__init__(message if receipt is None else f"{message}. Keep the receipt of its commit: {receipt}")
        self.traces = list(traces)
        self.receipt = receipt


class HistoryCutError(ValidationError):
    """An export would leave out rows from before the current version of a type's schema. Nothing was written."""

    code = "history_cut"


class HistoryForgottenError(ValidationError):
    """A state or the changes of a commit from before the one at which history begins: they were given up."""

    code = "history_forgotten"


class ForgetRefusedError(OntologiaError):
    """History was to be given up with a token of another state. Nothing was given up."""

    code = "forget_refused"


class ImportConflictError(OntologiaError):
    """The store is not as the import demands: an identity exists, or is missing, or the head moved. Nothing written."""

    code = "import_conflict"


class HandlerError(OntologiaError):
    """Handlers that cannot be run: one that was not made with `@on_event`, two of one id, or nothing to do at all."""

    code = "handler"


class EventLoopLimitError(OntologiaError):
    """An event that descends from others through more generations than `max_event_chain_depth`: a loop, most likely."""

    code = "event_loop_limit"


class BranchError(ValidationError):
    """A branch that cannot be: an unusable or taken name, an unknown branch, one that others still need."""

    code = "branch"


class GraphValidationError(ValidationError):
    """Rows that a graph refuses. `problems` names each of them, `total` counts them. Nothing was written."""

    code = "graph_validation"

    def __init__(self, what: str, problems: Sequence[str], total: int | None = None) -> None:
        self.problems = list(problems[:20])
        self.total = len(problems) if total is None else total
        more = f"; and {self.total - len(self.problems):,} more" if self.total > len(self.problems) else ""
        super().__init__(f"{what}: {'; '.join(self.problems)}{more}")


class MergeConflictError(OntologiaError):
    """Both sides of a merge changed the same thing. `conflicts` lists them with the values of base, source and target.
    Nothing was merged."""

    code = "merge_conflict"

    def __init__(self, message: str, conflicts: Sequence[Any]) -> None:
        super().__init__(message)
        self.conflicts = list(conflicts)


class HistoryGapError(OntologiaError):
    """What happened since a cursor is not all stored any more: a cleanup removed versions that it needs."""

    code = "history_gap"


class FrameSchemaError(ValidationError):
    """Rows do not fit a frame, or a schema makes no frame. Nothing was written."""

    code = "frame_schema"


class UnknownNameError(ValidationError):
    """There is no such hive, box, frame, column or version. The message lists what there is."""

    code = "unknown_name"


class PartitionLimitError(ValidationError):
    """A write would give a frame more partitions than it may have. Nothing was written."""

    code = "partition_limit"


class UnsupportedStatementError(ValidationError):
    """A statement that SQL over frames does not run. The message names the call to use instead."""

    code = "unsupported_statement"


# --- migrate ----------------------------------------------------------------------------------------------------


class SchemaOutdatedError(OntologiaError):
    """The classes in code differ from the schemas in the store. `diffs` says how, type by type."""

    code = "schema_outdated"

    def __init__(self, diffs: Sequence[TypeSchemaDiff]) -> None:
        self.diffs = list(diffs)
        changes = "; ".join(str(diff) for diff in self.diffs)
        super().__init__(f"code and store disagree on {changes}: migrate the store first, preview then apply")


class MigrationError(OntologiaError):
    """A migration could not be done. The store is as it was before."""

    code = "migration"


class MigrationTokenError(MigrationError):
    """The token does not belong to this plan on this head: the store or the code changed since the preview."""

    code = "migration_token"


class MissingUpgraderError(MigrationError):
    """Rows cannot be carried forward without an upgrader. `missing` has, by type name, the versions to upgrade from.

    `reading` says which rows were to be read as what, where nothing was to be migrated.
    """

    code = "missing_upgrader"

    def __init__(self, missing: Sequence[tuple[str, int]], reading: str | None = None) -> None:
        self.missing: dict[str, list[int]] = {}
        for name, version in missing:
            self.missing.setdefault(name, []).append(version)
        self.reading = reading
        steps = ", ".join(f"{name} from version {version}" for name, version in missing)
        if reading is None:
            super().__init__(f"no upgrader for {steps}: register one with @upgrader(type_name, from_version=…)")
            return
        marks = " and ".join(f'@upgrader("{name}", from_version={version})' for name, version in missing)
        super().__init__(
            f"no upgrader for {steps}, which it takes to read {reading}: register {marks}, or read the rows as they "
            "are with as_stored()"
        )


class DiscardError(MigrationError):
    """A migration would lose values. `values` says of which fields, by type, and in how many rows."""

    code = "migration_discards"

    def __init__(self, values: Mapping[str, Mapping[str, int]]) -> None:
        self.values = {name: dict(fields) for name, fields in values.items()}
        lost = ", ".join(
            f"{name}.{field} in {rows:,} row{'s' if rows != 1 else ''}"
            for name, fields in self.values.items()
            for field, rows in fields.items()
        )
        super().__init__(
            f"the migration would discard the values of {lost}: say renamed_from= where a field has another name now, "
            "write an upgrader that keeps them, or let them go with allow_discard=True (--allow-discard)"
        )


# --- try again --------------------------------------------------------------------------------------------------


class ConcurrentWriteError(OntologiaError):
    """Another writer changed what this write depends on. Read again and retry."""

    code = "concurrent_write"


class LockContentionError(ConcurrentWriteError):
    """Another writer held the lock for longer than the lock timeout."""

    code = "lock_contention"


class MigrationLockError(MigrationError, LockContentionError):
    """Another writer held the lock for longer than a migration waits for it. Nothing was migrated."""

    code = "migration_lock_contention"


class HeadMismatchError(ConcurrentWriteError):
    """The head is not the commit that was expected, or kept moving until the retry budget was spent."""

    code = "head_mismatch"


class StaleObjectError(ConcurrentWriteError):
    """Rows changed after the objects were read that would replace or remove them. Nothing was written.

    `rows` has each of them: what was read and at which commit, what is stored now, and the commit that stored it.
    """

    code = "stale_object"

    def __init__(self, rows: Sequence[StaleRow]) -> None:
        self.rows = list(rows)
        shown = "; ".join(map(str, self.rows[:3]))
        more = f"; and {len(self.rows) - 3:,} more" if len(self.rows) > 3 else ""
        super().__init__(
            f"{shown}{more}. Nothing was written: read again and repeat the change, or open the session with "
            "on_stale='overwrite'"
        )


@dataclass(frozen=True)
class StaleRow:
    """A row that changed after an object was read. `yours` and `stored` have the fields that differ; `stored` is None
    where the row is gone. `commit` is the one that changed it, as `get_commit` has it, where it is known."""

    type_name: str
    key: str | tuple[str, ...]
    read_at: int
    yours: Mapping[str, Any]
    stored: Mapping[str, Any] | None
    commit: Mapping[str, Any] | None

    def __str__(self) -> str:
        what = f"{self.type_name} {self.key!r} was read at commit {self.read_at}"
        by = ""
        if self.commit is not None:
            by = f" by commit {self.commit['id']} ({self.commit['runtime_id']}, {self.commit['created_at']})"
        if self.stored is None:
            return f"{what} and was removed since{by}"
        values = ", ".join(
            f"{name} is {_shorten(self.stored[name])} there and {_shorten(value)} here"
            for name, value in self.yours.items()
        )
        return f"{what} and was changed since{by}{': ' if values else ''}{values}"


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class ExpectedVersionMismatchError(ConcurrentWriteError):
    """A table moved on since the writer looked: another commit was published first. Read again and retry."""

    code = "expected_version_mismatch"

    def __init__(self, table_key: str, expected: int, actual: int) -> None:
        super().__init__(
            f"{table_key} is at version {actual}, and this write was made for version {expected}: "
            "another writer published first; read again and retry"
        )
        self.table_key = table_key
        self.expected = expected
        self.actual = actual


class RecoveryPendingError(ConcurrentWriteError):
    """A write of this graph stopped halfway and has not been recovered. Open the graph read-write, which does it."""

    code = "recovery_pending"


class LeaseExpiredError(ConcurrentWriteError):
    """The write lease, or a handler's lease on its event, ran out before the commit point. Nothing was committed."""

    code = "lease_expired"


class BackpressureError(OntologiaError):
    """The colony is too hot for new work. Nothing was written; try again when it has cooled down."""

    code = "backpressure"


class TaskAbandonedError(OntologiaError):
    """A task failed as often as it may be tried. The message lists every attempt and what to try next."""

    code = "task_abandoned"


class CommitOutcomeUnknownError(OntologiaError):
    """A commit was sent and its answer lost, and reading back did not settle it. The message says what to check."""

    code = "commit_outcome_unknown"


# --- look at the storage ----------------------------------------------------------------------------------------


class StorageBackendError(OntologiaError):
    """The file, bucket or network failed. `context` names the target and the operation."""

    code = "storage_backend"

    def __init__(self, message: str, *, context: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.context = dict(context or {})

    @classmethod
    def closed(cls, where: str) -> StorageBackendError:
        return cls(f"{where}: this store is closed")


class UninitializedStorageError(StorageBackendError):
    """There is no ontology at this target yet."""

    code = "uninitialized_storage"


class EngineVersionError(StorageBackendError):
    """The store was written by an engine that this release does not know, usually a newer one."""

    code = "engine_version"


class UnfinishedCopyError(StorageBackendError):
    """A copy of another store that is not complete. The same `onto copy` again finishes it; nobody reads it before."""

    code = "unfinished_copy"

    @classmethod
    def at(cls, where: str, source: str = "another store") -> UnfinishedCopyError:
        return cls(
            f"{where} is a copy of {source} that is not complete, and no store yet: finish it with the same onto copy "
            "command again, or delete it"
        )


class CopyMismatchError(StorageBackendError):
    """A copy is not what its source is. It was not made a store; the source is as it was."""

    code = "copy_mismatch"


class ReadOnlyStoreError(StorageBackendError):
    """The store was written by an older release: it can be read, and moved, and not be written to."""

    code = "read_only_store"


class TableDriftError(StorageBackendError):
    """A table's newest version is not the published one, and no write of the graph made it. `repair` shows how."""

    code = "table_drift"


class CorruptSidecarError(StorageBackendError):
    """A recovery sidecar cannot be read, so what it stands for can be neither finished nor undone."""

    code = "corrupt_sidecar"


class CorruptFrameError(StorageBackendError):
    """An object of a frame is malformed, missing, or from a newer format. It is named; nothing was changed."""

    code = "corrupt_frame"


# --- warnings: an answer is given, and may not be to the question that was meant ------------------------------------


class ExtraColumnsWarning(UserWarning):
    """A write had columns that the frame has not. They were dropped."""


class CommitAfterHeadWarning(UserWarning):
    """`as_of` named a commit that is not there yet, and was answered with the state at the head."""


class HistoryCutWarning(UserWarning):
    """A query asked for history from before the current version of a type's schema, and was answered without it."""


def warn(warning: Warning) -> None:
    """Give a warning, in the name of the line outside this package that called it."""
    level, frame = 1, sys._getframe(0)
    inside = (__package__, "contextlib")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in inside:
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, stacklevel=level)


def __getattr__(name: str) -> Any:
    if name == "SchemaValidationError":
        warnings.warn("SchemaValidationError is called SchemaOutdatedError now", DeprecationWarning, stacklevel=2)
        return SchemaOutdatedError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
