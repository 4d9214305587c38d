"""Frames on Spark: executors read and write cells, the driver commits one ledger entry.

Found by the entry point `ontologia.frames`, since frames do not know Spark.
"""

from ontologia.spark.frames.work import compact, dataframe, overwrite, query, write

__all__ = ["compact", "dataframe", "overwrite", "query", "write"]
