"""Lets Spark find `format("ontologia")` by itself: it looks for `DefaultSource` in modules named `pyspark_*`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from ontologia.spark.source import OntologiaSource


class DefaultSource(DataSource):
    """The data source of `ontologia.spark.source`, loaded when it is used: Spark has a process of its own ask every
    such module for the name."""

    def __new__(cls, options: dict[str, str]) -> OntologiaSource:  # type: ignore[misc]
        from ontologia.spark.source import OntologiaSource

        return OntologiaSource(options)

    @classmethod
    def name(cls) -> str:
        return "ontologia"
