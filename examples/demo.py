"""The whole story on a small data set: load, ask, travel in time, migrate, grow into a bucket, compact.

    make demo        or        python examples/demo.py [a folder for its stores]

It starts with one SQLite file. The data are bodies of the solar system, as catalogues since 1800 had them, and
spacecraft that went there.
"""

from __future__ import annotations

import csv
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from screen import bars, console, say, show_classes, step, table
from solar_system import Body, Mission, Orbits, Visited

from ontologia import Entity, Field, Ontology, count, initialize_storage, right
from ontologia.runtime.transfer import ImportReport, export_data, import_data
from ontologia.spark import Pipeline, PipelineReport, read, read_stream, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent.absolute()
DATA = HERE / "data"
YEARS = [1800, 1807, 1870, 1877, 1930, 1978, 2005, 2006]
DATABASE, BUCKET, EXPORT, CHECKPOINT = "solar-system.db", "bucket", "export", "checkpoint"


class EarlyMission(Entity, name="Mission"):
    name: Field[str] = Field(primary_key=True)
    launched: Field[date]
    agency: Field[str]  # such as NASA/ESA/ASI


# --- the steps: each shows its code, and runs it ---


@step("Load", "Spark reads a file into two types, checks every row, and publishes one commit.")
def load_first_catalogue(spark: SparkSession, store: str) -> PipelineReport:
    rows = spark.read.csv(f"{DATA}/catalogues.csv", header=True).where("catalogue = 1800")
    pipeline = Pipeline(spark, store).load(rows, into=Body)
    pipeline.load(rows.where("orbits is not null"), into=Orbits, left="name", right="orbits")
    return pipeline.commit(meta={"catalogue": "1800"})


@step("Commit", "Small changes need no Spark: say what should be, and a commit writes what differs.")
def commit_later_catalogues(onto: Ontology) -> None:
    for year in YEARS[1:]:
        with onto.session() as session:
            session.ensure(facts(year))
            session.commit(meta={"catalogue": str(year)})


@step("Ask", "Queries are typed, and run where the data is.")
def large_moons(onto: Ontology) -> list[Body]:
    moons = onto.query().entities(Body).where(Body.kind == "moon", Body.radius_km > 1_000)
    return moons.order_by(Body.radius_km, descending=True).collect()


@step("Travel in time", "How many planets are there? It depends on when you ask.")
def planets_by_commit(onto: Ontology) -> list[int]:
    planets = onto.query().entities(Body).where(Body.kind == "planet")
    return [planets.as_of(commit).count() for commit in range(1, 9)]


@step("Look back", "Nothing is overwritten: every version is kept, with its commit.")
def versions_of_ceres(onto: Ontology) -> list[Body]:
    return onto.query().entities(Body).where(Body.name == "Ceres").with_history().collect()


@step("Load more", "Two files, two types, still one commit. The same again would write nothing.")
def load_missions(spark: SparkSession, store: str) -> PipelineReport:
    pipeline = Pipeline(spark, store).load(DATA / "missions.csv", into=EarlyMission)
    pipeline.load(DATA / "visits.csv", into=Visited, left="mission", right="body")
    return pipeline.commit(meta={"source": "missions.csv, visits.csv"})


def split_agencies(row):
    return {"name": row["name"], "launched": row["launched"], "agencies": row["agency"].split("/")}


@step(
    "Migrate",
    "A class changes: one text of agencies becomes a list. A preview, its token, then one commit or nothing.",
    shows=[Mission, split_agencies],
)
def migrate(onto: Ontology) -> tuple[Any, Any]:
    steps = {("Mission", 1): split_agencies}
    preview = onto.migrate(dry_run=True, upgraders=steps)
    result = onto.migrate(dry_run=False, token=preview.token, upgraders=steps)
    return preview, result


@step("Join", "Relations are data, too: filter them by what they join, and group them.")
def visits_of_moons(onto: Ontology) -> list[dict[str, Any]]:
    visits = onto.query().relations(Visited).where(right(Visited).kind == "moon")
    return visits.group_by(Visited.right_key).agg(visits=count())


