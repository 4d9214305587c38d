"""Loads in process: the rules of the pipeline, without Spark."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
import uuid
from decimal import Decimal
from typing import Annotated
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from annotated_types import Ge

from ontologia import Entity, Field, OntologiaConfig, Relation, Session, ValidationError
from ontologia.engines.initializing import initialize_storage
from ontologia.objects import open_objects
from ontologia.runtime.intake.reports import TypeReport
from ontologia.runtime.loading.local import LocalPipeline
from ontologia.runtime.loading.sources import OnlySpark, read_source


class Person(Entity):
    id: Field[int] = Field(primary_key=True)
    name: Field[str]
    age: Field[Annotated[int, Ge(0)]] = 7
    born: Field[dt.date | None] = None
    tags: Field[list[str]] = Field(default_factory=list)


class Likes(Relation[Person, Person]):
    since: Field[int | None] = None


@pytest.fixture(params=["sqlite", "file"])
def uri(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "onto.db")
    initialize_storage(storage_uri=(tmp_path / "store").as_uri())
    return (tmp_path / "store").as_uri()


def people(uri):
    with Session(uri, entity_types=[Person]) as opened:
        return {row.id: (row.name, row.age, row.born, row.tags) for row in opened.query().entities(Person).collect()}


def test_a_file_is_loaded_compared_and_committed_once(uri, tmp_path):
    file = tmp_path / "people.csv"
    file.write_text('nr,name,age,born,tags\n007," Ann ",3,2024-01-02,"[""x""]"\n8,"a\nb",,,\n')
    load = {"into": Person, "map": {"id": "nr", "name": "trim(name)"}}
    report = LocalPipeline(uri).load(file, **load).commit(meta={"by": "me"})
    assert report.types == {"Person": TypeReport(read=2, inserted=2)}
    assert people(uri) == {7: ("Ann", 3, dt.date(2024, 1, 2), ["x"]), 8: ("a\nb", 7, None, [])}
    again = LocalPipeline(uri).load(file, **load).commit()
    assert (again.commit_id, again.types["Person"].unchanged) == (None, 2)
    file.write_text("nr,name\n8,Bob\n9,Cy\n")
    dry = LocalPipeline(uri).load(file, **load).commit(dry_run=True)
    assert (dry.commit_id, dry.types["Person"]) == (None, TypeReport(read=2, inserted=1, updated=1))
    assert (again.defaulted, dry.defaulted) == ({"Person": ()}, {"Person": ("age", "born", "tags")})
    assert len(people(uri)) == 2
    with Session(uri, entity_types=[Person]) as opened:
        metadata = opened.list_commits()[0]["metadata"]
    assert (metadata["by"], metadata["pipeline"], metadata["rows_inserted"]) == ("me", "in process", "2")


def test_fields_without_a_column_keep_what_is_stored_where_that_is_asked_for(uri):
    born = dt.date(2024, 1, 2)
    with Session(uri, entity_types=[Person]) as opened:
        opened.ensure([Person(id=1, name="Ann", age=3, born=born, tags=["x"]), Person(id=2, name="Bob", age=4)])
        opened.commit()
    few = pa.table({"id": [1, 2, 3], "name": ["Anna", "Bob", "Cy"]})
    report = LocalPipeline(uri).load(few, into=Person, missing="keep").commit()
    assert report.types["Person"] == TypeReport(read=3, inserted=1, updated=1, unchanged=1)
    assert report.defaulted == {"Person": ()}
    kept = {1: ("Anna", 3, born, ["x"]), 2: ("Bob", 4, None, []), 3: ("Cy", 7, None, [])}
    assert people(uri) == kept
    with pytest.raises(ValidationError, match="missing is one of default, keep"):
        LocalPipeline(uri).load(few, into=Person, missing="hold")
    LocalPipeline(uri).load(few, into=Person).commit()
    assert people(uri)[1] == ("Anna", 7, None, [])


def test_ends_are_spelled_as_the_keys_they_mean(uri, tmp_path):
    (tmp_path / "likes.csv").write_text("a,b,since\n007,7.0,1\nx,7,2\n")
    pipeline = LocalPipeline(uri, on_invalid="quarantine").load(tmp_path / "likes.csv", into=Likes, left="a", right="b")
    report = pipeline.commit()
    assert report.types["Likes"] == TypeReport(read=2, inserted=1, rejected=1)
    with Session(uri, entity_types=[Person], relation_types=[Likes]) as opened:
        (found,) = opened.query().relations(Likes).collect()
    assert (found.left_key, found.right_key) == ("7", "7")


def test_rows_that_do_not_fit_stop_a_load_or_are_set_aside_with_their_source(uri, tmp_path):
    (tmp_path / "p.csv").write_bytes(b"id,name,age,more\n1,Ann,-1,x\n2,M\xfcller,1,y\n3,Cy,4.5,\n,D,1,\n5,Eve,1,z\n")
    with pytest.raises(ValidationError, match=r"entity Person: age: .* The source row is .*\"more\": \"x\""):
        LocalPipeline(uri).load(tmp_path / "p.csv", into=Person).commit()
    report = LocalPipeline(uri, on_invalid="quarantine").load(tmp_path / "p.csv", into=Person).commit()
    assert report.types["Person"] == TypeReport(read=5, inserted=1, rejected=4)
    folder = report.quarantine.removeprefix("file://")
    rows = pq.read_table(f"{folder}entity-Person", partitioning=None).to_pylist()
    assert [row["reason"].partition(":")[0] for row in rows] == ["age", "name", "age", "id"]
    assert json.loads(rows[1]["source"]) == {"id": "2", "name": "M\ufffdller", "age": "1", "more": "y"}
    assert set(people(uri)) == {5}


def test_the_last_row_of_an_identity_is_kept_by_its_order_and_then_by_its_values(uri):
    table = pa.table({"id": [1] * 5, "name": ["a", "e", "b", "d", "c"], "at": ["9", "10", "10", "10", None]})
    with pytest.raises(ValidationError, match="occurs more than once"):
        LocalPipeline(uri).load(table, into=Person).commit()
    report = LocalPipeline(uri).load(table, into=Person, order_by="at", on_tie="greatest").commit()
    assert (people(uri)[1][0], report.types["Person"].ties) == ("e", 1)
    with pytest.raises(ValidationError, match="has several rows that order_by takes for the last"):
        LocalPipeline(uri).load(table, into=Person, order_by="at").commit()
    with pytest.raises(ValidationError, match="exists with other values"):
        LocalPipeline(uri, on_conflict="abort").load(table.slice(0, 1), into=Person).commit()


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        ({"map": {"name": "upper(name)"}}, "is an expression of Spark"),
        ({"options": {"inferSchema": "true"}}, "options of .* are for Spark"),
        ({"format": "avro"}, "is of no kind that is read in process"),
    ],
)
def test_what_only_spark_can_do_is_left_to_it(tmp_path, load, reason):
    (tmp_path / "p.csv").write_text("id,name\n1,Ann\n")
    with pytest.raises(OnlySpark, match=reason):
        LocalPipeline(str(tmp_path / "onto.db")).load(tmp_path / "p.csv", into=Person, **load)


def test_a_wrong_load_is_refused_as_on_spark(tmp_path):
    (tmp_path / "a.csv").write_text("id,Name\n1,Ann\n")
    (tmp_path / "b.csv").write_text("id,name,Age\n1,Ann,2\n")
    (tmp_path / "c.csv").write_text("id,name,name\n1,Ann,2\n")
    (tmp_path / "d.csv").write_text("id,name\n1,Ann,2\n")
    (tmp_path / "e.csv").touch()
    (tmp_path / "f.csv").write_text("id, name\n1,Ann\n")
    (tmp_path / "g.json").write_text('{"id": 1, "name": "Ann", "id": 2}\n')
    local = LocalPipeline(str(tmp_path / "onto.db"))
    for name, said in {
        "a": "nothing fills name of entity Person: map it",
        "b": "'Age' for age",
        "c": "has the column 'name' more than once",
        "d": "d.csv cannot be read as CSV: .*Expected 2 columns, got 3",
        "e": "the source for entity Person is empty",
        "f": "The source has the columns id, ' name'",
        "g": "line 1: cannot be read as JSON: 'id' is there more than once",
    }.items():
        with pytest.raises(ValidationError, match=said):
            local.load(tmp_path / f"{name}.{'json' if name == 'g' else 'csv'}", into=Person)
    with pytest.raises(ValidationError, match="id is a key: text, a whole number, a date or a time"):
        LocalPipeline(local.target).load(pa.table({"id": [True], "name": ["x"]}), into=Person)


def test_files_of_several_kinds_are_read(tmp_path):
    (tmp_path / "a.json").write_text('{"id": 1, "name": "Ann"}\n\n{"id": 2.5, "x": null}\n')
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    (tmp_path / "a.tsv").write_text("id\tname\n1\ta,b\n")
    (tmp_path / "b1.csv").write_text("id,name\n1,a\n")
    (tmp_path / "b2.csv").write_text("name,id\nb,2\n")
    (tmp_path / "b3.csv").write_text("")
    assert read_source(tmp_path / "a.json").to_pydict() == {"id": [1.0, 2.5], "name": ["Ann", None], "x": [None, None]}
    assert read_source(tmp_path / "a.parquet").to_pydict() == {"id": [1]}
    assert read_source(tmp_path / "a.tsv").to_pydict() == {"id": ["1"], "name": ["a,b"]}
    assert read_source(str(tmp_path / "b*.csv")).to_pydict() == {"id": ["1", "2"], "name": ["a", "b"]}
    (tmp_path / "bad.json").write_text('{"id": 1}\n{"id": \n')
    with pytest.raises(ValidationError, match=r"bad.json, line 2: cannot be read as JSON"):
        read_source(tmp_path / "bad.json")


def test_a_small_load_in_the_console_starts_no_spark(tmp_path):
    (tmp_path / "models.py").write_text(
        "from ontologia import Entity, Field\n\n\nclass Person(Entity):\n"
        "    id: Field[int] = Field(primary_key=True)\n    name: Field[str]\n"
    )
    (tmp_path / "p.csv").write_text("id,name\n" + "".join(f"{n},n{n}\n" for n in range(16)))
    code = (
        "import sys; from ontologia.cli import main\n"
        "sys.argv = ['onto', 'ingest', 'p.csv', '--into', 'Person', '--models', 'models.py', '--db', 'onto.db', '--json']\n"
        "try:\n    main()\nfinally:\n    print('pyspark' in sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["types"]["Person"]["inserted"] == 16
    assert done.stderr.splitlines()[-1] == "False"


def test_a_pipeline_without_a_session_runs_in_process(tmp_path):
    pipeline = pytest.importorskip("ontologia.spark.loading.pipeline").Pipeline
    uri = str(tmp_path / "onto.db")
    table = pa.table({"id": [1], "name": ["a"]})
    assert pipeline(None, uri).load(table, into=Person).commit().commit_id == 1
    with pytest.raises(ValidationError, match=r"needs a session of Spark, because 'upper\(name\)'"):
        pipeline(None, uri).load(table, into=Person, map={"name": "upper(name)"})


def test_small_files_of_loads_are_merged(tmp_path):
    uri = (tmp_path / "store").as_uri()
    initialize_storage(storage_uri=uri)
    config = OntologiaConfig(compact_after_commits=4)
    for number in range(6):
        LocalPipeline(uri, config).load(pa.table({"id": [number], "name": ["n"]}), into=Person).commit()
    assert len(list((tmp_path / "store").rglob("*.parquet"))) > 6  # the merged one
    assert len(people(uri)) == 6


@pytest.mark.s3
def test_rows_are_set_aside_in_the_bucket_that_the_address_names(s3, monkeypatch):
    prefix = uuid.uuid4().hex
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "ONTOLOGIA_S3_ENDPOINT_URL", "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    objects = open_objects(s3.uri(f"loads/{prefix}"), endpoint_url=s3.endpoint_url)
    for number, address in enumerate(
        (
            f"s3://loads@{urlsplit(s3.endpoint_url).netloc}/{prefix}",
            f"s3://loads/{prefix}?region=us-east-1&endpoint={s3.endpoint_url}",
        )
    ):
        if number == 0:
            initialize_storage(storage_uri=address)
        rows = pa.table({"id": [number, 9], "name": ["Ann", "Bob"], "age": [1, -1]})
        report = LocalPipeline(address, on_invalid="quarantine").load(rows, into=Person).commit()
        assert report.types["Person"] == TypeReport(read=2, inserted=1, rejected=1)
        assert len(list(objects.list("quarantine/"))) == number + 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('id,name\n1,a\n2,"b\n3,c\n', "people.csv: a quote that is opened in line 3 is never closed"),
        ('id,name\n1,"a\nb"\n2,"a"b\n', "people.csv, line 4: a value continues after its closing quote"),
    ],
)
def test_quotes_that_parsers_would_guess_at_are_refused_and_nothing_is_removed(uri, tmp_path, text, said):
    file = tmp_path / "people.csv"
    file.write_text("id,name\n1,a\n2,b\n3,c\n")
    LocalPipeline(uri).load(file, into=Person, mode="sync").commit()
    file.write_text(text)
    with pytest.raises(ValidationError, match=said):
        LocalPipeline(uri).load(file, into=Person, mode="sync")
    assert len(people(uri)) == 3


def test_a_quote_without_others_around_a_value_is_a_sign_like_any_other(uri, tmp_path):
    file = tmp_path / "people.csv"
    file.write_text('id,name\n1,5" pipe\n2,"a ""b"""\n')
    LocalPipeline(uri).load(file, into=Person).commit()
    assert [row[0] for row in people(uri).values()] == ['5" pipe', 'a "b"']


