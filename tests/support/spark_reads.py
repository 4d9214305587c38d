"""A store with a history, and the ways to read it that must agree."""

from __future__ import annotations

from support.spark_shop import Buys, Customer, commit, new_store, session

NAMES = ["id", "name", "age", "tags", "note"]
WINDOWS = [{}, {"as_of": 3}, {"as_of": 0}, {"history": True}, {"since": 3}]
OPTIONS = {"as_of": "asOf", "history": "history", "since": "since"}


def fill(uri: str) -> str:
    """Six commits, the first four compacted in stores that can."""
    new_store(uri)
    for number in range(1, 5):
        rows = [Customer(id=f"c{key}", name=f"n{number}", age=number) for key in range(number, number + 3)]
        commit(uri, *rows, Buys(left_key="c1", right_key="c2", at=f"t{number % 2}", amount=number / 2))
    if "://" in uri:
        with session(uri) as opened:
            opened.repository.compact(apply=True)
    commit(uri, Customer(id="c1", name="later", age=50, tags=["x"], note="n"))
    commit(uri, Customer(id="c9", name="last", age=60))
    return uri


def loaded(spark, uri, type_, **options):
    named = {OPTIONS.get(name, name): str(value).lower() for name, value in options.items()}
    return spark.read.format("ontologia").option("type", type_).options(**named).load(uri)


def embedded(uri, cls, as_of=None, history=False, since=None):
    with session(uri) as opened:
        query = opened.query()
        rows = query.entities(cls) if cls is Customer else query.relations(cls)
        if as_of is not None:
            rows = rows.as_of(as_of)
        elif history:
            rows = rows.with_history()
        elif since is not None:
            rows = rows.history_since(since)
        return rows.to_arrow().to_pylist()


def rows_of(frame):
    return sorted((row.asDict() for row in frame.collect()), key=repr)