@step("Traverse", "Or follow them: where did missions with ESA go, and what does that orbit?")
def visited_with_esa(onto: Ontology) -> list[Any]:
    missions = onto.query().entities(Mission).where(Mission.agencies.contains("ESA"))
    return missions.via(Visited).via(Orbits).collect()


@step("Grow", "A file becomes a bucket: s3://, gs://, or here a folder with the same layout. State moves as files.")
def move(onto: Ontology, bucket: Ontology, folder: Path) -> ImportReport:
    export_data(onto, folder, types=["Mission", "Orbits", "Visited"])
    return import_data(bucket, folder, dry_run=False)


@step("Stream", "Bodies have a history worth keeping: a stream carries it over, commit by commit, each once.")
def stream(spark: SparkSession, store: str, uri: str, checkpoint: str) -> None:
    changes = read_stream(spark, store, Body, max_commits_per_batch=1)
    sink = changes.drop("commit_id", "operation").writeStream.format("ontologia")
    sink = sink.options(type="Body", models="solar_system:Body", checkpointLocation=checkpoint)
    sink.trigger(availableNow=True).start(uri).awaitTermination()


@step("Compact", "Many small files become one, and every answer stays the same.")
def compact(bucket: Ontology) -> Any:
    return bucket.repository.compact(apply=True)


@step("Analyse", "The bucket is Parquet: Spark reads every version with its own reader, as a DataFrame.")
def versions_by_commit(spark: SparkSession, uri: str) -> DataFrame:
    return read(spark, uri, Body, history=True).groupBy("commit_id").count().orderBy("commit_id")


# --- the story ---


def main(folder: Path) -> None:
    started = time.monotonic()
    prepare(folder)
    store, uri = str(folder / DATABASE), (folder / BUCKET).absolute().as_uri()
    console.print("[bold]Ontologia[/]: typed data with history, from a file to a bucket that Spark works on")
    say("Declare", "Types are classes. A relation joins two of them.")
    show_classes(Body, Orbits)
    console.print("  Mission ──Visited──▶ Body ──Orbits──▶ Body", style="green")
    console.print("\nSpark starts, which takes about ten seconds.")
    spark = started_spark()
    show_report(load_first_catalogue(spark, store))
    with Ontology(store, entity_types=[Body], relation_types=[Orbits]) as onto:
        planets = history(onto)
    show_report(load_missions(spark, store))
    with Ontology(store, entity_types=[Body, Mission], relation_types=[Orbits, Visited]) as onto:
        migration(onto)
        relations(onto)
        grow(spark, onto, folder, uri, planets)
    spark.stop()
    farewell(folder, uri, time.monotonic() - started)


def started_spark() -> SparkSession:
    found = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *([found] if found else [])])  # its workers need our classes
    return spark_session("demo", brief=True)


def history(onto: Ontology) -> list[int]:
    commit_later_catalogues(onto)
    log = [
        (commit["id"], commit["metadata"]["catalogue"], *changes(onto, commit["id"])) for commit in onto.list_commits()
    ]
    table(("commit", "catalogue", "new", "changed"), reversed(log))
    bars((moon.name, moon.radius_km, f"km, found {moon.discovered or 'long ago'}") for moon in large_moons(onto))
    planets = planets_by_commit(onto)
    remarks = {1807: "with Ceres, Pallas, Juno and Vesta", 1870: "without, but with Neptune", 1930: "with Pluto"}
    bars((year, found, remarks.get(year, "")) for year, found in zip(YEARS, planets, strict=True))
    table(("commit", "Ceres was a"), [(body.meta().commit_id, body.kind) for body in versions_of_ceres(onto)])
    return planets


def changes(onto: Ontology, commit: int) -> tuple[int, int]:
    found = [change["operation"] for change in onto.list_commit_changes(commit)]
    return found.count("insert"), found.count("update_version")


def migration(onto: Ontology) -> None:
    preview, result = migrate(onto)
    difference = preview.diffs[0]
    fields = ", ".join(difference.removed), ", ".join(difference.added)
    version = result.new_schema_versions["Mission"]
    table(
        ("type", "version", "without", "with", "rows", "commit", "token"),
        [("Mission", version, *fields, result.rows_migrated, result.commit_id, f"{preview.token[:8]}…")],
    )


