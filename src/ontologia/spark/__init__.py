"""The data pipeline on Spark: bulk load, scans, maintenance and streams, with the rules of the embedded path.

Executors read and stage files; the driver takes the write lease and publishes once. Nothing below this folder knows
of Spark, and nothing here evaluates a filter or a delta by rules of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ontologia.spark.bulk import compact, migrate
    from ontologia.spark.pipeline import Pipeline, PipelineReport
    from ontologia.spark.reading import read, read_stream
    from ontologia.spark.session import spark_session
    from ontologia.spark.transfer import export_data, import_data

__all__ = [
    "Pipeline",
    "PipelineReport",
    "compact",
    "export_data",
    "import_data",
    "migrate",
    "read",
    "read_stream",
    "spark_session",
]

_HOMES = {
    "Pipeline": "pipeline",
    "PipelineReport": "pipeline",
    "compact": "bulk",
    "export_data": "transfer",
    "import_data": "transfer",
    "migrate": "bulk",
    "read": "reading",
    "read_stream": "reading",
    "spark_session": "session",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'ontologia.spark' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ontologia.spark.{_HOMES[name]}"), name)
