"""The data pipeline on Spark: bulk load, scans, maintenance and streams, with the rules of the embedded path.

A room per verb: `reading`, `loading`, `writing`, `streaming`, `transfer`, `care`; what they share is here. Executors
read and stage files; the driver takes the write lease and publishes once. Everything goes over the protocol of engines:
nothing here asks for the class of one, and nothing below this folder knows of Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ontologia.extras import need

if TYPE_CHECKING:
    from ontologia.runtime.intake.reports import PipelineReport
    from ontologia.spark.care.compaction import compact
    from ontologia.spark.care.migration import migrate
    from ontologia.spark.loading.pipeline import Pipeline
    from ontologia.spark.reading.explaining import explain
    from ontologia.spark.reading.rows import read, read_stream
    from ontologia.spark.session import spark_session
    from ontologia.spark.tables import attach
    from ontologia.spark.transfer import copy_history, export_data, import_data

__all__ = [
    "Pipeline",
    "PipelineReport",
    "attach",
    "compact",
    "copy_history",
    "explain",
    "export_data",
    "import_data",
    "migrate",
    "read",
    "read_stream",
    "spark_session",
]

_HOMES = {
    "Pipeline": "spark.loading.pipeline",
    "PipelineReport": "runtime.intake.reports",
    "attach": "spark.tables",
    "compact": "spark.care.compaction",
    "copy_history": "spark.transfer.copying",
    "explain": "spark.reading.explaining",
    "export_data": "spark.transfer.exporting",
    "import_data": "spark.transfer.importing",
    "migrate": "spark.care.migration",
    "read": "spark.reading.rows",
    "read_stream": "spark.reading.rows",
    "spark_session": "spark.session",
}
_WITHOUT_SPARK = ("Pipeline", "PipelineReport")
"""What a pipeline without a session needs."""


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'ontologia.spark' has no attribute {name!r}")
    if name not in _WITHOUT_SPARK:
        need("pyspark", f"ontologia.spark.{name}")
    return getattr(importlib.import_module(f"ontologia.{_HOMES[name]}"), name)
