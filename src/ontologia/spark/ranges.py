"""How rows are spread over tasks: by ranges of identity, cut where a sample of them says.

Spark's own ranges would compute every column of the source for the sample. Here it reads identities alone, and tells
about how many rows there are, so that the number of tasks fits them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import BinaryType, StringType, StructType

from ontologia.spark.types import quote_name

if TYPE_CHECKING:
    import pyarrow as pa

    BatchWork = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

SAMPLED, SAMPLED_PER_TASK = 20_000, 100
FEW_ROWS = 50_000
"""So many rows are worth a task of their own."""
DRAWN = "__drawn"
BATCH_ROWS = 4_096
UNLIMITED = 2**31 - 1
BATCH_BYTES = 64 << 20
LONG_ROW_BYTES = 64 << 10
"""Batches of rows up to this size have 256 MB at most."""
LONG_ROW = "ontologia: a row is long"


@dataclass(frozen=True, slots=True)
class Ranged:
    """Rows in as many partitions as fit them, each a range of identities; and about how many rows there are."""

    rows: DataFrame
    count: int
    cuts: tuple[tuple[str, ...], ...] = ()
    """The identities at which all but the first range begin; a partition has the number of its range."""

    def sorted_by(self, *names: str) -> DataFrame:
        """The rows of each partition in the order of these columns."""
        return self.rows.sortWithinPartitions(*(quote_name(name) for name in names))


def cut_into_ranges(rows: DataFrame, identity: Sequence[str], rows_per_task: int) -> Ranged:
    """Cut rows into ranges of about so many rows, and into enough of them to keep all cores busy."""
    share = min(SAMPLED_PER_TASK / min(rows_per_task, FEW_ROWS), 1.0)
    count, sample = sample_keys(rows.select(*(quote_name(name) for name in identity)), share)
    tasks = how_many_tasks(count, rows_per_task, _parallelism(rows.sparkSession))
    cuts = sorted({sample[len(sample) * number // tasks] for number in range(1, tasks)} if sample else ())
    return Ranged(rows.repartitionById(len(cuts) + 1, _place(identity, cuts)), count, tuple(cuts))


def how_many_tasks(count: int, rows_per_task: int, parallelism: int) -> int:
    """Enough to keep all cores busy, to the end: where tasks come in rounds, the last one is as full as the others."""
    needed = -(-count // rows_per_task)
    if needed <= parallelism:
        return max(needed, min(parallelism, count // FEW_ROWS), 1)
    return -(-needed // parallelism) * parallelism


def sample_keys(keys: DataFrame, share: float) -> tuple[int, list[tuple[str, ...]]]:
    """About how many rows there are, from a share of them, and the identities of some, in order."""
    seen = Observation()
    first = sql.monotonically_increasing_id() % 2**33 == 0  # in its partition: where there are rows, some are drawn
    drawn = keys.withColumn(DRAWN, sql.rand(seed=1) < share).where(sql.col(DRAWN) | first)
    counted = drawn.observe(seen, sql.count_if(DRAWN).alias(DRAWN)).drop(DRAWN)
    found = [tuple(row) for row in counted.orderBy(sql.rand(seed=2)).limit(SAMPLED).collect()]
    count = max(int(seen.get[DRAWN] / share), len(found)) if found else 0  # of no rows nothing is observed
    return count, sorted(key for key in found if None not in key)


def _parallelism(spark: SparkSession) -> int:
    """How many tasks run at a time; a Connect session cannot tell, and has what was set for its shuffles."""
    context: Any = getattr(spark, "_sc", None)
    found: Any = spark.conf.get("spark.sql.shuffle.partitions") if context is None else context.defaultParallelism
    return int(found)


def _place(identity: Sequence[str], cuts: Sequence[tuple[str, ...]]) -> SparkColumn:
    """The number of the range that a row lies in, found by halving."""

    def within(first: int, last: int) -> SparkColumn:
        if first == last:
            return sql.lit(first)
        middle = (first + last) // 2
        return sql.when(_before(identity, cuts[middle]), within(first, middle)).otherwise(within(middle + 1, last))

    return within(0, len(cuts))


def _before(identity: Sequence[str], cut: tuple[str, ...]) -> SparkColumn:
    """Whether a row's identity comes before a cut, part by part."""
    parts = [(sql.col(quote_name(name)), part) for name, part in zip(identity, cut, strict=True)]
    *rest, (last, bound) = parts
    return reduce(lambda later, part: (part[0] < part[1]) | ((part[0] == part[1]) & later), rest[::-1], last < bound)


def collect_in_arrow(rows: DataFrame, work: BatchWork, struct: str | StructType) -> list[Any]:
    """Run a job of Python over rows, in batches of bounded size: what it yields, on the driver.

    To measure a batch after each row costs more than the rest. So batches have few rows and are not measured as long as
    no row is long; a job that meets a long one ends, and is run again in batches that are measured.
    """
    if not any(isinstance(field.dataType, BinaryType) for field in rows.schema):
        quick = _with_batches(_refuse_long_rows(rows), BATCH_ROWS, UNLIMITED)
        try:
            return map_in_arrow(quick, work, struct).collect()
        except Exception as problem:
            if LONG_ROW not in str(problem):
                raise
    return map_in_arrow(_with_batches(rows, BATCH_ROWS, BATCH_BYTES), work, struct).collect()


def _refuse_long_rows(rows: DataFrame) -> DataFrame:
    lengths = [
        sql.coalesce(sql.octet_length(quote_name(field.name)), sql.lit(0))
        for field in rows.schema
        if isinstance(field.dataType, StringType)
    ]
    if not lengths:
        return rows
    length = reduce(lambda one, other: one + other, (length.cast("bigint") for length in lengths))
    checked = sql.when(length > LONG_ROW_BYTES, sql.raise_error(sql.lit(LONG_ROW)).cast("boolean")).otherwise(True)
    return rows.where(checked)


def _with_batches(rows: DataFrame, most_rows: int, most_bytes: int) -> DataFrame:
    """Rows that go to Python in batches of so many rows and bytes.

    The settings are those of a session of their own: the caller's keeps what it has, whoever else uses it meanwhile.
    A Connect session has no copies, and keeps its own limits.
    """
    spark: Any = rows.sparkSession
    plan: Any = getattr(rows, "_jdf", None)
    if plan is None:
        return rows
    copy = spark._jsparkSession.cloneSession()
    for name, value in (("maxBytesPerBatch", most_bytes), ("maxRecordsPerBatch", most_rows)):
        copy.conf().set(f"spark.sql.execution.arrow.{name}", str(value))
    analyzed = plan.queryExecution().analyzed()
    found = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(copy, analyzed)
    return DataFrame(found, SparkSession(spark.sparkContext, copy))


def map_in_arrow(rows: DataFrame, work: BatchWork, struct: str | StructType) -> DataFrame:
    """`mapInArrow`, for columns of any name: PySpark looks them up unquoted, and takes a point for a way inside."""
    names = list(rows.columns)
    if not any(sign in name for name in names for sign in ".`"):
        return rows.mapInArrow(work, struct)

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return work(batch.rename_columns(names) for batch in batches)

    return rows.toDF(*(f"c{number}" for number in range(len(names)))).mapInArrow(named, struct)
