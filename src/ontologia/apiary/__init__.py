"""Frames: partitioned Parquet tables with a ledger, on a directory or a bucket.

Here live the registry, the ledger, cells, reading, rewriting, care, SQL over frames, and the colony of bees. Types and
commits of ontologies do not: a frame is a plain Arrow table with versions.
"""

from ontologia.apiary.apiary import Apiary
from ontologia.apiary.frame import Frame
from ontologia.apiary.results import RewriteResult, VacuumResult, VersionChange, WriteResult
from ontologia.apiary.rewriting import Computed
from ontologia.errors import ExtraColumnsWarning

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
