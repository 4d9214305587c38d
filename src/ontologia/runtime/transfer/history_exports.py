"""A whole history out of a store, as files: the log, and every version of every row under the schema it had."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ontologia.engines.catalog import SchemaVersion
from ontologia.engines.features import FORGOTTEN, REMOVALS
from ontologia.engines.history import History
from ontologia.errors import HistoryForgottenError
from ontologia.model import SUPERSEDED_BY, Declared, TypeRef
from ontologia.runtime.store import Store
from ontologia.runtime.transfer.copying import as_declared
from ontologia.runtime.transfer.exporting import (
    ExportReport,
    Format,
    Progress,
    TypeExport,
    new_file,
    new_folder,
    stem_of,
    write_header,
)
from ontologia.runtime.transfer.history_format import HISTORY, ExportedHistory, write_log

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class VersionsForm:
    """How files of versions are written: with their commits, and with what marks removals."""

    format: Format
    with_metadata: bool = True
    versions: bool = True


def export_history(
    store: Store,
    directory: str | os.PathLike[str],
    *,
    format: Format = "jsonl",
    types: Iterable[type[Declared]] = (),
    progress: Progress | None = None,
) -> ExportReport:
    """Write everything that a store has been into a new folder, from which `copy_history` makes the same store again.

    `types` are the classes, which stores of 0.3 need, as a copy does.
    """
    engine = store.engine
    if FORGOTTEN in engine.features():
        raise HistoryForgottenError(
            "the history of this store does not begin at its first commit, and an export cannot say so: copy it with "
            "onto copy --with-history, or export its state"
        )
    history = engine.history({cls.__declaration__.ref: as_declared(cls) for cls in types})
    past = history.past()
    form, files, written = VersionsForm(format), {}, []
    with new_folder(Path(directory)) as folder:
        write_log(folder, history.commits(0, past.head))
        for version in past.versions:
            if version.activation_commit_id is None or version.ref in past.purged:
                continue
            item = _write_version(history, past.head, version, form, folder)
            files[version.ref, version.schema_version_id] = item.file
            written.append(item)
            if progress is not None:
                progress(version.ref.name, len(written), len(past.versions))
        exported = ExportedHistory(past, files, REMOVALS in engine.features())
        current = {version.ref: version for version in past.versions if version.activation_commit_id is not None}
        write_header(
            folder,
            {
                "format": format,
                "version": 1,
                "exported_at": datetime.now(UTC).isoformat(),
                "head": past.head,
                "as_of": None,
                "history_since": 0,
                "with_metadata": True,
                "types": [_about(ref, version, written) for ref, version in sorted(current.items())],
                HISTORY: exported.body(),
            },
        )
    return ExportReport(Path(directory), format, past.head, written, past.head)


def _about(ref: TypeRef, version: SchemaVersion, written: list[TypeExport]) -> dict[str, object]:
    own = [item for item in written if item.ref == ref]
    about = {"kind": ref.kind, "type": ref.name, "file": stem_of(ref), "rows": sum(item.rows for item in own)}
    return {**about, "schema": version.schema.to_json()}


def _write_version(history: History, head: int, version: SchemaVersion, form: VersionsForm, folder: Path) -> TypeExport:
    path = folder / stem_of(version.ref) / f"v{version.schema_version_id}.{form.format}"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = 0
    with new_file(path, version.schema, form) as file:
        for table in _mark_removals(history.rows(version, 0, head)):
            file.write(table)
            rows += table.num_rows
    return TypeExport(version.ref, path.relative_to(folder).as_posix(), rows)


def _mark_removals(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Versions that all have the column that marks removals."""
    import pyarrow as pa

    for table in tables:
        known = SUPERSEDED_BY in table.column_names
        yield table if known else table.append_column(SUPERSEDED_BY, pa.nulls(table.num_rows, pa.int64()))
