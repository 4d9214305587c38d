"""`df.write.format("ontologia")`: upserts by the delta rule, checked, in one commit."""

from __future__ import annotations

import datetime as dt
import json
import zipfile

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import _parse_datatype_string

from ontologia import Entity, Field, OntologiaConfig, Relation, Session, ValidationError
from ontologia.runtime.intake.rows import fit_columns, is_plain, json_texts
from ontologia.spark import read
from ontologia.spark.source import OntologiaSource
from ontologia.spark.types import arrow_schema_of
from ontologia.spark.writing import landing
from ontologia.spark.writing.landing import land
from ontologia.spark.writing.plan import plan_write
from ontologia.spark.writing.shares import stage_share
from support.spark_shop import (
    Buys,
    Customer,
    Everything,
    Knows,
    Tidied,
    Tidy,
    commit,
    commits,
    customers,
    head,
    session,
    staged,
)

COLUMNS = "id string, name string, age int, tags array<string>"

pytestmark = pytest.mark.usefixtures("spark")  # to read the types of columns, Spark needs a session


class Tied(Relation[Tidy, Tidy]):
    at: Field[Tidied] = Field(instance_key=True)


class Made(Entity):
    id: Field[str] = Field(default_factory=lambda: "made", primary_key=True)
    size: Field[int]


def taken(cls, kinds, **columns):
    """Columns as a writer takes them in: the rows, and the reasons against others."""
    declaration = cls.__declaration__
    plan = fit_columns(arrow_schema_of(_parse_datatype_string(kinds)), declaration.schema, declaration)
    rows, rejected = plan.take(pa.table(columns))
    return rows.to_pylist(), [row.reason for row in rejected]


def write(frame, uri, type_="Customer", **options):
    frame.write.format("ontologia").option("type", type_).options(**options).mode("append").save(uri)


def refused(frame, uri, type_="Customer", **options):
    """What a write that is refused says; nothing may be committed."""
    before = head(uri)
    with pytest.raises(PySparkException) as caught:
        write(frame, uri, type_, **options)
    assert head(uri) == before
    return str(caught.value)


def filled(uri):
    commit(uri, Customer(id="c1", name="Ann", age=30, tags=["a"]), Customer(id="c2", name="Bob", age=40))
    return uri


@pytest.fixture
def shop(folder):
    return filled(folder)


@pytest.mark.parametrize("uri", ["sqlite", "file"], indirect=True)
@pytest.mark.slow_on("sqlite")
def test_a_write_inserts_what_is_new_updates_what_differs_and_leaves_the_rest(spark, uri):
    shop = filled(uri)
    rows = [("c1", "Ann", 30, ["a"]), ("c2", "Bob", 41, []), ("c3", "Cy", 50, ["x", "y"])]
    write(spark.createDataFrame(rows, COLUMNS).repartition(2), shop, **{"meta.source": "crm"})
    assert customers(shop) == {"c1": ("Ann", 30), "c2": ("Bob", 41), "c3": ("Cy", 50)}
    assert head(shop) == 2
    newest = commits(shop)[0]["metadata"]
    assert (newest["source"], newest["rows_read"], newest["rows_inserted"], newest["rows_updated"]) == (
        *("crm", "3"),
        *("1", "1"),
    )
    with session(shop) as opened:
        changes = [(change["key"], change["operation"]) for change in opened.list_commit_changes(2)]
    assert changes == [("c2", "update_version"), ("c3", "insert")]
    assert staged(shop) == []


def test_what_was_read_can_be_written_back_and_changes_nothing(spark, shop):
    commit(
        shop, Buys(left_key="c1", right_key="c2", at="mon", amount=1.5), Knows(left_key="c1", right_key="c2", since=3)
    )
    write(read(spark, shop, "Buys"), shop, "Buys")
    write(read(spark, shop, "Knows"), shop, "Knows")
    assert head(shop) == 2


def test_every_type_of_value_arrives_as_the_embedded_path_writes_it(spark, folder):
    moment = dt.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=dt.UTC)
    full = Everything(
        number=7,
        text="ü'\"",
        real=float("nan"),
        yes=True,
        moment=moment,
        day=dt.date(1815, 12, 10),
        raw=b"\x00\xff",
        shape={"b": 2, "a": 1},
        commit_id=99,
    )
    commit(folder, full, Everything(number=8))
    rows = [
        (7, "ü'\"", float("nan"), True, moment, dt.date(1815, 12, 10), bytearray(b"\x00\xff"), {"b": 2, "a": 1}, 99),
        (8, None, None, None, None, None, None, None, None),
    ]
    kinds = "number int, text string, real double, yes boolean, moment timestamp, day date, raw binary, "
    frame = spark.createDataFrame(rows, kinds + "shape map<string,int>, commit_id bigint")
    write(frame, folder, "Everything")
    assert head(folder) == 1


