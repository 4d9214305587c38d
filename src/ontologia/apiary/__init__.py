"""Frames: partitioned Parquet tables with a ledger, on a directory or a bucket.

Here live the registry, the ledger, cells, reading, rewriting, care, SQL over frames, and the colony of bees. Types and
commits of ontologies do not: a frame is a plain Arrow table with versions.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ontologia.errors import ExtraColumnsWarning

if TYPE_CHECKING:
    from ontologia.apiary.apiary import Apiary
    from ontologia.apiary.frame import Frame
    from ontologia.apiary.results import RewriteResult, VacuumResult, VersionChange, WriteResult
    from ontologia.apiary.rewriting import Computed

# Looked up when asked for: they load Arrow.
_LATER = {
    "Apiary": "apiary",
    "Computed": "rewriting",
    "Frame": "frame",
    "RewriteResult": "results",
    "VacuumResult": "results",
    "VersionChange": "results",
    "WriteResult": "results",
}

__all__ = [
    "Apiary",
    "Computed",
    "ExtraColumnsWarning",
    "Frame",
    "RewriteResult",
    "VacuumResult",
    "VersionChange",
    "WriteResult",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"ontologia.apiary.{_LATER[name]}"), name)