def test_a_dry_run_makes_no_file(tmp_path):
    report = LocalPipeline(tmp_path / "new.db").load(pa.table({"id": [1], "name": ["n"]}), into=Person)
    assert report.commit(dry_run=True).types["Person"].inserted == 1
    assert list(tmp_path.iterdir()) == []


def test_a_column_that_there_is_not_is_a_mistake_and_nothing_for_spark(uri):
    rows = pa.table({"nr": [1], "name": ["n"]})
    with pytest.raises(ValidationError, match="the source has no column nmr; it has nr, name"):
        LocalPipeline(uri).load(rows, into=Person, map={"id": "nmr"})
    with pytest.raises(OnlySpark):
        LocalPipeline(uri).load(rows, into=Person, map={"id": "nr", "born": "current_date"})


class Flag(Entity):
    id: Field[str] = Field(primary_key=True)
    on: Field[bool | None] = None


@pytest.mark.parametrize("places", [0, 2])
def test_a_decimal_of_zero_or_one_fills_a_bool_and_any_other_is_set_aside(tmp_path, places):
    values = pa.array([Decimal(0), Decimal(1), Decimal(7), None], pa.decimal128(10, places))
    table = pa.table({"id": ["a", "b", "c", "d"], "on": values})
    place = str(tmp_path / "onto.db")
    report = LocalPipeline(place, on_invalid="quarantine").load(table, into=Flag).commit()
    assert report.types["Flag"].rejected == 1
    with Session(place, entity_types=[Flag]) as opened:
        assert [flag.on for flag in opened.query().entities(Flag).order_by(Flag.id).collect()] == [False, True, None]


