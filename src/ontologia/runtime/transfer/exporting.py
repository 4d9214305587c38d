"""Out of a store: the rows of each type, a page at a time, in order of identity, into one file per type."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import quote

from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog, TypeLayout
from ontologia.engines.diagnostics import forgotten_history, window_diagnostics
from ontologia.engines.versions import is_cut
from ontologia.errors import HistoryCutError, ValidationError
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, TypeRef, TypeSchema
from ontologia.model.upgraders import Upgraders, registered_upgraders
from ontologia.query.compiler import REMOVED
from ontologia.query.in_force import mark_removals
from ontologia.query.plan import Across, Plan, Window, check_commit
from ontologia.runtime.pages import pages
from ontologia.runtime.store import Store
from ontologia.runtime.transfer.history_format import HEADER, history_section
from ontologia.runtime.transfer.records import lines

if TYPE_CHECKING:
    import pyarrow as pa

Format = Literal["jsonl", "parquet"]
Progress = Callable[[str, int, int], None]
LINES_AT_ONCE = 5_000
FOLDERS = {"entity": "entities", "relation": "relations"}


@dataclass(frozen=True, slots=True)
class TypeExport:
    """What was written of one type."""

    ref: TypeRef
    file: str
    rows: int


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export wrote, of the state at which head."""

    directory: Path
    format: Format
    head: int
    types: list[TypeExport] = field(default_factory=list)
    commit: int = 0
    """The commit whose state was written, or up to which history was."""
    diagnostics: list[dict[str, Any]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(item.rows for item in self.types)


@dataclass(frozen=True, slots=True)
class ExportJob:
    """What of each type to write, and in which form."""

    catalog: Catalog
    window: Window
    format: Format
    with_metadata: bool
    across: Across | None = None

    @property
    def versions(self) -> bool:
        """Whether rows are versions, of which some may be removals."""
        return not self.window.deduplicated

    @property
    def head(self) -> int:
        return self.catalog.head

    @property
    def commit(self) -> int:
        """The commit whose state is written, or up to which history is."""
        return self.window.commit if self.window.mode == "as_of" and self.window.commit is not None else self.head


WriteType = Callable[[ExportJob, TypeLayout, Path], TypeExport]
"""Writes one type below a folder: this process into a file, Spark into a folder of parts."""


def export_data(
    store: Store,
    directory: str | os.PathLike[str],
    *,
    types: Sequence[str] | None = None,
    as_of: int | None = None,
    history_since: int | None = None,
    with_metadata: bool = False,
    format: Format = "jsonl",
    progress: Progress | None = None,
    write: WriteType | None = None,
    across_versions: bool = False,
    upgraders: Upgraders | None = None,
) -> ExportReport:
    """Write the latest state of every type, or of `types`, into a new folder.

    `as_of` takes the state after a commit instead; `history_since` every version written after one, with its commit.
    With `across_versions`, rows of earlier schema versions are written as rows of today's, past the `upgraders` where
    they need them; without it, a state from before a migration is refused. The folder appears when it is complete, so
    that half an export cannot be taken for a whole one.
    """
    target = Path(directory)
    job, layouts = _plan(
        store, types, as_of, history_since, format, with_metadata, _across(store, across_versions, upgraders)
    )
    if as_of is not None and job.across is None:
        _check_complete(store.engine, job, layouts)
    write = write or _InProcess(store.engine, job, layouts, progress)
    with new_folder(target) as working:
        written = [write(job, layout, working) for layout in layouts]
        header = _header(job, layouts, written, as_of, history_since)
        if history_since == 0 and types is None and job.across is None:
            files = {item.ref: item.file for item in written}
            header |= history_section(store.engine, job.head, files, working)
        write_header(working, header)
    window = job.window if as_of is None else Window("as_of", as_of)
    refs = [] if job.across is not None else [layout.ref for layout in layouts]
    diagnostics = window_diagnostics(window, refs, store.engine, job.catalog)
    diagnostics += forgotten_history(window, [layout.ref for layout in layouts], store.engine, job.catalog)
    return ExportReport(target, format, job.head, written, job.commit, diagnostics)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder that has its name when all is in it."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValidationError(f"{target} is there already and not an empty folder: choose another one")
    working = target.parent / f".{target.name}.{secrets.token_hex(4)}.partial"
    try:
        working.mkdir(parents=True)
        yield working
        if target.exists():
            target.rmdir()
        working.rename(target)
    except BaseException:
        shutil.rmtree(working, ignore_errors=True)
        raise


def write_header(folder: Path, header: Mapping[str, Any]) -> None:
    (folder / HEADER).write_text(json.dumps(header, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def rows_to_export(
    store: Store,
    *,
    types: Sequence[str] | None = None,
    as_of: int | None = None,
    history_since: int | None = None,
    with_metadata: bool = False,
    format: Format = "jsonl",
    across_versions: bool = False,
    upgraders: Upgraders | None = None,
) -> int:
    """How many rows an export would write."""
    across = _across(store, across_versions, upgraders)
    job, layouts = _plan(store, types, as_of, history_since, format, with_metadata, across)
    return sum(_count(store.engine, layout, job) for layout in layouts)


def _across(store: Store, wanted: bool, upgraders: Upgraders | None) -> Across | None:
    if not wanted:
        return None
    return Across(store.declarations, registered_upgraders() if upgraders is None else upgraders)


def _check_complete(engine: Engine, job: ExportJob, layouts: Sequence[TypeLayout]) -> None:
    """Refuse a state that would lack rows: an export is taken for all there was."""
    cut = [layout for layout in layouts if is_cut(engine, layout.ref, job.window, job.catalog)]
    if cut:
        said = ", ".join(f"{layout.ref} (since commit {layout.activation_commit_id})" for layout in cut)
        raise HistoryCutError(
            f"the state at commit {job.commit} would be exported without the rows of {said}, whose schemas are newer: "
            "export it across versions, with across_versions=True or --across-versions"
        )


def _plan(
    store: Store,
    types: Sequence[str] | None,
    as_of: int | None,
    history_since: int | None,
    format: Format,
    with_metadata: bool,
    across: Across | None,
) -> tuple[ExportJob, list[TypeLayout]]:
    if as_of is not None and history_since is not None:
        raise ValidationError("an export is as_of a commit or history_since a commit, not both")
    for name, commit in (("as_of", as_of), ("history_since", history_since)):
        if commit is not None:
            check_commit(name, commit)
    catalog = store.engine.catalog()
    # The head is fixed, so that commits made meanwhile do not mix into later pages.
    window = Window("as_of", catalog.head if as_of is None else min(as_of, catalog.head))
    catalog.check_remembers(window)
    if history_since is not None:
        window = Window("since", history_since)
        with_metadata = True  # of which commit a version is, is what makes it one
    return ExportJob(catalog, window, format, with_metadata, across), _choose(catalog.layouts.values(), types)


def _choose(layouts: Any, names: Sequence[str] | None) -> list[TypeLayout]:
    found = sorted(layouts, key=lambda layout: layout.ref)
    if names is None:
        return found
    for name in names:
        if not any(layout.ref.name == name for layout in found):
            known = ", ".join(layout.ref.name for layout in found) or "no types"
            raise ValidationError(f"{name} is not in this store; it has {known}")
    return [layout for layout in found if layout.ref.name in names]


def _header(
    job: ExportJob,
    layouts: Sequence[TypeLayout],
    written: Sequence[TypeExport],
    as_of: int | None,
    history_since: int | None,
) -> dict[str, Any]:
    return {
        "format": job.format,
        "version": 1,
        "exported_at": datetime.now(UTC).isoformat(),
        "head": job.head,
        "as_of": as_of,
        "history_since": history_since,
        "with_metadata": job.with_metadata,
        "types": [
            {
                "kind": item.ref.kind,
                "type": item.ref.name,
                "file": item.file,
                "rows": item.rows,
                "schema": layout.schema.to_json(),
            }
            for item, layout in zip(written, layouts, strict=True)
        ],
    }


class _InProcess:
    """Reads page after page, in bounded memory."""

    def __init__(
        self, engine: Engine, job: ExportJob, layouts: Sequence[TypeLayout], progress: Progress | None
    ) -> None:
        self.engine = engine
        self.progress = progress
        self.done = 0
        self.total = 0 if progress is None else sum(_count(engine, layout, job) for layout in layouts)

    def __call__(self, job: ExportJob, layout: TypeLayout, folder: Path) -> TypeExport:
        ref = layout.ref
        path = folder / f"{stem_of(ref)}.{job.format}"
        path.parent.mkdir(exist_ok=True)
        rows = 0
        with new_file(path, layout.schema, job) as file:
            for page in pages(self.engine, layout.schema, job.window, job.head, across=job.across):
                file.write(page if job.window.deduplicated else _mark_removals(page))
                rows += page.num_rows
                self.done += page.num_rows
                if self.progress is not None:
                    self.progress(ref.name, self.done, max(self.total, self.done))
        return TypeExport(ref, path.relative_to(folder).as_posix(), rows)


def _mark_removals(versions: pa.Table) -> pa.Table:
    """Versions whose removals are superseded by their own commit, as stored ones are."""
    own = mark_removals(versions.column(REMOVED), versions.column(COMMIT_ID))
    return versions.drop_columns([REMOVED]).append_column(SUPERSEDED_BY, own)


def stem_of(ref: TypeRef) -> str:
    """Where a type lies in an export, without a suffix."""
    return f"{FOLDERS[ref.kind]}/{quote(ref.name, safe='')}"


def _count(engine: Engine, layout: TypeLayout, job: ExportJob) -> int:
    return int(engine.fetch(Plan.counting(layout.schema, job.window, across=job.across)).columns[0][0])


# --- files ---


class TypeFile(Protocol):
    """A file that takes pages."""

    def write(self, page: pa.Table) -> None: ...


def new_file(path: Path, schema: TypeSchema, job: FileForm) -> AbstractContextManager[TypeFile]:
    make = JsonlFile if job.format == "jsonl" else ParquetFile
    return make(path, schema, job)


class FileForm(Protocol):
    """In which form rows are written."""

    @property
    def format(self) -> Format: ...

    @property
    def with_metadata(self) -> bool: ...

    @property
    def versions(self) -> bool:
        """Whether rows are versions, of which some may be removals."""


class JsonlFile:
    """One record a line; one that is a removal says so."""

    def __init__(self, path: Path, schema: TypeSchema, form: FileForm) -> None:
        self._file = path.open("w", encoding="utf-8", newline="\n")
        self._schema = schema
        self._with_metadata = form.with_metadata

    def write(self, page: pa.Table) -> None:
        for start in range(0, page.num_rows, LINES_AT_ONCE):
            for line in lines(self._schema, page.slice(start, LINES_AT_ONCE), with_metadata=self._with_metadata):
                self._file.write(line)
                self._file.write("\n")

    def __enter__(self) -> TypeFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class ParquetFile:
    """Identity and fields as typed columns, structured fields as JSON text; removals are superseded by their commit."""

    def __init__(self, path: Path, schema: TypeSchema, form: FileForm) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        system = [pa.field(name, pa.string()) for name in schema.ref.identity]
        if form.with_metadata:
            system.append(pa.field(COMMIT_ID, pa.int64()))
        if form.versions:
            system.append(pa.field(SUPERSEDED_BY, pa.int64()))
        fields = [pa.field(column.physical, column.arrow_type) for column in schema.columns]
        about = {"ontologia.kind": schema.ref.kind, "ontologia.type": schema.ref.name}
        self._schema = pa.schema([*system, *fields], about)
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")

    def write(self, page: pa.Table) -> None:
        self._writer.write_table(page.select(self._schema.names).cast(self._schema))

    def __enter__(self) -> TypeFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
