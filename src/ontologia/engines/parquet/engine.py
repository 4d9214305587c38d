"""The engine on object storage: what s3/v1 and s3/v2 share. How it reads is in `read.answering`, in what they differ in
`versions`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from ontologia.config import OntologiaConfig
from ontologia.engines.capabilities import Capabilities
from ontologia.engines.care import CompactionReport, IndexReport, RepairReport, VacuumReport, Workers
from ontologia.engines.catalog import Commit, SchemaVersion
from ontologia.engines.features import Stamp
from ontologia.engines.locks import LeasedLocks
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.care import automatic, compaction, indexes, vacuum
from ontologia.engines.parquet.care.erasure import ParquetEraser
from ontologia.engines.parquet.history import ParquetHistory
from ontologia.engines.parquet.log.changes import list_changes
from ontologia.engines.parquet.log.records import CommitManifest, Head
from ontologia.engines.parquet.log.schemas import SchemaCatalog, refs_body
from ontologia.engines.parquet.read.answering import ParquetReads
from ontologia.engines.parquet.setup import read_version
from ontologia.engines.parquet.write import accelerators
from ontologia.engines.parquet.write.commit import HeadMovedError, ParquetTransaction
from ontologia.engines.parquet.write.holding import hold_lease, write_lease
from ontologia.engines.transaction import Transaction
from ontologia.engines.turns import Turn
from ontologia.errors import HeadMismatchError
from ontologia.files.spools import Spool
from ontologia.model import TypeRef
from ontologia.objects import SYSTEM_CLOCK, Lease, Location, Objects, system

if TYPE_CHECKING:
    from ontologia.engines.history import Declared

T = TypeVar("T")
_log = logging.getLogger(__name__)
ATTEMPTS = 8


class ParquetEngine(ParquetReads):
    """An ontology under one prefix of an object store: many readers and one writer at a time, on any machines."""

    backend = "s3"
    capabilities = Capabilities(object_storage=True, erasure=True)
    has_document: ClassVar[bool]
    """Whether rows carry `fields_json` beside their columns."""

    def __init__(self, objects: Objects, config: OntologiaConfig | None = None, *, head_path: str = paths.HEAD) -> None:
        super().__init__(objects, config, head_path)
        self.lease = write_lease(objects, self.config, self.runtime_id)
        self.warnings: list[str] = []
        self.turn = Turn()
        self.lease.wanted = self.turn.is_wanted
        self.mirrored: tuple[str | None] | None = None
        """The catalog whose mirrors were last seen to be right, by its manifest."""
        self._locks = LeasedLocks(objects, paths.lock, self.check_open)
        self.tidying = automatic.Tidying(self)
        self.opened_at = self.log.head().head  # a prefix that is not initialized fails here, before anything else
        self.lease.likely_there = self.opened_at.commit_id > 0

    @property
    def is_copy(self) -> bool:
        """Whether a copy is being written here, whose indices and registry are written when it is finished."""
        return self.log.head_path != paths.HEAD

    # --- what v1 and v2 say differently ---

    @staticmethod
    def data_path(folder: str, ref: TypeRef, version: int) -> str:
        raise TypeError("only s3/v1 and s3/v2 have paths")

    @staticmethod
    def snapshot_path(ref: TypeRef, version: int, first: int, last: int) -> str:
        raise TypeError("only s3/v1 and s3/v2 have paths")

    def index_extras(self, schemas: SchemaCatalog, ref: TypeRef) -> dict[str, Any]:
        """What an index says of schema versions: nothing, in v1."""
        return {}

    def mirrors(self, schemas: SchemaCatalog) -> dict[str, dict[str, Any]]:
        """The objects that repeat parts of the catalog for others to read: what was dropped, once anything was."""
        return {paths.DROPPED: {"dropped": refs_body(schemas.dropped)}} if schemas.dropped else {}

    # --- writing ---

    @property
    def staging_area(self) -> Location:
        return self.location

    def locked(self) -> AbstractContextManager[Lease]:
        """Hold the write lease: one thread of this process, and one process of all."""
        return hold_lease(self)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        with self.locked() as lease:
            transaction = ParquetTransaction(self, lease, self.log.head())
            try:
                yield transaction
            finally:
                transaction.discard_local()

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """RFC 0004 §3.4: after a lost swap, release, start again from the new head, with jittered backoff."""
        for attempt in range(ATTEMPTS):
            try:
                with self.write() as transaction:
                    return work(transaction)
            except HeadMovedError as moved:
                reason = moved
                SYSTEM_CLOCK.sleep(system().random.uniform(0.5, 1.0) * min(0.05 * 2**attempt, 1.0))
        raise HeadMismatchError(f"gave up after {ATTEMPTS} lost races: {reason}")

    def put_all(self, writes: Mapping[str, bytes | Spool]) -> None:
        """Write several objects side by side."""

        def put(item: tuple[str, bytes | Spool]) -> None:
            key, content = item
            if isinstance(content, Spool):
                content.put(self.objects, key)
            else:
                self.objects.put(key, content)

        self.objects.map(put, writes.items())

    def after_swap(
        self,
        before: Head,
        head: Head,
        manifest: CommitManifest,
        schemas: SchemaCatalog,
        known: SchemaCatalog,
        written: Mapping[str, bytes],
    ) -> None:
        """RFC 0004 §3.3 step 8: the accelerators, best effort. The commit stands whatever happens here."""
        self.warnings = []
        assert head.manifest_path is not None
        self.log.remember(head.manifest_path, manifest)
        if self.is_copy:
            return
        try:
            accelerators.bring_up(self, before, head, manifest, schemas, known)
            self.reader.keep(written)
            self.tidying.look_at(manifest)
        except Exception as problem:
            self.warn(f"commit {head.commit_id} is done, but its indices are not up to date: {problem}")

    def warn(self, message: str) -> None:
        """Tell the operator, in the log and on the repository."""
        self.warnings.append(message)
        _log.warning(message)

    # --- the log ---

    def commits(self, *, limit: int | None = None, since: int | None = None) -> list[Commit]:
        return list(islice(self.walk(since or 0), limit if limit is None else max(limit, 0)))

    def walk(self, since: int = 0) -> Iterator[Commit]:
        return (_commit(manifest) for _, manifest in self.log.chain(self.log.head().head, since))

    def get_commit(self, commit_id: int) -> dict[str, Any] | None:
        found = self.log.find(self.log.head().head, commit_id)
        return None if found is None else _commit(found[1]).to_dict()

    def list_commit_changes(self, commit_id: int) -> list[dict[str, Any]]:
        return list_changes(self, commit_id)

    def schema_versions(self, ref: TypeRef | None = None) -> list[SchemaVersion]:
        schemas = self.log.schemas(self.log.head().head)
        return list(schemas.versions) if ref is None else schemas.of(ref)

    def history(self, declared: Declared | None = None) -> ParquetHistory:
        return ParquetHistory(self)

    @property
    def locks(self) -> LeasedLocks:
        return self._locks

    # --- care ---

    def index_verify(self) -> IndexReport:
        """How every index stands against the head (RFC 0004 §3.5)."""
        return indexes.verify(self)

    def index_repair(self, *, apply: bool = False) -> RepairReport:
        """Rebuild indices that lag, miss the head or cannot be read. A preview unless `apply` is set."""
        return indexes.repair(self, apply=apply)

    def compact(
        self, type_name: str | None = None, *, apply: bool = False, workers: Workers | None = None
    ) -> CompactionReport:
        """Merge the files of each type into one snapshot (RFC 0004 §6). A preview unless `apply` is set."""
        return compaction.compact(self, type_name, apply=apply, workers=workers)

    def tidy(self, after: Literal["load", "commit"]) -> None:
        self.tidying.begin(after)

    def close(self) -> None:
        self.tidying.wait()
        if self.lease.held and not self.turn.is_wanted():
            self.lease.release()  # a call that was interrupted left it behind
        self.log.close()
        super().close()

    def vacuum(
        self, older_than_s: float = 7 * 86_400.0, *, apply: bool = False, compacted: bool = False
    ) -> VacuumReport:
        """Delete orphan attempts, replaced snapshots and expired locks. A preview unless `apply` is set.

        With `compacted`, files of commits go as well whose rows a snapshot has.
        """
        return vacuum.vacuum(self, older_than_s, apply=apply, compacted=compacted)

    def eraser(self) -> ParquetEraser:
        return ParquetEraser(self)

    # --- about the store ---

    def features(self) -> frozenset[str]:
        return Stamp.read(read_version(self.objects)).features

    def event_place(self) -> Objects:
        return self.objects

    def storage_info(self) -> dict[str, Any]:
        head = self.log.head().head
        base = self.log.compacted(head).base
        return {
            "backend": self.backend,
            "engine_version": self.engine_version,
            "storage_uri": self.objects.uri,
            "head_commit_id": head.commit_id,
            **({"history_begins_at": base} if base else {}),
            **({"features": features} if (features := sorted(self.features())) else {}),
        }


def _commit(manifest: CommitManifest) -> Commit:
    return Commit(manifest.commit_id, manifest.created_at, manifest.runtime_id, manifest.metadata)
