"""Every door to a library of an extra, in a process that has none of them: what each says, as JSON.

`python -m support.without_extras FOLDER` works in an empty folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib.machinery import PathFinder
from io import StringIO
from pathlib import Path
from typing import Any

from ontologia import Entity, Field, OntologiaError, Ontology, initialize_storage

IN_PROCESS = ("Pipeline", "PipelineReport")  # without a session
HIDDEN = ("lance", "pandas", "polars", "pyspark")
MODELS = (
    "from ontologia import Entity, Field\n\nclass Person(Entity):\n    name: Field[str] = Field(primary_key=True)\n"
)


class WithoutExtras(PathFinder):
    """Finds what is installed, but for what came with an extra."""

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        hidden = fullname.partition(".")[0] in HIDDEN
        return None if hidden else super().find_spec(fullname, path, target)


class Person(Entity):
    name: Field[str] = Field(primary_key=True)


def said_by(door: Callable[[], Any]) -> str:
    try:
        door()
    except OntologiaError as problem:
        return f"{problem.code}: {problem}"
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    return "nothing"


def said_by_console(*arguments: str) -> str:
    """The exit code, and all lines but the target's."""
    from ontologia.cli import main

    with redirect_stderr(StringIO()) as err, redirect_stdout(StringIO()) as out:
        code = main(arguments)
    lines = [line for line in (out.getvalue() + err.getvalue()).splitlines() if not line.startswith("target: ")]
    return f"{code}: {' / '.join(lines)}"


def doors_of_graphs(new: str, graph: str) -> dict[str, str]:
    from ontologia.omnigraph import Omnigraph

    return {
        "Omnigraph.init": said_by(lambda: Omnigraph.init(new, types=[Person])),
        "Omnigraph.open": said_by(lambda: Omnigraph.open(graph)),
        "initialize_storage": said_by(lambda: initialize_storage(storage_uri=new, engine="omnigraph")),
    }


def doors_of_queries(bucket: str) -> dict[str, str]:
    with Ontology(storage_uri=bucket) as store:
        for name in ("ann", "bob"):
            with store.session() as session:
                session.ensure(Person(name=name))
        query = store.query().entities(Person)
        return {
            "query.to_pandas": said_by(query.to_pandas),
            "query.to_polars": said_by(query.to_polars),
            "query.to_spark": said_by(lambda: query.to_spark(None)),  # type: ignore[arg-type]
        }


def doors_of_frames(frames: str) -> dict[str, str]:
    from ontologia.apiary import Apiary

    with Apiary("frames", storage=frames) as apiary:
        apiary.create_hive("h")
        apiary.create_box("h", "b")
        frame = apiary.create_frame("h", "b", "f", schema={"n": "int64"})
        frame.write([{"n": 1}])
        return {
            "frame.to_pandas": said_by(frame.to_pandas),
            "frame.to_polars": said_by(frame.to_polars),
            "frame.to_spark": said_by(frame.to_spark),
            "frame.compact": said_by(lambda: frame.compact(engine="spark")),
            "apiary.query": said_by(lambda: apiary.query("SELECT * FROM h.b.f", engine="spark")),
        }


def doors_of_spark() -> dict[str, str]:
    from ontologia import spark
    from ontologia.spark.session import spark_session

    names = {
        f"ontologia.spark.{name}": said_by(lambda name=name: getattr(spark, name))
        for name in spark.__all__
        if name not in IN_PROCESS
    }
    return names | {"spark_session()": said_by(spark_session)}


def doors_of_the_console(folder: Path, new: str, graph: str, bucket: str, frames: str) -> dict[str, str]:
    rows, models, pipeline = (folder / name for name in ("rows.csv", "models.py", "pipeline.toml"))
    rows.write_text("name\nann\n")
    models.write_text(MODELS)
    pipeline.write_text(f'[[load]]\nsource = "{rows}"\ninto = "Person"\n')
    exported = str(folder / "exported")
    said_by_console("export", "--output", exported, "--storage-uri", bucket)
    spark, at, of = ("--engine", "spark"), ("--storage-uri", bucket), ("--models", str(models))
    commands = [
        ("init", "--engine", "omnigraph", "--storage-uri", new),
        ("init", "--engine", "omnigraph", "--storage-uri", new, "--dry-run"),
        ("branch", "list", "--storage-uri", graph),
        ("query", "entities", "Person", *spark, *at),
        ("compact", *spark, "--apply", *at),
        ("export", *spark, "--output", f"{folder}/new", *at),
        ("ingest", str(rows), "--into", "Person", *spark, *at, *of),
        ("pipeline", "run", str(pipeline), *spark, *at, *of),
        ("import", "--input", exported, *spark, "--apply", *at, *of),
        ("import", "--input", exported, *spark, "--apply", "--db", f"{folder}/new", *of),
        ("copy", bucket, new, "--with-history", *spark),
        ("apiary", "sql", "SELECT * FROM h.b.f", *spark, "--storage", frames),
    ]
    return {f"onto {' '.join(command)}": said_by_console(*command) for command in commands}


def main(folder: Path) -> None:
    sys.meta_path[:] = [WithoutExtras if finder is PathFinder else finder for finder in sys.meta_path]
    new, graph, bucket, frames = (f"file://{folder / name}" for name in ("new", "graph", "bucket", "frames"))
    (folder / "graph" / "__manifest").mkdir(parents=True)
    (folder / "graph" / "__manifest" / "data").touch()
    initialize_storage(storage_uri=bucket)
    said = doors_of_graphs(new, graph) | doors_of_queries(bucket) | doors_of_frames(frames) | doors_of_spark()
    said |= doors_of_the_console(folder, new, graph, bucket, frames)
    print(json.dumps({"said": said, "wrote_something_new": (folder / "new").exists()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