def test_a_decimal_that_has_no_digit_before_the_point_fills_a_bool_as_well(tmp_path):
    table = pa.table({"id": ["a"], "on": pa.array([Decimal("0.00")], pa.decimal128(2, 2))})
    assert LocalPipeline(str(tmp_path / "onto.db")).load(table, into=Flag).commit().types["Flag"].inserted == 1


@pytest.mark.parametrize("names", [("x", "y", "y"), ("y", "y", "x"), ("x", "y"), ("x", "x", "y", "y")])
def test_rows_that_differ_tie_also_where_the_greatest_of_them_has_a_twin(tmp_path, names):
    count = len(names)
    table = pa.table({"id": [1] * count, "name": names, "at": [5] * count})
    place = str(tmp_path / "onto.db")
    with pytest.raises(ValidationError, match="several rows that order_by takes for the last"):
        LocalPipeline(place).load(table, into=Person, order_by="at").commit()
    report = LocalPipeline(place).load(table, into=Person, order_by="at", on_tie="greatest").commit()
    assert (report.types["Person"].ties, people(place)[1][0]) == (1, "y")


def test_twins_that_are_the_last_are_no_tie(tmp_path):
    table = pa.table({"id": [1] * 3, "name": ["x", "y", "y"], "at": [4, 5, 5]})
    report = LocalPipeline(str(tmp_path / "onto.db")).load(table, into=Person, order_by="at").commit()
    assert report.types["Person"].ties == 0


@pytest.mark.parametrize(
    ("text", "is_number"), [("10", True), (" 1e1 ", True), ("10d", False), ("1_0", False), ("١٢", False)]
)
def test_text_counts_as_a_number_in_order_by_where_a_float_would_take_it(tmp_path, text, is_number):
    table = pa.table({"id": [1, 1], "name": ["it", "nine"], "at": [text, "9"]})
    place = str(tmp_path / "onto.db")
    LocalPipeline(place).load(table, into=Person, order_by="at").commit()
    assert people(place)[1][0] == ("it" if is_number else "nine")
