"""What a run takes away: identities that a source names, and in a sync those that it does not have.

Executors compare identities with those in force. What goes comes to the driver, which hands it to the commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog
from ontologia.errors import ValidationError
from ontologia.model import Declaration, TypeSchema
from ontologia.query.plan import LATEST
from ontologia.spark.failures import explain_failures
from ontologia.spark.loading.mapping import REASON
from ontologia.spark.reading.rows import read_stored_rows
from ontologia.spark.types import quote_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Removal:
    """Identities to remove, as `map_identity` has them."""

    declaration: Declaration
    keys: DataFrame


def find_named(spark: SparkSession, engine: Engine, catalog: Catalog, removal: Removal) -> pa.Table:
    """Which of the identities that a source names are there."""
    ref = removal.declaration.ref
    with explain_failures(f"looking for {ref} to remove"):
        wrong = removal.keys.where(quote_name(REASON) + " IS NOT NULL").select(quote_name(REASON)).first()
        if wrong is not None:
            raise ValidationError(f"{ref}: {wrong[0]}. Nothing was removed")
        stored = _in_force(spark, engine, catalog, removal.declaration.schema)
        return stored.join(removal.keys, list(ref.identity), "left_semi").toArrow()


def lacking(spark: SparkSession, engine: Engine, catalog: Catalog, schema: TypeSchema, rows: DataFrame) -> DataFrame:
    """Which identities in force the rows of a sync do not have."""
    identity = list(schema.ref.identity)
    return _in_force(spark, engine, catalog, schema).join(rows.select(*identity), identity, "left_anti")


def _in_force(spark: SparkSession, engine: Engine, catalog: Catalog, schema: TypeSchema) -> DataFrame:
    identity = schema.ref.identity
    return read_stored_rows(spark, engine, catalog, schema, LATEST, only=frozenset(identity)).select(*identity)
