"""A program that runs one job and dies by SIGKILL, JVM and all, right before or right after its commit.

    python -m support.spark_victim <pipeline|write|stream> <store> <folder> <before|after|never>

A data source commits in a Python process that Spark forks, so the blow is prepared in `sitecustomize` as well, which
every Python process reads when it starts.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

WHEN, GROUP = "VICTIM_DIES", "VICTIM_GROUP"
SITECUSTOMIZE = (
    "import os\nif os.environ.get('VICTIM_DIES'):\n    from support import spark_victim\n    spark_victim.prepare()\n"
)


def die() -> None:
    os.killpg(int(os.environ[GROUP]), signal.SIGKILL)  # the driver and its JVM
    os.killpg(0, signal.SIGKILL)  # the workers have a group of their own


def around(commit: Callable[..., Any]) -> Callable[..., Any]:
    def deadly(*arguments: Any, **options: Any) -> Any:
        if os.environ[WHEN] == "before":
            die()
        done = commit(*arguments, **options)
        if os.environ[WHEN] == "after" and done is not None:
            die()
        return done

    return deadly


def prepare() -> None:
    """Make every commit of this process deadly."""
    if os.environ[WHEN] == "never":
        return
    from ontologia.engines.parquet.write.commit import ParquetTransaction

    ParquetTransaction.publish = around(ParquetTransaction.publish)  # type: ignore[method-assign]


def main(job: str, uri: str, folder: str) -> None:
    from ontologia.spark import Pipeline, spark_session
    from support.spark_shop import Customer, Knows

    spark = spark_session("victim", master="local[2]", config={"spark.sql.shuffle.partitions": "2"})
    columns = "id string, name string, age int, tags array<string>"
    frame = spark.createDataFrame([("c1", "Ann", 1, []), ("c2", "Bob", 2, [])], columns)
    if job == "pipeline":
        known = spark.createDataFrame([("c1", "c2", 1)], "left_key string, right_key string, since int")
        Pipeline(spark, uri).load(frame, into=Customer).load(known, into=Knows).commit()
    elif job == "write":
        frame.write.format("ontologia").option("models", "support.spark_shop:Customer").mode("append").save(uri)
    else:
        source = spark.readStream.schema(columns).option("maxFilesPerTrigger", "1").json(f"{folder}/inbox")
        sink = source.writeStream.format("ontologia").option("models", "support.spark_shop:Customer")
        query = sink.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start(uri)
        query.awaitTermination()
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    os.environ[WHEN] = sys.argv[4]
    os.environ[GROUP] = str(os.getpgrp())
    prepare()
    main(*sys.argv[1:4])
