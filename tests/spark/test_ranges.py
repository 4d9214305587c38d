"""How rows are spread over tasks, sorted and written in parts."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.sql import functions as sql

from ontologia.engines import row_files as committing
from ontologia.engines import staging as parts
from ontologia.engines.catalog import TypeLayout
from ontologia.engines.dispatch import open_engine
from ontologia.engines.parquet.care import snapshots
from ontologia.engines.staging import Staging
from ontologia.files import sorting, writing
from ontologia.files.sorting import Sorter
from ontologia.objects import Location, open_objects
from ontologia.query.plan import LATEST
from ontologia.runtime.intake.quarantine import Quarantine
from ontologia.runtime.intake.reports import TypeReport
from ontologia.spark import Pipeline, ranges
from ontologia.spark.loading import staging
from ontologia.spark.loading.mapping import ORDER, REASON, SOURCE
from ontologia.spark.ranges import collect_in_arrow, cut_into_ranges, how_many_tasks
from ontologia.spark.workers import engine_at
from ontologia.spark.writing import landing
from support.spark_shop import Customer, commit, customers, session

IDENTITY = ("left_key", "right_key", "instance_key")


def test_ranges_hold_about_as_many_rows_as_asked_and_do_not_overlap(spark):
    rows = spark.range(1000).selectExpr("format_string('k%04d', (id * 7) % 1000) AS entity_key")
    found = cut_into_ranges(rows, ["entity_key"], 100)
    ends = found.rows.groupBy(sql.spark_partition_id()).agg(sql.min("entity_key"), sql.max("entity_key")).collect()
    edges = sorted((first, last) for _, first, last in ends)
    assert (found.count, len(edges)) == (1000, 10)
    assert all(last < first for (_, last), (first, _) in pairwise(edges))


def test_tasks_come_in_rounds_that_are_all_full():
    asked = [(0, 4), (49_999, 4), (100_000, 4), (1_000_000, 4), (2_500_000, 2), (3_000_000, 2), (4_100_000, 4)]
    assert [how_many_tasks(rows, 500_000, cores) for rows, cores in asked] == [1, 1, 2, 4, 6, 6, 12]


def test_rows_of_one_left_key_are_cut_by_the_rest_of_their_identity(spark):
    rows = spark.range(100).selectExpr(
        "'hub' AS left_key", "format_string('%03d', id) AS right_key", "'' AS instance_key"
    )
    found = cut_into_ranges(rows, IDENTITY, 25).rows
    assert found.select(sql.spark_partition_id()).distinct().count() == 4


@pytest.mark.parametrize("rows", ["id < 0", "id = 3", "true"])
def test_rows_without_keys_and_no_rows_at_all_are_spread_as_well(spark, rows):
    frame = spark.range(5).where(rows).selectExpr("CAST(NULL AS STRING) AS entity_key", "id")
    assert cut_into_ranges(frame, ["entity_key"], 2).rows.count() == frame.count()


def test_batches_are_few_rows_and_measured_only_where_a_row_is_long(spark, monkeypatch):
    names = ["spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.execution.arrow.maxRecordsPerBatch"]
    before = [spark.conf.get(name) for name in names]
    monkeypatch.setattr(ranges, "BATCH_BYTES", 1 << 20)
    short = spark.range(0, 10_000, 1, 1).selectExpr("id", "'x' AS text")
    assert [row.rows for row in collect_in_arrow(short, _counted, "rows bigint")] == [4_096, 4_096, 1_808]
    long = spark.range(0, 40, 1, 1).selectExpr("id", "repeat('x', 100000) AS text")
    counts = [row.rows for row in collect_in_arrow(long, _counted, "rows bigint")]
    assert (sum(counts), len(counts) > 2) == (40, True)
    assert [spark.conf.get(name) for name in names] == before


def _counted(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})


def shuffled(count):
    keys = [f"k{number:05d}" for number in range(count)]
    random.Random(1).shuffle(keys)
    return pa.table({"entity_key": keys, "text": [key.upper() for key in keys]})


@pytest.mark.parametrize("held", [1 << 20, 1_000])
def test_rows_are_sorted_alike_in_memory_and_from_disk(held):
    rows = shuffled(3_000)
    with Sorter(["entity_key"], held) as sorter:
        for place in range(0, 3_000, 500):
            sorter.add(rows.slice(place, 500))
        found = pa.concat_tables(sorter.chunks())
        assert bool(sorter._files) == (held == 1_000)
    assert found.equals(rows.sort_by("entity_key"))


def test_a_task_writes_parts_of_bounded_size_and_leaves_no_local_file(folder, monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 1)
    schema = Customer.__declaration__.schema
    rows = pa.table({"entity_key": ["a", "b"], "id": ["a", "b"], "name": ["x", "y"], "age": [1, 2]})
    rows = rows.append_column("tags", pa.array(["[]", "[]"])).append_column("note", pa.nulls(2, pa.string()))
    with Staging(Location(folder), "out/", TypeLayout(schema.ref, schema, 1, 1), 1).writer() as writer:
        for number in range(2):
            writer.add(rows.slice(number, 1))
            writer._groups.finish()
        done = writer.finish()
        local = Path(writer._local.name)
    assert [part.row_count for part in done] == [1, 1]
    assert not local.exists()
    place = open_objects(folder).local_path(done[1].path)
    assert pq.read_table(place).column("entity_key").to_pylist() == ["b"]
    assert place.stat().st_size == done[1].size


def test_a_load_into_a_known_type_compares_range_by_range_and_writes_what_differs(spark, folder, monkeypatch):
    monkeypatch.setattr(staging, "ROWS_COMPARED", 10)
    monkeypatch.setattr(staging, "ROWS_SORTED", 25)
    expressions = ["format_string('c%03d', (id * 7) % 100) AS id", "'n' AS name", "CAST(id AS INT) AS age"]
    frame = spark.range(100).selectExpr(*expressions)
    assert Pipeline(spark, folder).load(frame, into=Customer).commit().types["Customer"].files == 4
    extra = spark.createDataFrame([("zz", "n", 1)], frame.schema)
    changed = frame.withColumn("age", sql.expr("IF(id = 'c093', 1000, age)")).where("id <> 'c050'").unionByName(extra)
    report = Pipeline(spark, folder).load(changed, into=Customer).commit()
    assert report.types["Customer"] == TypeReport(
        read=100, inserted=1, updated=1, unchanged=98, files=report.types["Customer"].files
    )
    assert (customers(folder)["c093"], len(customers(folder))) == (("n", 1000), 101)


@pytest.mark.parametrize("state", ["one commit", "compacted", "compacted, and a commit after it"])
def test_a_dense_comparison_reads_files_as_they_are_and_finds_what_the_engine_finds(folder, state, monkeypatch):
    monkeypatch.setattr(snapshots, "LOOKUP_GROUP_ROWS", 7)
    monkeypatch.setattr(committing, "LOOKUP_GROUP_ROWS", 7)
    commit(folder, *(Customer(id=f"c{number:03}", name="n", age=number) for number in range(60)))
    if state != "one commit":
        commit(folder, *(Customer(id=f"c{number:03}", name="new", age=number) for number in range(0, 60, 3)))
        with open_engine(folder) as repository:
            repository.compact(apply=True)
    if state == "compacted, and a commit after it":
        commit(folder, Customer(id="c007", name="newest", age=1))
    schema = Customer.__declaration__.schema
    wanted = pa.table({name: [f"c{number:03}" for number in range(5, 50, 2)] for name in ("entity_key", "name")})
    with open_engine(folder) as repository:
        sparse = repository.rows_of(schema, wanted, LATEST, dense=False)
        if state != "compacted, and a commit after it":
            monkeypatch.setattr(type(repository), "table", lambda *_: pytest.fail("asked the engine"))
        dense = repository.rows_of(schema, wanted, LATEST, dense=True)
    keys = dense.column("entity_key").to_pylist()
    assert sorted(keys) == [f"c{number:03}" for number in range(5, 50)]
    kept = dense.filter(pa.compute.is_in(dense.column("entity_key"), wanted.column("entity_key")))
    assert kept.sort_by("entity_key").to_pydict() == sparse.sort_by("entity_key").to_pydict()


def test_duplicates_in_a_load_into_a_known_type_are_an_error(spark, folder):
    commit(folder, Customer(id="c1", name="Ann", age=1))
    frame = spark.createDataFrame([("c2", "a", 1), ("c1", "Ann", 1), ("c2", "b", 2)], "id string, name string, age int")
    with pytest.raises(Exception, match="entity Customer 'c2' occurs more than once"):
        Pipeline(spark, folder).load(frame, into=Customer).commit()
    with session(folder) as opened:
        assert opened.query().entities(Customer).count() == 1


def test_rows_without_a_key_are_handed_on_chunk_by_chunk(monkeypatch):
    monkeypatch.setattr(writing, "ROW_GROUP_ROWS", 10)
    rows = pa.table({"entity_key": pa.nulls(95, pa.string())}).to_batches(max_chunksize=5)
    assert max(chunk.num_rows for chunk in sorting.identity_chunks(rows, ["entity_key"])) <= 10


def test_the_last_row_by_a_text_is_that_of_the_largest_number(tmp_path):
    file = tmp_path / "staged.parquet"
    pq.write_table(pa.table({"entity_key": ["a"] * 4, ORDER: ["10", "9", None, "x"]}), file)
    (chunk,) = sorting.sort_files([file], ["entity_key", ORDER], ["entity_key"], landing._later(file))
    assert chunk.column(ORDER).to_pylist() == [None, "x", "9", "10"]


def test_a_file_that_took_the_place_of_another_is_opened_anew(tmp_path):
    path = str(tmp_path / "onto.db")
    commit(path, Customer(id="c1", name="old", age=1))
    assert engine_at(Location(path)).catalog().head == 1
    for suffix in ("", "-wal", "-shm"):
        Path(path + suffix).unlink(missing_ok=True)
    commit(path, Customer(id="c1", name="new", age=1))
    commit(path, Customer(id="c1", name="newer", age=1))
    assert engine_at(Location(path)).catalog().head == 2


def test_a_sample_tells_about_how_many_rows_there_are(spark):
    rows = spark.range(0, 200_000, 1, 40).selectExpr("format_string('k%06d', id) AS entity_key")
    count, sample = ranges.sample_keys(rows, 0.01)
    assert 180_000 < count < 220_000
    assert 1_800 < len(sample) < 2_300
    assert sample == sorted(sample)
    assert ranges.sample_keys(rows.where("id < 30"), 0.01)[0] <= 100


def test_a_task_that_is_tried_again_sets_its_rows_aside_once(folder, monkeypatch):
    monkeypatch.setattr(TaskContext, "get", staticmethod(lambda: SimpleNamespace(partitionId=lambda: 3)))
    schema = Customer.__declaration__.schema
    task = staging.StageTask(
        location=Location(folder),
        head=0,
        known=False,
        layout=(layout := TypeLayout(schema.ref, schema, 1, 1)),
        staging=Staging(Location(folder), "out/", layout, 1),
        quarantine=Quarantine(Location(folder), "run", schema.ref),
        on_invalid="quarantine",
        on_duplicate="error",
        on_conflict="upsert",
    )
    names = ["entity_key", "id", "name", "age", "tags", "note", REASON, SOURCE]
    row = pa.RecordBatch.from_pylist([dict.fromkeys(names, "x") | {"age": 1}])
    for _ in range(2):
        (message,) = staging.stage(task, iter([row]))
        assert message.to_pylist()[0]["rejected"] == 1
    (aside,) = open_objects(folder).list("quarantine/")
    assert aside.key.endswith("/00003-000.parquet")
