"""Into a store: read and check every file first, then write all of it as one commit (RFC 0004 §8)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog, TypeLayout, user_metadata
from ontologia.engines.changes import INSERT
from ontologia.engines.transaction import Transaction
from ontologia.errors import ImportConflictError
from ontologia.files.scratch import Scratch
from ontologia.model import TypeRef, TypeSchema
from ontologia.query.plan import Plan
from ontologia.runtime.delta import OPERATION, delta
from ontologia.runtime.store import Store
from ontologia.runtime.transfer.conflicts import OnConflict, Precondition, Rules
from ontologia.runtime.transfer.exporting import Progress
from ontologia.runtime.transfer.files import Readers, Split, check_records, files_of
from ontologia.runtime.transfer.history_format import check_has_one_version
from ontologia.runtime.transfer.staging import StagedType

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(slots=True)
class TypeImport:
    """What an import does to one type. `repeated` counts rows that a later row of the same identity replaced."""

    ref: TypeRef
    rows: int = 0
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    skipped: int = 0
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did, or would do. `refused` says why a dry run's import would fail."""

    applied: bool
    head: int
    types: list[TypeImport] = field(default_factory=list)
    commit_id: int | None = None
    refused: str | None = None

    @property
    def rows(self) -> int:
        return sum(item.rows for item in self.types)


class Staged(Protocol):
    """The checked rows of one type, read before any lock is taken."""

    @property
    def schema(self) -> TypeSchema: ...

    @property
    def rows(self) -> int: ...


Refuse = Callable[[str | None], None]
"""Takes the reason against an import, or None where there is none."""


class Work(Protocol):
    """Who reads the files and compares their rows with the store: this process, or Spark."""

    def stage(self, files: Sequence[Path], readers: Readers) -> AbstractContextManager[Mapping[TypeRef, Any]]: ...

    def merge(self, item: Any, catalog: Catalog, transaction: Transaction | None, refuse: Refuse) -> TypeImport:
        """Add what is new of one type to a transaction; without one, only say what that would be."""


def import_data(
    store: Store,
    path: str | os.PathLike[str],
    *,
    dry_run: bool = True,
    on_conflict: OnConflict = "abort",
    precondition: str | Precondition | None = None,
    meta: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    work: Callable[[Rules], Work] | None = None,
) -> ImportReport:
    """Import an exported folder, or one file of it, as one commit; with `dry_run`, only say what would happen.

    Rows are checked with the declared classes, else with the stored schemas, else with those of the export. A commit
    of any size takes bounded memory: `max_batch_size` is for sessions, not for this.
    """
    parsed = Precondition.parse(precondition) if isinstance(precondition, str) else precondition
    rules = Rules(on_conflict, parsed)
    metadata = {"kind": "import", **user_metadata(meta)}
    source = Path(path)
    check_has_one_version(source)
    engine = store.engine
    catalog = engine.catalog()
    catalog.check(store.schemas)
    worker = _InProcess(engine, rules, progress) if work is None else work(rules)
    with worker.stage(files_of(source), Readers(store, catalog, source)) as staged:
        if dry_run:
            return _preview(engine, rules, worker, staged)
        done = engine.transact(lambda transaction: _apply(transaction, rules, worker, staged, metadata))
    engine.tidy("load")
    return done


def _preview(engine: Engine, rules: Rules, worker: Work, staged: Mapping[TypeRef, Staged]) -> ImportReport:
    catalog = engine.catalog()
    refusals = [rules.about_head(catalog.head)]
    done = [worker.merge(item, catalog, None, refusals.append) for item in staged.values()]
    return ImportReport(False, catalog.head, done, refused=next(filter(None, refusals), None))


def _apply(
    transaction: Transaction,
    rules: Rules,
    worker: Work,
    staged: Mapping[TypeRef, Staged],
    metadata: Mapping[str, str],
) -> ImportReport:
    catalog = transaction.catalog
    catalog.check({ref: item.schema for ref, item in staged.items()})
    _refuse(rules.about_head(catalog.head))
    done = [worker.merge(item, catalog, transaction, _refuse) for item in staged.values()]
    if not any(item.inserted or item.updated for item in done):
        return ImportReport(True, catalog.head, done)
    return ImportReport(True, catalog.head, done, commit_id=transaction.publish(metadata))


def _refuse(reason: str | None) -> None:
    if reason is not None:
        raise ImportConflictError(f"{reason}. Nothing was imported")


def merge_rows(found: TypeImport, rows: pa.Table, stored: pa.Table | None, rules: Rules) -> tuple[pa.Table, str | None]:
    """The rows to write of a chunk that has each identity once, and why they must not be; what becomes of all is
    added to `found`."""
    import pyarrow.compute as pc

    reason = rules.about_rows(found.ref, rows, stored)
    changes = delta(rows, stored, found.ref.identity)
    is_new = pc.equal(changes.column(OPERATION), INSERT)
    inserted = pc.sum(is_new).as_py() or 0
    found.inserted += inserted
    found.unchanged += rows.num_rows - changes.num_rows
    if rules.on_conflict == "skip":
        found.skipped += changes.num_rows - inserted
        changes = changes.filter(is_new)
    else:
        found.updated += changes.num_rows - inserted
    return changes.drop_columns([OPERATION]), reason


# --- in this process ---


class _InProcess:
    """Reads file after file and merges chunk after chunk, in bounded memory."""

    def __init__(self, engine: Engine, rules: Rules, progress: Progress | None) -> None:
        self.engine = engine
        self.rules = rules
        self.progress = progress

    @contextmanager
    def stage(self, files: Sequence[Path], readers: Readers) -> Iterator[Mapping[TypeRef, StagedType]]:
        with Scratch("import") as folder:
            yield self._read(files, readers, Path(folder))

    def _read(self, files: Sequence[Path], readers: Readers, folder: Path) -> dict[TypeRef, StagedType]:
        found: dict[TypeRef, StagedType] = {}
        total, before = sum(path.stat().st_size for path in files), 0
        for path in files:
            earlier = 0
            for _, done, reader, identity, values in check_records(Split(path), readers):
                item = found.get(reader.ref)
                if item is None:
                    item = found[reader.ref] = StagedType(reader, folder / str(len(found)))
                item.add(identity, values, done - earlier)
                earlier = done
                if self.progress is not None and item.rows % 1_000 == 0:
                    self.progress("reading", min(before + done, total), total)
            before += path.stat().st_size
        for item in found.values():
            item.seal()
        return dict(sorted(found.items()))

    def merge(self, item: StagedType, catalog: Catalog, transaction: Transaction | None, refuse: Refuse) -> TypeImport:
        schema, ref = item.schema, item.schema.ref
        found = TypeImport(ref, rows=item.rows)
        layout: TypeLayout | None = None
        seen = 0
        for rows in item.tables():
            seen += rows.num_rows
            stored = self._current(schema, rows, catalog, transaction)
            changes, reason = merge_rows(found, rows, stored, self.rules)
            refuse(reason)
            if transaction is not None and changes.num_rows:
                layout = layout or transaction.layout_for(schema)
                transaction.append(layout, changes)
            if self.progress is not None:
                self.progress(f"writing {ref.name}", seen, item.rows)
        found.repeated = item.rows - seen
        return found

    def _current(
        self, schema: TypeSchema, rows: pa.Table, catalog: Catalog, transaction: Transaction | None
    ) -> pa.Table | None:
        if schema.ref not in catalog.layouts:
            return None
        keys = rows.select(list(schema.ref.identity))
        if transaction is not None:
            return transaction.current(schema, keys)
        return self.engine.table(Plan.of(schema, keyed=True, stored=True), keys)
