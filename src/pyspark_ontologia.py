"""Lets Spark find `format("ontologia")` by itself: it looks for `DefaultSource` in modules named `pyspark_*`."""

from ontologia.spark.source import OntologiaSource as DefaultSource

__all__ = ["DefaultSource"]
