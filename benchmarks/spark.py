"""The pipeline on Spark beside Spark alone: loads, scans, history and compaction, in one local session.

The first run of a load warms up and is not timed: it takes a hundredth of the rows.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge

from benchmarks.customers import append
from benchmarks.report import Case, Measured, compared
from ontologia import Entity, Field, OntologiaConfig, Ontology
from ontologia.engines.initializing import initialize_storage

ROWS_PER_COMMIT = 1_000
VERSIONS = 5
SOURCE_FILES = 8
WHERE = "status = 'paid' AND quantity > 10"
WORKER_BYTES = 1_000 * 1_000_000
SCANNED = "status string, quantity bigint, price double"


class Order(Entity):
    id: Field[str] = Field(primary_key=True)
    customer: Field[str]
    product: Field[str]
    status: Field[str]
    quantity: Field[Annotated[int, Ge(1)]]
    price: Field[float]
    day: Field[date]
    placed: Field[datetime]


def pipeline(folder: Path, rows: int, commits: int) -> Iterator[Case | Measured]:
    """Loads, scans, history and compaction on Spark, beside Spark alone, in one local session."""
    from ontologia.spark import spark_session

    spark = spark_session("benchmarks", master="local[2]", config={"spark.ui.enabled": "false"})
    try:
        yield from loading(spark, folder, rows)
        yield from small_loads(spark, folder, rows)
        yield from latest_state(spark, folder, rows)
        yield compaction(spark, folder, commits)
        yield memory_of_workers(spark)
    finally:
        spark.stop()


# --- data ---


def orders(spark: Any, count: int, *, where: str = "true", changed: str = "false", step: int = 1) -> Any:
    """`count` orders in no order of keys, or `where` says which by number; `changed` says which cost `step` more."""
    stride = 7919  # a prime, so that every number comes once
    return (
        spark.range(count)
        .selectExpr(f"(id * {stride}) % {count} AS number")
        .where(where)
        .selectExpr(
            "format_string('order-%010d', number) AS id",
            "format_string('customer-%07d', pmod(hash(number), 1000000)) AS customer",
            "concat('product ', pmod(hash(number, 1), 5000)) AS product",
            "element_at(array('new', 'paid', 'packed', 'shipped', 'returned'), 1 + pmod(hash(number, 2), 5)) AS status",
            "1 + pmod(hash(number, 3), 20) AS quantity",
            f"pmod(hash(number, 4), 100000) / 100 + IF({changed}, {step}, 0) AS price",
            "date_add(DATE '2020-01-01', pmod(hash(number, 5), 2000)) AS day",
            "timestamp_seconds(1577836800 + pmod(hash(number, 6), 172800000)) AS placed",
        )
    )


def in_files(spark: Any, folder: Path, name: str, count: int, **settings: Any) -> Any:
    """Orders as a source that lies in files: in no order, and enough files to keep all cores busy to the end."""
    path = str(folder / name)
    orders(spark, count, **settings).repartition(SOURCE_FILES).write.parquet(path)
    return spark.read.parquet(path)


def new_store(place: Path) -> str:
    shutil.rmtree(place, ignore_errors=True)
    initialize_storage(storage_uri=place.as_uri())
    return place.as_uri()


def load(spark: Any, source: Any, uri: str) -> Any:
    from ontologia.spark import Pipeline

    return Pipeline(spark, uri).load(source, into=Order).commit()


def data_files(folder: Path) -> list[str]:
    """The files below a folder, for Spark to read by itself."""
    return [str(path) for path in folder.rglob("*.parquet") if path.is_file()]


# --- cases ---


def loading(spark: Any, folder: Path, rows: int) -> Iterator[Case]:
    """First load, scans of what was loaded, and the same rows once more with one in a hundred changed."""
    small, source = in_files(spark, folder, "few", rows // 100), in_files(spark, folder, "all", rows)
    first_store, plain, second_store = folder / "first", str(folder / "plain"), folder / "second"

    def by_hand(rows: Any) -> None:
        rows.repartitionByRange("id").sortWithinPartitions("id").write.mode("overwrite").parquet(plain)

    yield Case(
        f"load {rows:,} rows",
        "Pipeline: checked, compared, committed",
        "df.write.parquet, sorted alike",
        2.0,
        lambda rows, uri: load(spark, rows, uri),
        by_hand,
        fresh_ours=_in_turn(lambda rows: (rows, new_store(first_store)), small, source),
        fresh_peer=_in_turn(lambda rows: (rows,), small, source),
        runs=2,
    )
    shutil.rmtree(plain)
    yield from scanning(spark, first_store)
    yield into_large(spark, folder, first_store.as_uri(), rows)
    shutil.rmtree(first_store)

    def reload(rows: Any) -> None:
        report = load(spark, rows, second_store.as_uri())
        changed = report.types["Order"]
        if (changed.inserted, changed.updated, changed.unchanged) != (0, changed.read // 100, changed.read * 99 // 100):
            raise RuntimeError(f"one row in a hundred has changed, and the load reports {changed}")

    again = in_files(spark, folder, "again", rows, changed="number % 100 = 0")
    few_again = in_files(spark, folder, "few-again", rows // 100, changed="number % 100 = 0")
    yield Case(
        "load them again, 1% changed",
        "the second load",
        "the first load",
        0.6,
        reload,
        lambda rows, uri: load(spark, rows, uri),
        fresh_ours=_in_turn(lambda rows: (rows,), few_again, again),
        fresh_peer=_in_turn(lambda rows: (rows, new_store(second_store)), small, source),
        runs=2,
    )
    shutil.rmtree(second_store)


def into_large(spark: Any, folder: Path, uri: str, rows: int) -> Case:
    """Every hundredth row, with another price each time, into all of them, uncompacted."""
    steps, empty = itertools.count(1), folder / "empty"

    def some() -> Any:
        step = next(steps)
        return in_files(spark, folder, f"some-{step}", rows, where="number % 100 = 7", changed="true", step=step)

    return Case(
        f"load {rows // 100:,} rows into {rows:,}, uncompacted",
        "Pipeline",
        "Pipeline into an empty store",
        None,
        lambda some: load(spark, some, uri),
        lambda some, uri: load(spark, some, uri),
        fresh_ours=lambda: (some(),),
        fresh_peer=lambda: (some(), new_store(empty)),
        runs=2,
    )


def small_loads(spark: Any, folder: Path, rows: int) -> Iterator[Case]:
    """Spark's own way to write, where the driver writes what differs, and a load in process, beside the pipeline."""
    source, place = in_files(spark, folder, "tenth", rows // 10), folder / "written"
    pattern = str(folder / "tenth" / "*.parquet")

    def written(uri: str) -> None:
        writer = source.write.format("ontologia").option("models", "benchmarks.spark:Order")
        writer.mode("append").save(uri)

    for name, ours in (
        ('df.write.format("ontologia")', written),
        ("Pipeline without a session, in process", lambda uri: load(None, pattern, uri)),
    ):
        yield Case(
            f"load {rows // 10:,} rows",
            name,
            "Pipeline on Spark",
            None,
            ours,
            lambda uri: load(spark, source, uri),
            fresh_ours=lambda: (new_store(place),),
            fresh_peer=lambda: (new_store(place),),
            runs=2,
        )


def scanning(spark: Any, store: Path) -> Iterator[Case]:
    from ontologia.spark import read

    uri = store.as_uri()

    def total(rows: Any) -> float:
        found: float = rows.where(WHERE).selectExpr("sum(price * quantity)").first()[0]
        return found

    def through_format(schema: str | None) -> float:
        reader = spark.read.format("ontologia").option("type", "Order")
        return total((reader if schema is None else reader.schema(schema)).load(uri))

    def by_spark() -> float:
        return total(spark.read.parquet(*data_files(store / "commits")))

    expected = by_spark()
    for ours, limit, run in (
        ("ontologia.spark.read", 1.15, lambda: total(read(spark, uri, Order))),
        ('format("ontologia"), three columns by .schema(…)', 1.6, lambda: through_format(SCANNED)),
        ('format("ontologia"), all columns', None, lambda: through_format(None)),
    ):
        if abs(run() - expected) > 1e-6 * expected:
            raise RuntimeError(f"{ours} gives another sum than Spark alone")
        yield Case("scan, filter and sum", ours, "spark.read.parquet, the same files", limit, run, by_spark, runs=2)


def latest_state(spark: Any, folder: Path, rows: int) -> Iterator[Case]:
    """Every key in several versions: the latest of each, from a snapshot and from the raw history."""
    from ontologia.spark import compact, read

    uri = new_store(folder / "versions")
    for version in range(VERSIONS):
        load(spark, orders(spark, rows // VERSIONS).selectExpr("* EXCEPT (price)", f"price + {version} AS price"), uri)
    raw = folder / "raw"
    shutil.copytree(folder / "versions" / "commits", raw)
    with Ontology(storage_uri=uri, entity_types=[Order]) as onto:
        compact(spark, onto, apply=True)

    def ours() -> Any:
        return read(spark, uri, Order).selectExpr("count(*)", "sum(price)").first()

    def by_window() -> Any:
        from pyspark.sql import Window
        from pyspark.sql import functions as sql

        newest = sql.row_number().over(Window.partitionBy("entity_key").orderBy(sql.col("commit_id").desc()))
        ranked = spark.read.parquet(*data_files(raw)).select("entity_key", "commit_id", "price", newest.alias("rank"))
        return ranked.where("rank = 1").selectExpr("count(*)", "sum(price)").first()

    if ours()[0] != by_window()[0]:
        raise RuntimeError("the snapshot and the raw history have different numbers of keys")
    yield Case(
        f"latest of {VERSIONS} versions of {rows // VERSIONS:,} keys",
        "read, compacted",
        "row_number over raw history",
        0.5,
        ours,
        by_window,
        runs=2,
    )
    shutil.rmtree(raw)
    shutil.rmtree(folder / "versions")


def compaction(spark: Any, folder: Path, commits: int) -> Case:
    """Many small commits into one snapshot."""
    from ontologia.spark import compact

    source = folder / "commits"
    uri = new_store(source)
    rows = orders(spark, commits * ROWS_PER_COMMIT // 2).toArrow()
    rows = rows.add_column(0, "entity_key", rows.column("id"))
    with Ontology(storage_uri=uri, config=OntologiaConfig(auto_compact="never"), entity_types=[Order]) as onto:
        for number in range(commits):  # every key twice
            append(onto, rows.slice(number * ROWS_PER_COMMIT % rows.num_rows, ROWS_PER_COMMIT), Order)

    def ours(place: str) -> None:
        started = time.monotonic()
        with Ontology(storage_uri=place, entity_types=[Order]) as onto:
            (done,) = compact(spark, onto, apply=True).types
        if done.rows != commits * ROWS_PER_COMMIT:
            raise RuntimeError(f"the snapshot has {done.rows} rows")
        pace = done.rows / (time.monotonic() - started)
        print(f"compacted {done.files:,} commits at {pace:,.0f} rows/s", file=sys.stderr)

    files = data_files(source / "commits")
    schema = spark.read.parquet(files[0]).schema

    def by_hand() -> None:
        found = spark.read.schema(schema).parquet(*files).repartitionByRange("entity_key")
        found.sortWithinPartitions("entity_key", "commit_id").write.mode("overwrite").parquet(str(folder / "merged"))

    copies = itertools.count()

    def fresh() -> tuple[str]:
        place = folder / f"copy-{next(copies)}"
        shutil.copytree(source, place)
        return (place.as_uri(),)

    return Case(
        f"compact {commits:,} commits, {commits * ROWS_PER_COMMIT:,} rows",
        "one job, with what superseded what",
        "read, sort and write the same files",
        None,
        ours,
        by_hand,
        fresh_ours=fresh,
        runs=2,
    )


def memory_of_workers(spark: Any) -> Measured:
    """The most memory that any worker took for any of the above: it must not grow with the rows of a load."""

    def peak(batches: Any) -> Any:
        import resource

        import pyarrow as pa

        for batch in batches:
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
            yield pa.RecordBatch.from_pydict({"used": [used] * batch.num_rows})

    used = max(row.used for row in spark.range(0, 8, 1, 8).mapInArrow(peak, "used bigint").collect())
    bound = WORKER_BYTES / 2**20
    return compared("memory of a worker", "the most of all above", "its bound", 1.0, [used / 2**20], [bound], "MiB")


def _in_turn(make: Callable[[Any], tuple[Any, ...]], warm: Any, then: Any) -> Callable[[], tuple[Any, ...]]:
    """Arguments of one run after the other: small ones to warm up, then those that count."""
    sources = itertools.chain([warm], itertools.repeat(then))
    return lambda: make(next(sources))