def test_relations_are_written_by_endpoints_and_instance_key(spark, folder):
    commit(folder, Buys(left_key="c1", right_key="c2", at="mon", amount=1.0))
    frame = spark.createDataFrame(
        [("c1", "c2", "mon", 1.0), ("c1", "c2", "tue", 2.0)],
        "left_key string, right_key string, at string, amount float",
    )
    write(frame, folder, "Buys", kind="relation")
    with session(folder) as opened:
        found = opened.query().relations(Buys).collect()
    assert sorted((one.at, one.amount) for one in found) == [("mon", 1.0), ("tue", 2.0)]


def test_a_class_named_by_models_makes_the_type_and_gives_its_defaults(spark, folder):
    frame = spark.createDataFrame([("c1", "Ann", 30)], "id string, name string, age int")
    write(frame, folder, models="support.spark_shop:Customer")
    with session(folder) as opened:
        assert opened.query().entities(Customer).collect() == [Customer(id="c1", name="Ann", age=30)]


def test_an_identity_in_two_tasks_is_an_error_or_the_last_one_by_an_order_column(spark, shop):
    rows = [("c1", "old", 1, [], 1), ("c1", "new", 2, [], 2)]
    frame = spark.createDataFrame(rows, f"{COLUMNS}, version int").repartition(2, "version")
    assert "entity Customer 'c1' occurs more than once" in refused(frame.drop("version"), shop)
    write(frame, shop, orderBy="version")
    assert customers(shop)["c1"] == ("new", 2)


def test_a_conflict_aborts_is_skipped_or_updates_as_asked(spark, shop):
    frame = spark.createDataFrame([("c1", "Other", 1, []), ("c9", "New", 1, [])], COLUMNS)
    assert "entity Customer 'c1' exists with other values" in refused(frame, shop, onConflict="abort")
    write(frame, shop, onConflict="skip")
    assert (customers(shop)["c1"], customers(shop)["c9"]) == (("Ann", 30), ("New", 1))


def test_rows_that_do_not_fit_abort_or_are_set_aside_with_reason_and_source(spark, tmp_path):
    shop = filled(str(tmp_path / "onto.db"))
    rows = [("c5", None, 1, []), (None, "No key", 1, []), ("c6", "Good", 1, [])]
    frame = spark.createDataFrame(rows, COLUMNS)
    said = refused(frame.limit(1), shop)
    assert "name: must have a value. The source row is" in said
    assert '"id": "c5"' in said
    write(frame, shop, onInvalid="quarantine")
    assert customers(shop)["c6"] == ("Good", 1)
    assert commits(shop)[0]["metadata"]["rows_rejected"] == "2"
    aside = spark.read.option("recursiveFileLookup", "true").parquet(f"{shop}.staging/quarantine").collect()
    assert {row.reason for row in aside} == {"name: must have a value", "id: must have a value"}
    assert {json.loads(row.source)["name"] for row in aside} == {None, "No key"}


def test_text_that_is_not_utf8_is_set_aside_and_the_rest_can_be_read(spark, tmp_path):
    shop = filled(str(tmp_path / "onto.db"))
    bad = "cast(unhex('ff41') AS string)"
    rows = f"('c5', {bad}, array('a')), ({bad}, 'No key', array()), ('c6', 'Nest', array({bad})), ('c7', 'Good', array('a'))"
    frame = spark.sql(f"SELECT col1 AS id, col2 AS name, 1 AS age, col3 AS tags FROM VALUES {rows}")
    assert "has text that is not valid UTF-8. The source row is" in refused(frame, shop)
    write(frame, shop, onInvalid="quarantine")
    assert customers(shop) == {"c1": ("Ann", 30), "c2": ("Bob", 40), "c7": ("Good", 1)}
    aside = spark.read.option("recursiveFileLookup", "true").parquet(f"{shop}.staging/quarantine").collect()
    assert {(row.reason, json.loads(row.source)["id"]) for row in aside} == {
        ("name: has text that is not valid UTF-8", "c5"),
        ("id: has text that is not valid UTF-8", "\ufffdA"),
        ("tags: has text that is not valid UTF-8", "c6"),
    }


def test_an_identity_is_the_key_as_its_validator_leaves_it(spark, folder):
    frame = spark.createDataFrame([(" A ", "s"), ("b", "s")], "id string, size string")
    write(frame, folder, "Tidy", models="support.spark_shop:Tidy")
    with Session(folder, entity_types=[Tidy], config=OntologiaConfig()) as opened:
        found = opened.query().entities(Tidy).collect()
    assert sorted((one.id, one.meta().key) for one in found) == [("a", "a"), ("b", "b")]
    rows, _ = taken(
        Tied, "left_key string, right_key string, at string", left_key=[" A "], right_key=["b"], at=["MON "]
    )
    assert rows == [{"left_key": " A ", "right_key": "b", "instance_key": "mon"}]


