"""How rows are spread over tasks: by ranges of identity, cut where a sample of them says.

Spark's own ranges would compute every column of the source for the sample. Here it reads identities alone, and tells
about how many rows there are, so that the number of tasks fits them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

SAMPLED, SAMPLED_SHARE, SAMPLED_PER_TASK = 5_000, 0.002, 50
FEW_ROWS = 50_000
"""So many rows are worth a task of their own."""
BATCH_ROWS = 4_096
UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Ranged:
    """Rows in as many partitions as fit them, each a range of identities; and about how many rows there are."""

    rows: DataFrame
    count: int


def ranged(rows: DataFrame, identity: Sequence[str], rows_per_task: int, identities: DataFrame | None = None) -> Ranged:
    """Cut rows into ranges of about so many rows, and into enough of them to keep all cores busy.

    `identities` are those of the rows, for rows of which Spark cannot read some columns alone.
    """
    keys = (rows if identities is None else identities).select(*(f"`{name}`" for name in identity))
    most = _parallelism(rows.sparkSession)

    def tasks_for(count: int) -> int:
        return max(-(-count // rows_per_task), min(most, count // FEW_ROWS), 1)

    count, sample = sampled(keys, SAMPLED_SHARE)
    if tasks_for(count) > 1 and len(sample) < SAMPLED_PER_TASK * tasks_for(count):
        count, sample = sampled(keys, 1.0)
    tasks = tasks_for(count)
    cuts = sorted({sample[len(sample) * number // tasks] for number in range(1, tasks)} if sample else ())
    return Ranged(rows.repartitionById(len(cuts) + 1, _place(identity, cuts)), count)


def sampled(keys: DataFrame, share: float) -> tuple[int, list[tuple[str, ...]]]:
    """About how many rows there are, from a share of them, and the identities of some, in order."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    seen = Observation()
    first = sql.monotonically_increasing_id() % 2**33 == 0  # in its partition: where there are rows, some are drawn
    drawn = keys.where((sql.rand(seed=1) < share) | first).observe(seen, sql.count(sql.lit(1)).alias("drawn"))
    found = drawn.orderBy(sql.rand(seed=2)).limit(SAMPLED).collect()
    count = int(seen.get["drawn"] / share) if found else 0  # of no rows nothing is observed
    return count, sorted(tuple(row) for row in found if None not in row)


def _parallelism(spark: SparkSession) -> int:
    """How many tasks run at a time; a Connect session cannot tell, and has what was set for its shuffles."""
    context: Any = getattr(spark, "_sc", None)
    found: Any = spark.conf.get("spark.sql.shuffle.partitions") if context is None else context.defaultParallelism
    return int(found)


def _place(identity: Sequence[str], cuts: Sequence[tuple[str, ...]]) -> SparkColumn:
    """The number of the range that a row lies in, found by halving."""
    from pyspark.sql import functions as sql

    def within(first: int, last: int) -> SparkColumn:
        if first == last:
            return sql.lit(first)
        middle = (first + last) // 2
        return sql.when(_before(identity, cuts[middle]), within(first, middle)).otherwise(within(middle + 1, last))

    return within(0, len(cuts))


def _before(identity: Sequence[str], cut: tuple[str, ...]) -> SparkColumn:
    """Whether a row's identity comes before a cut, part by part."""
    from pyspark.sql import functions as sql

    parts = [(sql.col(f"`{name}`"), part) for name, part in zip(identity, cut, strict=True)]
    *rest, (last, bound) = parts
    return reduce(lambda later, part: (part[0] < part[1]) | ((part[0] == part[1]) & later), rest[::-1], last < bound)


@contextmanager
def quick_batches(spark: SparkSession, rows: DataFrame) -> Iterator[None]:
    """Hand rows to Python in small batches of no measured size: measuring after every row costs more than the rest.

    Rows with binary values may be large. They keep the session's limits.
    """
    from pyspark.sql.types import BinaryType

    wanted = {"maxBytesPerBatch": str(UNLIMITED), "maxRecordsPerBatch": str(BATCH_ROWS)}
    if any(isinstance(field.dataType, BinaryType) for field in rows.schema):
        wanted = {}
    names = {f"spark.sql.execution.arrow.{name}": value for name, value in wanted.items()}
    before: dict[str, Any] = {name: spark.conf.get(name) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, given in before.items():
            spark.conf.set(name, given)
