"""Export, import and copies by executors: the files, rules, reports and errors of the embedded path."""

from ontologia.spark.transfer.copying import copy_history
from ontologia.spark.transfer.exporting import export_data
from ontologia.spark.transfer.importing import import_data

__all__ = ["copy_history", "export_data", "import_data"]