def test_a_key_with_a_default_needs_no_column_and_a_default_is_checked():
    assert taken(Tidy, "size string", size=["s"]) == ([{"entity_key": "none", "id": "none", "size": "s"}], [])
    assert taken(Tidy, "id string", id=["a"]) == ([], ["size: String should have at most 2 characters"])
    with pytest.raises(ValidationError, match="nothing fills id of entity Made"):
        taken(Made, "size int", size=pa.array([1], pa.int32()))


def test_an_instance_key_of_any_white_space_is_blank():
    blank = ["", "\t", "\x1c\u3000", "\x85"]
    ends = {"left_key": ["a"] * 4, "right_key": ["b"] * 4, "amount": [1.0] * 4}
    found = taken(Buys, "left_key string, right_key string, at string, amount double", at=blank, **ends)
    assert found == ([], ["at: a key must not be blank"] * 4)


def test_constraints_and_structure_are_checked(spark, folder):
    commit(folder, Customer(id="c1", name="Ann", age=30))
    young = spark.createDataFrame([("c5", "Eve", -1)], "id string, name string, age int")
    assert "age: Input should be greater than or equal to 0" in refused(
        young, folder, models="support.spark_shop:Customer"
    )
    broken = spark.createDataFrame([("c5", "Eve", 1, '{"a": 1}')], "id string, name string, age int, tags string")
    assert "tags: Input should be a valid" in refused(broken, folder)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            "id string, name string",
            {},
            "nothing fills age, tags of entity Customer: there are the columns id, name",
        ),
        (COLUMNS.replace("age int", "age string"), {}, "age is int, and the column 'age' is string: cast it"),
        (
            COLUMNS.replace("id string", "id array<int>"),
            {},
            "id is str, and the column 'id' is list<element: int32>: cast it",
        ),
        (f"{COLUMNS}, extra int", {}, "entity Customer has no field 'extra'"),
        (f"{COLUMNS}, commit_id int", {}, "write the state, not its versions"),
        (COLUMNS, {"type": "Nobody"}, "Nobody is not in this store; it has entity Customer"),
        (COLUMNS, {"onConflict": "merge"}, "the option onConflict is one of abort, skip, upsert, not 'merge'"),
        (COLUMNS, {"onInvalid": "ignore"}, "the option onInvalid is one of abort, quarantine, not 'ignore'"),
        (COLUMNS, {"onclash": "skip"}, "there is no option 'onclash'"),
        (COLUMNS, {"orderBy": "when"}, "orderBy names 'when'"),
        (COLUMNS, {"models": "nowhere:Customer"}, "cannot be imported"),
        (COLUMNS, {"models": "support.spark_shop:Buys"}, "is relation Buys, and the options ask for relation Customer"),
        (COLUMNS, {"path": ""}, "say where the store is"),
    ],
)
def test_a_write_that_cannot_work_says_why_before_any_task_starts(spark, shop, columns, options, message):
    given = _parse_datatype_string(columns)
    source = OntologiaSource(CaseInsensitiveDict({"path": shop, "type": "Customer", **options}))
    with pytest.raises(ValidationError) as caught:
        source.writer(given, overwrite=False)
    assert message in str(caught.value)


def test_a_write_to_a_file_that_is_not_there_makes_none(tmp_path):
    missing = tmp_path / "mistyped.db"
    source = OntologiaSource(CaseInsensitiveDict({"path": str(missing), "type": "Customer"}))
    with pytest.raises(ValidationError, match="there is no such file"):
        source.writer(_parse_datatype_string(COLUMNS), overwrite=False)
    assert not missing.exists()


def test_what_the_plan_refuses_reaches_the_caller_of_a_write(spark, shop):
    frame = spark.createDataFrame([("c5", "Eve", 1, [])], COLUMNS)
    assert "Nobody is not in this store" in refused(frame, shop, "Nobody")


def test_a_task_that_fails_leaves_nothing_behind(spark, shop):
    frame = spark.createDataFrame([("c8", "Good", 1, []), ("c9", "Bad", 0, [])], COLUMNS).repartition(2, "age")
    failing = frame.selectExpr("id", "name", "CAST(assert_true(age > 0) IS NULL AS INT) AS age", "tags")
    refused(failing, shop)
    assert staged(shop) == []
    assert "c8" not in customers(shop)


@pytest.mark.s3
def test_a_write_and_a_read_on_a_bucket(spark, bucket):
    commit(bucket, Customer(id="c1", name="Ann", age=30))
    write(spark.createDataFrame([("c1", "Ann", 31, []), ("c2", "Bob", 1, ["x"])], COLUMNS), bucket)
    found = read(spark, bucket, Customer).select("id", "age", "tags").collect()
    assert sorted(map(tuple, found)) == [("c1", 31, "[]"), ("c2", 1, '["x"]')]
    with session(bucket) as opened:
        assert [item.key for item in opened.repository.vacuum(0.0).objects] == []


