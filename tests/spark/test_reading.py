"""Reads on Spark: every window, natively and through Arrow, equal to what the embedded path reads."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import reduce

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from ontologia import (
    HistoryForgottenError,
    OntologiaError,
    StorageBackendError,
    ValidationError,
    left,
)
from ontologia.engines import shares
from ontologia.engines.dispatch import open_engine
from ontologia.engines.parquet.read import shares as file_shares
from ontologia.errors import CommitAfterHeadWarning
from ontologia.files.key_ranges import KeyRange
from ontologia.objects import Location
from ontologia.query.plan import LATEST, Window
from ontologia.spark import explain, read
from ontologia.spark.reading.reader import OntologiaReader, ReadPlan, SharePartition
from ontologia.spark.reading.rows import read_stored_rows
from ontologia.spark.types import result_struct
from support.spark_reads import NAMES, WINDOWS, embedded, fill, loaded, rows_of
from support.spark_shop import Buys, Customer, Everything, Knows, commit, new_store, session


@pytest.fixture(scope="module", params=["sqlite", "file"])
def history(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reading")
    return fill(str(folder / "onto.db") if request.param == "sqlite" else (folder / "store").as_uri())


def embedded_rows(uri):
    with session(uri) as opened:
        return opened.query().entities(Customer).collect()


@pytest.mark.slow_on("sqlite")
def test_native_and_arrow_reads_are_equal_in_every_window(spark, history):
    def all_windows(reader):
        frames = [reader(**window).selectExpr(f"{place} AS place", *NAMES) for place, window in enumerate(WINDOWS)]
        return sorted(map(tuple, reduce(DataFrame.unionAll, frames).collect()), key=repr)

    expected = [
        (place, *(row[name] for name in NAMES))
        for place, window in enumerate(WINDOWS)
        for row in embedded(history, Customer, **window)
    ]
    native = all_windows(lambda **window: read(spark, history, Customer, **window))
    arrow = all_windows(lambda **window: loaded(spark, history, "Customer", **window))
    assert native == arrow == sorted(expected, key=repr)


def test_relations_carry_their_keys(spark, history):
    found = rows_of(loaded(spark, history, "Buys", kind="relation"))
    assert [(row["left_key"], row["instance_key"], row["amount"]) for row in found] == [
        ("c1", "t0", 2.0),
        ("c1", "t1", 1.5),
    ]
    assert found == rows_of(read(spark, history, Buys))


def test_a_time_means_the_last_commit_made_by_then(spark, folder):
    commit(folder, Customer(id="a", name="Ann", age=1))
    time.sleep(0.01)
    moment = datetime.now(UTC)
    commit(folder, Customer(id="a", name="Ann", age=2))
    assert read(spark, folder, Customer, timestamp_as_of=moment).first().age == 1
    assert loaded(spark, folder, "Customer", timestampAsOf=moment.isoformat()).first().age == 1
    assert loaded(spark, folder, "Customer", versionAsOf=1).first().age == 1
    with pytest.warns(CommitAfterHeadWarning, match="commit 9 is not there yet"):
        assert read(spark, folder, Customer, as_of=9).first().age == 2


def test_every_type_of_value_reads_the_same_both_ways(spark, folder):
    moment = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    commit(
        folder,
        Everything(
            number=7, text="ü", real=1.5, yes=False, moment=moment, day=moment.date(), raw=b"\0", shape={"a": 1}
        ),
        Everything(number=8, commit_id=5),
    )
    native, arrow = (
        rows_of(read(spark, folder, Everything, history=True)),
        rows_of(loaded(spark, folder, "Everything", history=True)),
    )
    assert native == arrow
    assert native[0]["__commit_id"] == 1


@pytest.mark.parametrize("pushdown", ["false", "true"])
@pytest.mark.slow_on("sqlite")
def test_no_answer_depends_on_what_was_asked_before(spark, history, pushdown):
    before = spark.conf.get("spark.sql.python.filterPushdown.enabled")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        frame = loaded(spark, history, "Customer")
        everything = [row.age for row in embedded_rows(history)]
        few = [age for age in everything if age > 3]
        assert frame.where("age > 3").count() == len(few)
        assert frame.count() == len(everything)
        assert frame.where("age > 3").union(frame).count() == len(few) + len(everything)
        assert frame.where("age = 1 OR id = 'c9'").count() == sum(
            row.age == 1 or row.id == "c9" for row in embedded_rows(history)
        )
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", before)


@pytest.mark.slow_on("sqlite")
def test_a_filter_and_columns_are_arguments_of_a_read(spark, history):
    for window in WINDOWS:
        rows = embedded(history, Customer, **window)
        old = (Customer.age > 2) & ~Customer.tags.contains("x") | (Customer.name == "last")
        found = read(spark, history, Customer, where=old, columns=["name", "id"], **window)
        wanted = [row for row in rows if (row["age"] > 2 and "x" not in row["tags"]) or row["name"] == "last"]
        assert found.columns == ["name", "id"]
        assert sorted(map(tuple, found.collect())) == sorted((row["name"], row["id"]) for row in wanted), window
        everything = read(spark, history, Customer, columns=["age"], **window)
        assert sorted(row.age for row in everything.collect()) == sorted(row["age"] for row in rows)
        assert everything.union(found.selectExpr("1L")).count() == len(rows) + len(wanted)
    with pytest.raises(ValidationError, match="entity Customer has no column wrong; it has id, name"):
        read(spark, history, Customer, columns=["wrong"])


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("age > 2", "where takes a filter, such as Customer.age > 30, not 'age > 2'"),
        (Everything.text == "x", "Everything.text is a field of another type; this read is about Knows"),
        (left(Knows).age > 2, "is a field of an endpoint: filter in a query, and take its to_spark"),
    ],
)
def test_a_read_takes_only_filters_on_its_own_fields(spark, history, where, message):
    with pytest.raises((TypeError, ValueError), match=message):
        read(spark, history, Knows, where=where)


def test_tasks_filter_where_the_rows_lie_and_read_only_what_is_wanted(spark, tmp_path):
    uri = fill(str(tmp_path / "onto.db"))
    found = read(spark, uri, Customer, where=Customer.age > 50, columns=["id"])
    assert [tuple(row) for row in found.collect()] == [("c9",)]
    with open_engine(Location.of(uri)) as engine:
        where = (Customer.age > 50) & (Customer.id.startswith("c")) & Customer.name.in_(["last", "x"])
        rows = read_stored_rows(
            spark,
            engine,
            engine.catalog(),
            Customer.__declaration__.schema,
            LATEST,
            where=(where,),
            only=frozenset(["id"]),
        )
    assert [tuple(row) for row in rows.collect()] == [("c9",)]


@pytest.mark.parametrize("place", ["onto.db", "store"])
def test_a_state_that_was_given_up_is_refused_as_the_embedded_path_refuses_it(spark, tmp_path, place):
    uri = new_store(str(tmp_path / place) if place.endswith(".db") else (tmp_path / place).as_uri())
    for age in range(3):
        commit(uri, Customer(id="a", name="Ann", age=age))
    with session(uri) as opened:
        opened.forget(2, dry_run=False, token=opened.forget(2).token)
        query = opened.query().entities(Customer).as_of(1)
        for asked in (query.collect, lambda: query.to_spark(spark), lambda: read(spark, uri, Customer, as_of=1)):
            with pytest.raises(HistoryForgottenError, match="the state at commit 1 was given up"):
                asked()


def test_what_cannot_be_none_is_said_not_to_be(spark, history):
    expected = {"commit_id": False, "id": False, "name": False, "age": False, "tags": True, "note": True}
    for rows in (loaded(spark, history, "Customer", history="true"), read(spark, history, Customer, history=True)):
        assert {field.name: field.nullable for field in rows.schema} == {**expected, "removed": False}
    relation = {field.name: field.nullable for field in loaded(spark, history, "Buys").schema}
    assert not any(relation.values())


@pytest.mark.slow_on("sqlite")
def test_a_dataframe_shows_the_state_it_was_made_at(spark, uri):
    commit(uri, Customer(id="a", name="Ann", age=1))
    frames = [
        loaded(spark, uri, "Customer"),
        loaded(spark, uri, "Customer", history="true"),
        spark.read.format("ontologia").options(type="Customer", changes="true").load(uri),
        read(spark, uri, Customer),
        read(spark, uri, Customer, history=True),
        read(spark, uri, Customer, since=0),
    ]
    commit(uri, Customer(id="a", name="Ann", age=2), Customer(id="b", name="Bob", age=2))
    assert [frame.select("id", "age").collect() for frame in frames] == [[("a", 1)]] * len(frames)
    commit(uri, Customer(id="c", name="Cy", age=3))
    assert [frame.union(frame).count() for frame in frames] == [2] * len(frames)
    assert read(spark, uri, Customer).count() == loaded(spark, uri, "Customer").count() == 3


@pytest.mark.slow_on("sqlite")
def test_what_is_wrong_is_said_without_the_way_of_the_program_to_it(spark, uri):
    commit(uri, Customer(id="a", name="Ann", age=1))
    reader = spark.read.format("ontologia")
    wrong = [
        ("Nobody is not in this store", lambda: reader.option("type", "Nobody").load(uri)),
        ("there is no option 'typ'", lambda: spark.read.format("ontologia").option("typ", "Customer").load(uri)),
        ("has no column 'x'", lambda: reader.option("type", "Customer").schema("x string").load(uri).collect()),
    ]
    for said, work in wrong:
        with pytest.raises(PySparkException) as caught:
            work()
        first = str(caught.value).splitlines()[0]
        assert said in first
        assert "Traceback" not in str(caught.value)


@pytest.mark.s3
def test_a_bucket_is_read_through_arrow(spark, bucket):
    uri = bucket + "-filled"
    fill(uri)
    found = rows_of(read(spark, uri, Customer))
    assert found == rows_of(loaded(spark, uri, "Customer"))
    assert [row["id"] for row in found] == [row["id"] for row in sorted(embedded(uri, Customer), key=repr)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"type": "Nobody"}, "Nobody is not in this store; it has entity Customer"),
        ({"asOf": "three"}, "the option asOf takes a commit id, not 'three'"),
        ({"timestampAsOf": "noon"}, "the option timestampAsOf takes a time such as"),
        ({"history": "maybe"}, "the option history is true or false, not 'maybe'"),
        ({"asOf": "1", "since": "1"}, "choose one of"),
        ({"asoff": "1"}, "there is no option 'asoff'"),
        ({"changes": "true", "asOf": "1"}, "changes are what happened since a commit"),
    ],
)
def test_a_read_with_wrong_options_says_so(folder, options, message):
    from pyspark.sql.datasource import CaseInsensitiveDict

    from ontologia.spark.source import OntologiaSource

    commit(folder, Customer(id="a", name="Ann", age=1))
    with pytest.raises(ValidationError) as caught:
        OntologiaSource(CaseInsensitiveDict({"path": folder, "type": "Customer", **options})).schema()
    assert message in str(caught.value)


def test_a_name_for_two_types_needs_a_kind_and_a_missing_store_is_not_made(spark, tmp_path):
    missing = tmp_path / "missing.db"
    with pytest.raises(PySparkException, match="there is no such file"):
        loaded(spark, str(missing), "Customer").collect()
    with pytest.raises(OntologiaError, match="there is no such file"):
        read(spark, missing, Customer)
    assert not missing.exists()
    with pytest.raises(StorageBackendError, match="there is no ontology at"):
        read(spark, (tmp_path / "nothing").as_uri(), Knows)


def test_a_narrow_schema_reads_only_its_columns(spark, history, monkeypatch):
    wanted = "age bigint, id string"
    frame = spark.read.format("ontologia").schema(wanted).option("type", "Customer").load(history)
    assert frame.columns == ["age", "id"]
    expected = [(row["age"], row["id"]) for row in embedded(history, Customer)]
    assert sorted(map(tuple, frame.collect())) == sorted(expected)
    asked = []
    reader = OntologiaReader(
        ReadPlan(Location(history), Customer.__declaration__.schema, Window("as_of", 6), 6), frame.schema
    )
    with session(history) as opened:
        plain = opened.engine.table
        monkeypatch.setattr(opened.engine, "table", lambda plan: asked.append(plan.only) or plain(plan))
        (found,) = reader._rows(opened.engine, shares.Share())
    assert asked == [("age", "id")]
    assert sorted(found.column_names) == ["age", "id"]


def test_a_read_is_cut_at_the_row_groups_of_its_files(spark, folder, monkeypatch):
    for number in range(4):
        commit(folder, *(Customer(id=f"c{number}{place}", name="n", age=1) for place in range(5)))
    monkeypatch.setattr(shares, "ROWS_PER_SHARE", 10)
    with open_engine(folder) as engine:
        parts = engine.shares(Customer.__declaration__.schema, Window("as_of", 4))
    assert [part.keys for part in parts] == [KeyRange(None, "c20"), KeyRange("c20", None)]


def test_files_that_need_no_merging_are_read_as_they_are(folder, monkeypatch):
    monkeypatch.setattr(shares, "ROWS_PER_SHARE", 4)
    schema = Customer.__declaration__.schema
    for number in range(3):
        commit(folder, *(Customer(id=f"c{place}", name=f"n{number}", age=number) for place in range(3)))

    def found(window, head=3):
        with open_engine(folder) as engine:
            return [share.files for share in engine.shares(schema, window, head=head) if share.files is not None]

    assert found(Window("as_of", 3)) == []  # three commits may each have a row of one customer
    assert [len(share.files) for share in found(Window("as_of", 1))] == [1]
    assert [len(share.files) for share in found(Window("history"))] == [2, 1]
    assert [len(share.files) for share in found(Window("history"), head=2)] == [2]
    with session(folder) as opened:
        opened.repository.compact(apply=True)
        (share,) = found(Window("as_of", 3))
        asked = ReadPlan(Location(folder), schema, Window("as_of", 3), 3)
        reader = OntologiaReader(asked, result_struct(schema, versions=False))
        partition = SharePartition(shares.Share(files=share))
        rows = [row for batch in reader.read(partition) for row in batch.to_pylist()]
    assert sorted((row["id"], row["age"]) for row in rows) == [("c0", 2), ("c1", 2), ("c2", 2)]
    monkeypatch.setattr(file_shares, "MOST_ROWS", 8)
    assert found(Window("as_of", 3)) == []  # the snapshot is too large for one task


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("id string, nope int", "has no column 'nope'; it has id, name, age, tags, note"),
        ("age int", "Customer.age is bigint, not int: read it so, and cast"),
    ],
)
def test_a_schema_that_the_type_has_not_is_refused(spark, folder, schema, said):
    commit(folder, Customer(id="c1", name="Ann", age=1))
    with pytest.raises(Exception, match=said):
        spark.read.format("ontologia").option("type", "Customer").schema(schema).load(folder).collect()


def test_a_query_leaves_no_views_behind(spark, folder):
    commit(folder, Customer(id="c1", name="Ann", age=1), Knows(left_key="c1", right_key="c1", since=1))
    before = spark.catalog.listTables()
    with session(folder) as opened:
        assert opened.query().relations(Knows).where(left(Knows).age == 1).to_spark(spark).count() == 1
    assert spark.catalog.listTables() == before


def test_a_folder_named_like_a_partition_changes_no_value(spark, tmp_path):
    uri = new_store((tmp_path / "name=Bob" / "age=7").as_uri())
    commit(uri, Customer(id="c1", name="Ann", age=1))
    for rows in (read(spark, uri, Customer), loaded(spark, uri, "Customer")):
        assert [(row.name, row.age) for row in rows.collect()] == [("Ann", 1)]
    later = spark.createDataFrame([("c1", "Cy", 2, 2), ("c1", "Di", 3, 1)], "id string, name string, age int, at int")
    writer = later.write.format("ontologia").option("models", "support.spark_shop:Customer").option("orderBy", "at")
    writer.mode("append").save(uri)
    assert [(row.name, row.age) for row in read(spark, uri, Customer).collect()] == [("Cy", 2)]


def test_a_page_in_which_a_bit_turned_over_is_refused(spark, tmp_path):
    history = fill((tmp_path / "store").as_uri())
    file = next(path for path in (tmp_path / "store").glob("snapshots/**/*.parquet") if "ustomer" in str(path))
    group = pq.read_metadata(file).row_group(0)
    damaged = bytearray(file.read_bytes())
    for chunk in map(group.column, range(group.num_columns)):
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        damaged[start + chunk.total_compressed_size - 1] ^= 1  # in the last page, behind its header
    file.write_bytes(damaged)
    with pytest.raises(Exception, match="CRC checksum verification failed"):
        read(spark, history, Customer).collect()


def test_explain_says_which_files_are_pruned_and_how_many_rows_are_expected(spark, folder, tmp_path):
    for age in range(3):
        commit(folder, Customer(id="a", name="Ann", age=age), Customer(id=f"b{age}", name="Bob", age=1))
    said = explain(spark, folder, Customer, as_of=2, where=Customer.age > 0, columns=["id"])
    state, files, reader, *plan = said.splitlines()
    assert state == "entity Customer, as of commit 2"
    assert files.startswith("2 of 3 files, 1 pruned; 4 rows and ")
    assert reader == "read by Spark's own Parquet reader"
    assert any("Physical Plan" in line for line in plan)
    assert any("PushedFilters" in line and "age" in line for line in plan)
    database = str(tmp_path / "onto.db")
    commit(database, Customer(id="a", name="Ann", age=1))
    assert explain(spark, database, "Customer").splitlines()[:2] == [
        "entity Customer, the latest state, at commit 1",
        "ranges of keys, read through Arrow: 1",
    ]


@pytest.mark.parametrize(
    "moment", [datetime(1, 1, 1, tzinfo=UTC), datetime(1500, 3, 1, 12, tzinfo=UTC), datetime(1582, 10, 10, tzinfo=UTC)]
)
def test_old_times_are_read_and_found_as_in_process_whatever_the_session_takes_files_for(spark, folder, moment):
    commit(folder, Everything(number=1, moment=moment, day=moment.date()), Everything(number=2))
    setting = "spark.sql.parquet.datetimeRebaseModeInRead"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "LEGACY")
    try:
        with session(folder) as opened:
            for test in (
                Everything.moment == moment,
                Everything.day <= moment.date(),
                Everything.day.in_([moment.date()]),
            ):
                assert opened.query().entities(Everything).where(test).to_spark(spark).count() == 1
        row = read(spark, folder, Everything, where=Everything.number == 1).selectExpr(
            "unix_micros(moment)", "unix_date(day)"
        )
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        assert tuple(row.first()) == (since // timedelta(microseconds=1), since.days)
    finally:
        spark.conf.set(setting, before)
