"""`onto ingest`, `onto pipeline` and `--engine spark`, as an operator types them."""

from __future__ import annotations

import json
import time

import pytest

from ontologia.cli import main
from ontologia.spark.failures import explain_failures
from ontologia.spark.progress import StageProgress, watch_stages
from support.spark_shop import Customer, commit, customers, head, session

MODELS = ["--models", "support.spark_shop"]


@pytest.fixture
def onto(capsys):
    """Run a command in this process, where the session of the tests is the active one."""

    def run(*words, code=0):
        found = main(list(map(str, words)))
        said = capsys.readouterr()
        assert found == code, said.err
        return said.out if code == 0 else said.err

    return run


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("customer_id,name,age\nc1,Ann,30\nc2,Bob,40\n")
    return path


def where(uri):
    return ["--storage-uri", uri] if "://" in uri else ["--db", uri]


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_ingest_loads_a_file_and_its_run_is_listed(spark, uri, csv, onto, engine):
    words = ["ingest", csv, "--into", "Customer", *MODELS, "--map", "id=customer_id", "--engine", engine, *where(uri)]
    preview = json.loads(onto(*words, "--dry-run", "--json"))
    assert (preview["dry_run"], preview["types"]["Customer"]["inserted"], head(uri)) == (True, 2, 0)
    done = json.loads(onto(*words, "--meta", "source=crm", "--json"))
    assert (done["commit_id"], done["types"]["Customer"]["inserted"]) == (1, 2)
    assert customers(uri) == {"c1": ("Ann", 30), "c2": ("Bob", 40)}
    assert "nothing changed: no commit was made" in onto(*words)
    (run,) = json.loads(onto("pipeline", "runs", "--json", *where(uri)))
    assert (run["id"], run["metadata"]["source"], run["metadata"]["rows_inserted"]) == (1, "crm", "2")
    assert "c1" not in onto("pipeline", "runs", *where(uri))


def test_a_pipeline_file_names_its_target_models_and_loads(spark, folder, csv, onto):
    file = csv.parent / "nightly.toml"
    file.write_text(
        f'[target]\nuri = "{folder}"\nmodels = ["support.spark_shop"]\n[options]\non_invalid = "quarantine"\n'
        '[[load]]\nsource = "people.csv"\ninto = "Customer"\nkey = "customer_id"\n'
        'map = { age = "if(age > 35, -1, age)" }\n'
    )
    said = onto("pipeline", "run", file)
    assert "commit 1 in" in said
    assert "rejected rows are in file://" in said
    assert customers(folder) == {"c1": ("Ann", 30)}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere.csv", "--into", "Customer"], "nowhere.csv: there is no such file"),
        (["people.csv", "--into", "Nobody"], "--into Nobody: no declared type has that name; the models have Buys, Cu"),
        (["people.csv", "--into", "Customer", "--map", "size=age"], "entity Customer has no field size; it has id, n"),
        (["people.csv", "--into", "Customer"], "nothing fills id of entity Customer: map it. The source has the colu"),
        (
            ["people.csv", "--into", "Customer", "--map", "id=customer_nr"],
            "the source has no column customer_nr; it has customer_id, name, age",
        ),
    ],
)
def test_what_is_wrong_with_a_load_is_said_in_one_line(spark, folder, csv, onto, monkeypatch, words, told):
    monkeypatch.chdir(csv.parent)
    said = onto(
        "ingest", *words, *MODELS, "--quiet", *where(folder), code=2 if {"Nobody", "nowhere.csv"} & set(words) else 1
    )
    assert told in said
    assert len(said.splitlines()) == 1
    assert head(folder) == 0


def test_compaction_and_queries_run_on_spark_when_asked(spark, folder, onto):
    for age in (1, 2, 3):
        commit(folder, Customer(id="c1", name="Ann", age=age))
    assert "compacted" in onto("compact", "--apply", "--engine", "spark", *where(folder))
    answer = json.loads(onto("query", "entities", "Customer", "--engine", "spark", "--json", *where(folder)))
    assert [row["fields"]["age"] for row in answer["rows"]] == [3]


def test_files_of_every_format_and_a_table_behind_jdbc_are_sources_of_one_run(spark, folder, tmp_path):
    from ontologia.spark import Pipeline

    run, address = Pipeline(spark, folder), f"jdbc:derby:{tmp_path}/crm;create=true"
    for age, format in enumerate(("csv", "json", "parquet", "orc", "jdbc")):
        person = spark.createDataFrame([(format, "Ann", age)], "id string, name string, age int")
        if format == "jdbc":
            person.write.format("jdbc").options(url=address, dbtable="people").save()
            run.load(address, into=Customer, options={"dbtable": "people"})
        else:
            options = {"header": "true"} if format == "csv" else {}
            person.write.format(format).options(**options).save(str(tmp_path / format))
            run.load(tmp_path / format, into=Customer, format=format)
    assert run.commit().types["Customer"].inserted == 5
    assert {key: age for key, (_, age) in customers(folder).items()} == {
        "csv": 0,
        "json": 1,
        "parquet": 2,
        "orc": 3,
        "jdbc": 4,
    }


def test_who_waits_sees_what_runs_its_tasks_and_its_rows(spark):
    def slowly(batches):
        for batch in batches:
            time.sleep(1.5)
            yield batch

    seen: list[StageProgress] = []
    rows = spark.range(0, 1_000, numPartitions=4).repartition(4)
    with watch_stages(spark, seen.append, every_s=0.1), explain_failures("counting sheep"):
        assert rows.mapInArrow(slowly, "id bigint").count() == 1_000
    assert {"counting sheep"} == {stage.description for stage in seen}
    assert {stage.tasks for stage in seen} >= {4}
    assert max(stage.rows for stage in seen) > 0


def test_a_name_of_a_job_ends_with_it(spark):
    with explain_failures("counting sheep"):
        spark.range(1).count()
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


def test_an_empty_cell_takes_the_default_of_a_field_that_must_have_a_value(spark, folder, tmp_path, onto):
    (tmp_path / "people.csv").write_text('id,name,age,tags,note\nc1,Ann,30,,\nc2,Bob,40,"[""x""]",hi\n')
    onto("ingest", tmp_path / "people.csv", "--into", "Customer", *MODELS, *where(folder))
    with session(folder) as opened:
        found = {one.id: (one.tags, one.note) for one in opened.query().entities(Customer).collect()}
    assert found == {"c1": ([], None), "c2": (["x"], "hi")}