def test_plain_nested_values_are_written_as_json_by_columns_and_all_others_one_by_one():
    rows = [{"b": 'q"ü', "a": [1, None]}, None, {"b": None, "a": []}]
    plain = pa.chunked_array([pa.array(rows, pa.struct([("b", pa.string()), ("a", pa.list_(pa.int64()))]))])
    assert is_plain(plain.type)
    assert [text and json.loads(text) for text in json_texts(plain).to_pylist()] == rows
    assert not is_plain(pa.list_(pa.float64()))
    assert not is_plain(pa.map_(pa.string(), pa.int64()))


@pytest.mark.parametrize("most", [0, 1 << 30])
def test_few_rows_are_landed_in_memory_and_many_as_parts(spark, shop, monkeypatch, most):
    monkeypatch.setattr(landing, "IN_MEMORY_BYTES", most)
    intake = plan_write({"path": shop, "type": "Customer"}, _parse_datatype_string(COLUMNS), overwrite=False)
    rows = pa.table({"id": ["c2", "c9", "c3"], "name": ["Bob", "Di", "Cy"], "age": pa.array([41, 1, 50], pa.int32())})
    batches = rows.append_column("tags", pa.array([[], ["x"], []], pa.list_(pa.string()))).to_batches()
    assert land(intake, [stage_share(intake, iter(batches))]) == 2
    assert customers(shop) == {"c1": ("Ann", 30), "c2": ("Bob", 41), "c3": ("Cy", 50), "c9": ("Di", 1)}
    with session(shop) as opened:
        newest = opened.engine.log.index(Customer.__declaration__.ref).index.entries[-1]
    assert (len(newest.parts), newest.row_count) == (0 if most else 1, 3)


def test_a_write_without_a_column_says_so_in_the_commit_or_keeps_what_is_stored(spark, shop):
    frame = spark.createDataFrame([("c1", "Ann", 31)], "id string, name string, age int")
    write(frame, shop, models="support.spark_shop:Customer", missing="keep")
    with session(shop) as opened:
        assert opened.query().entities(Customer).where(Customer.id == "c1").first().tags == ["a"]
    write(frame, shop, models="support.spark_shop:Customer")
    assert commits(shop)[0]["metadata"]["defaulted"] == "tags, note"


def test_a_decimal_of_zero_or_one_fills_a_bool_of_a_write(spark, folder):
    commit(folder, Everything(number=1))
    frame = spark.sql("SELECT 2 AS number, CAST(1 AS DECIMAL(10,2)) AS yes")
    write(frame, folder, "Everything")
    with session(folder) as opened:
        assert opened.query().entities(Everything).where(Everything.number == 2).first().yes is True


SHIPPED = """
from ontologia import Entity, Field
from shipped_sizes import smallest

class {name}(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int] = Field(default_factory=smallest, ge=1)
"""


@pytest.fixture(scope="module")
def shipped(spark, tmp_path_factory):
    """Classes in an archive that came to a running session with `addPyFile`, as `--py-files` does, too."""
    path = tmp_path_factory.mktemp("archive") / "shipped.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("shipped_sizes.py", "def smallest():\n    return 7\n")
        for name in ("Crate", "Barrel"):
            archive.writestr(f"shipped_{name.lower()}.py", SHIPPED.format(name=name))
    spark.sparkContext.addPyFile(str(path))


@pytest.mark.parametrize("name", ["Crate", "Barrel"])
def test_a_class_in_an_archive_that_spark_ships_is_written(spark, shipped, folder, name):
    frame = spark.createDataFrame([("a",), ("b",)], "id string").repartition(2)
    write(frame, folder, name, models=f"shipped_{name.lower()}:{name}")
    found = spark.read.format("ontologia").option("type", name).load(folder).collect()
    assert sorted((row.id, row.size) for row in found) == [("a", 7), ("b", 7)]


def test_limits_of_a_class_in_an_archive_count(spark, shipped, folder):
    frame = spark.createDataFrame([("a", 0)], "id string, size int")
    text = refused(frame, folder, "Crate", models="shipped_crate:Crate")
    assert text.startswith("entity Crate: size: Input should be greater than or equal to 1")


def test_a_module_that_spark_cannot_import_is_refused_with_what_to_do(spark, folder):
    frame = spark.createDataFrame([("a",)], "id string")
    text = refused(frame, folder, "Crate", models="nowhere:Crate")
    assert text.startswith(
        "models='nowhere:Crate' cannot be imported by the processes that Spark starts: No module named 'nowhere'. Ship "
        "the module with --py-files or spark.sparkContext.addPyFile(…), or install it where Spark runs"
    )
