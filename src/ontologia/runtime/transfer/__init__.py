"""Moving data between stores (RFC 0004 §8): export to files, import as one commit, both in bounded memory.

The files are the same whatever engine wrote them: one per type, as JSON lines or as Parquet. An import collapses
whatever the files hold into a single commit; the history of commits travels with `copy_history`, between stores and
out of the files of `export_history`.
"""

from __future__ import annotations

from ontologia.runtime.transfer.conflicts import OnConflict, Precondition
from ontologia.runtime.transfer.copying import CopyReport, copy_history, largest_commit
from ontologia.runtime.transfer.export_source import is_export, is_exported_history
from ontologia.runtime.transfer.exporting import ExportReport, TypeExport, export_data, rows_to_export
from ontologia.runtime.transfer.files import rows_to_import
from ontologia.runtime.transfer.history_exports import export_history
from ontologia.runtime.transfer.importing import ImportReport, TypeImport, import_data
from ontologia.runtime.transfer.state_copies import copy_state

__all__ = [
    "CopyReport",
    "ExportReport",
    "ImportReport",
    "OnConflict",
    "Precondition",
    "TypeExport",
    "TypeImport",
    "copy_history",
    "copy_state",
    "export_data",
    "export_history",
    "import_data",
    "is_export",
    "is_exported_history",
    "largest_commit",
    "rows_to_export",
    "rows_to_import",
]
