"""A program that uses a store on a cluster: load, write, read, stream, and losing an executor in the middle.

python -m support.spark_cluster <master> <folder> <store> [<store> …]
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from ontologia import OntologiaError
from ontologia.spark import Pipeline, read, read_stream, spark_session
from support.spark_shop import Customer, Knows, customers, head, new_store

COLUMNS = "id string, name string, age int, tags array<string>"


def kill_executor_once(marker: str, name: str) -> str:
    """In a task: kill the JVM that runs it, the first time."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return name
    daemon = os.getppid()
    fields = Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()
    os.kill(int(fields[1]), signal.SIGKILL)
    return name


def exercise(spark: Any, uri: str, folder: str) -> dict[str, Any]:
    from pyspark.sql import functions as sql

    frame = spark.createDataFrame([(f"c{n:02}", "N", n, []) for n in range(40)], COLUMNS).repartition(2)
    known = spark.createDataFrame([("c01", "c02", 1)], "left_key string, right_key string, since int")
    report = Pipeline(spark, uri).load(frame, into=Customer).load(known, into=Knows).commit()
    older = frame.where("age < 10").withColumn("age", sql.col("age") + 100)
    older.write.format("ontologia").option("type", "Customer").mode("append").save(uri)
    batches: list[int] = []
    stream = read_stream(spark, uri, Customer, max_commits_per_batch=1).writeStream
    place = f"{folder}/checkpoint-{abs(hash(uri))}"
    query = stream.foreachBatch(lambda rows, _: batches.append(rows.count())).option("checkpointLocation", place)
    query.trigger(availableNow=True).start().awaitTermination()
    arrow = spark.read.format("ontologia").option("type", "Customer").load(uri).where("age >= 100").count()
    marker = f"{folder}/killed-{abs(hash(uri))}"
    deadly = sql.udf(lambda name: kill_executor_once(marker, name), "string")
    after = Pipeline(spark, uri).load(frame.withColumn("name", deadly("name")), into=Customer).commit()
    return {
        "loaded": report.types["Customer"].inserted,
        "batches": batches,
        "native": read(spark, uri, Customer).where("age >= 100").count(),
        "arrow": arrow,
        "killed": os.path.exists(marker),
        "after_the_kill": [after.types["Customer"].read, after.types["Customer"].updated],
        "rows": len(customers(uri)),
        "head": head(uri),
    }


def file_refused(spark: Any, folder: str) -> str:
    frame = spark.createDataFrame([("c1", "N", 1, [])], COLUMNS)
    try:
        Pipeline(spark, f"{folder}/onto.db").load(frame, into=Customer).commit()
    except OntologiaError as problem:
        return str(problem)
    return "accepted"


def main(master: str, folder: str, *uris: str) -> None:
    config = {
        "spark.sql.shuffle.partitions": "2",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "1g",
    }
    spark = spark_session("cluster", master=master, config=config)
    results = {uri: exercise(spark, new_store(uri), folder) for uri in uris}
    print("RESULT" + json.dumps([results, file_refused(spark, folder)]), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
