"""Export and import by executors: the files, rules, reports and errors of the embedded path."""

from ontologia.spark.transfer.exporting import export_data
from ontologia.spark.transfer.importing import import_data

__all__ = ["export_data", "import_data"]