def relations(onto: Ontology) -> None:
    found = sorted(visits_of_moons(onto), key=lambda row: -row["visits"])
    bars((row["right_key"], row["visits"], "") for row in found)
    paths = sorted(tuple(body.name for body in path.entities) for path in visited_with_esa(onto))
    table(("mission", "visited", "which orbits"), paths)


def grow(spark: SparkSession, onto: Ontology, folder: Path, uri: str, planets: list[int]) -> None:
    initialize_storage(storage_uri=uri)
    with Ontology(storage_uri=uri, entity_types=[Body, Mission], relation_types=[Orbits, Visited]) as bucket:
        moved = move(onto, bucket, folder / EXPORT)
        table(("type", "rows", "commit"), [(item.ref.name, item.rows, moved.commit_id) for item in moved.types])
        stream(spark, str(folder / DATABASE), uri, str(folder / CHECKPOINT))
        table(
            ("catalogue", "planets in the file", "in the bucket"),
            zip(map(str, YEARS), planets, in_bucket(bucket), strict=True),
        )
        body = next(item for item in compact(bucket).types if item.ref.name == "Body")
        bars([("before", body.files, "files of Body"), ("after", 1, "file")])
        same = in_bucket(bucket) == planets
        console.print(f"  planets since 1800: {', '.join(map(str, in_bucket(bucket)))} {'(the same)' if same else ''}")
        counts = versions_by_commit(spark, uri).collect()
        bars((f"commit {row.commit_id}", row["count"], f"of {year}") for row, year in zip(counts, YEARS, strict=True))


def in_bucket(bucket: Ontology) -> list[int]:
    """Planets by commit. The bucket's first commit is the import, before there were bodies."""
    planets = bucket.query().entities(Body).where(Body.kind == "planet")
    return [planets.as_of(commit).count() for commit in range(2, 2 + len(YEARS))]


def facts(year: int) -> Iterator[Body | Orbits]:
    """What the catalogue of a year has that earlier ones have not."""
    with (DATA / "catalogues.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["catalogue"] == str(year):
                yield Body.model_validate({name: row[name] or None for name in Body.__entity_fields__})
                yield Orbits(left_key=row["name"], right_key=row["orbits"], distance_km=float(row["distance_km"]))


def show_report(report: PipelineReport) -> None:
    counts = ("read", "inserted", "updated", "unchanged")
    rows = [(name, *(getattr(item, count) for count in counts)) for name, item in report.types.items()]
    table(("type", *counts, "commit"), [(*row, report.commit_id) for row in rows])


def prepare(folder: Path) -> None:
    """Make room: what an earlier run left in the folder goes, and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if not path.name.startswith((DATABASE, BUCKET, EXPORT, CHECKPOINT)):
            sys.exit(f"{folder} has {path.name} in it, which is not of this demo: name another folder")
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def console_command() -> str:
    """How to call the console that belongs to this Python."""
    beside = Path(sys.executable).parent / "onto"
    if shutil.which("onto") == str(beside):
        return "onto"
    if beside.exists():
        return shlex.quote(os.path.relpath(beside))
    return f"{shlex.quote(os.path.relpath(sys.executable))} -m ontologia.cli"


def farewell(folder: Path, uri: str, seconds: float) -> None:
    onto = console_command()
    file, bucket = f"--db {shlex.quote(str(folder / DATABASE))}", f"--storage-uri {shlex.quote(uri)}"
    models = shlex.quote(os.path.relpath(HERE / "solar_system.py"))
    console.print(f"\nThat took {seconds:.0f} seconds. The file is {folder / DATABASE}, the bucket {folder / BUCKET}.")
    say("Try next", "what lies there is yours to look at:")
    for line in (
        f"info {file}",
        f"query entities Body {file} --filter '$.kind' eq '\"planet\"' --as-of 2",
        f"commits examine {file} --id 8",
        f"query traverse Mission {bucket} --via Visited --via Orbits --limit 5",
        f"verify {bucket} --models {models}",
        f"info {bucket}",
    ):
        console.print(f"    {onto} {line}", soft_wrap=True, markup=False)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
