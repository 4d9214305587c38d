"""Removals as Spark sees them: gone from a state, in histories and changes with the values that were there."""

from __future__ import annotations

import pytest

from ontologia import left
from ontologia.spark import compact, read
from support.spark_shop import Buys, Customer, session


@pytest.fixture(params=["as commits", "with a snapshot before", "in a snapshot"])
def removed(request: pytest.FixtureRequest, uri: str) -> str:
    """Ann comes, changes, goes and comes back; Ben goes, and what he bought dangles."""
    if request.param != "as commits" and "://" not in uri:
        pytest.skip("a file has no snapshots")
    with session(uri) as opened:
        for number, step in enumerate((_first, _change, _remove, _come_back)):
            step(opened)
            opened.commit()
            if number == 1 and request.param == "with a snapshot before":
                opened.repository.compact(apply=True)
        if request.param == "in a snapshot":
            opened.repository.compact(apply=True)
    return uri


def _first(opened):
    opened.ensure([Customer(id="ann", name="Ann", age=1), Customer(id="ben", name="Ben", age=1)])
    opened.ensure(Buys(left_key="ben", right_key="ann", at="shop", amount=1.0))


def _change(opened):
    opened.ensure(Customer(id="ann", name="Ann", age=2))


def _remove(opened):
    opened.remove(Customer, "ann", "ben")


def _come_back(opened):
    opened.ensure(Customer(id="ann", name="Ann", age=4))


HISTORY = [
    (1, "ann", 1, False),
    (1, "ben", 1, False),
    (2, "ann", 2, False),
    (3, "ann", 2, True),
    (3, "ben", 1, True),
    (4, "ann", 4, False),
]


def rows(frame, *names):
    return sorted(tuple(row[name] for name in names) for row in frame.collect())


@pytest.mark.slow_on("with a snapshot before")
def test_spark_reads_removals_as_the_engine_does(spark, removed):
    assert rows(read(spark, removed, Customer), "id", "age") == [("ann", 4)]
    assert rows(read(spark, removed, Customer, as_of=3), "id") == []
    assert rows(read(spark, removed, Customer, as_of=2), "id", "age") == [("ann", 2), ("ben", 1)]
    names = ("commit_id", "id", "age", "removed")
    assert rows(read(spark, removed, Customer, history=True), *names) == HISTORY
    assert rows(read(spark, removed, Customer, since=2), *names) == HISTORY[3:]
    assert rows(read(spark, removed, Customer, since=2, columns=["id", "removed"]), "id", "removed") == [
        ("ann", False),
        ("ann", True),
        ("ben", True),
    ]
    source = spark.read.format("ontologia").option("type", "Customer")
    assert rows(source.load(removed), "id", "age") == [("ann", 4)]
    assert rows(source.option("history", "true").load(removed), *names) == HISTORY


def test_changes_say_remove_and_then_insert(spark, removed):
    changes = spark.read.format("ontologia").option("type", "Customer").option("changes", "true").option("since", "1")
    assert rows(changes.load(removed), "commit_id", "id", "operation", "age") == [
        (2, "ann", "update_version", 2),
        (3, "ann", "remove", 2),
        (3, "ben", "remove", 1),
        (4, "ann", "insert", 4),
    ]


@pytest.mark.slow_on("as commits", "with a snapshot before")
def test_typed_queries_on_spark_leave_removals_out_of_states_and_ends(spark, removed):
    with session(removed) as opened:
        dangling = opened.query().relations(Buys).where(left(Buys).is_missing())
        assert rows(dangling.to_spark(spark), "left_key", "instance_key") == [("ben", "shop")]
        history = opened.query().entities(Customer).with_history()
        assert rows(history.to_spark(spark), "commit_id", "id", "age", "removed") == HISTORY
        reached = opened.query().entities(Customer).via(Buys).with_history().without_relations()
        assert rows(reached.to_spark(spark), "commit_id", "id") == [(1, "ann"), (2, "ann"), (4, "ann")]


def test_a_compaction_on_executors_keeps_removals(spark, folder):
    with session(folder) as opened:
        for step in (_first, _change, _remove, _come_back):
            step(opened)
            opened.commit()
        before = opened.query().entities(Customer).with_history().to_arrow().to_pylist()
        compact(spark, opened, apply=True)
    with session(folder) as opened:
        customers = opened.query().entities(Customer)
        assert customers.with_history().to_arrow().to_pylist() == before
        assert ([c.id for c in customers.collect()], customers.as_of(3).count()) == (["ann"], 0)
