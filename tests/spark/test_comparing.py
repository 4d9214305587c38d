"""`df.write`: tasks compare, and the driver takes what they found, unless somebody else was there in the meantime."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import _parse_datatype_string

from ontologia import HistoryForgottenError, ValidationError
from ontologia.engines.base import Engine
from ontologia.spark.writing.landing import land
from ontologia.spark.writing.plan import plan_write
from ontologia.spark.writing.shares import stage_share
from support.spark_shop import Customer, commit, commits, customers, head, session

COLUMNS = "id string, name string, age int, tags array<string>"

pytestmark = pytest.mark.usefixtures("spark")  # to read the types of columns, Spark needs a session


def planned(uri, *, overwrite=False, columns=COLUMNS, **options):
    return plan_write(
        {"path": uri, "type": "Customer", **options}, _parse_datatype_string(columns), overwrite=overwrite
    )


def share(plan, *rows, **more):
    """What a task makes of rows of a key and an age."""
    table = pa.table({"id": [key for key, _ in rows], "name": [key.upper() for key, _ in rows]})
    table = table.append_column("age", pa.array([age for _, age in rows], pa.int32()))
    table = table.append_column("tags", pa.array([[]] * len(rows), pa.list_(pa.string())))
    for name, values in more.items():
        table = table.append_column(name, pa.array(values, pa.int32()))
    return stage_share(plan, iter(table.to_batches()))


def filled(uri, **ages):
    commit(uri, *(Customer(id=key, name=key.upper(), age=age) for key, age in ages.items()))
    return uri


def ages(uri):
    return {key: age for key, (_, age) in customers(uri).items()}


@pytest.mark.parametrize("uri", ["sqlite", "file"], indirect=True)
def test_tasks_compare_and_the_driver_reads_nothing_of_the_store(uri, monkeypatch):
    filled(uri, a=1, b=2)
    plan = planned(uri)
    shares = [share(plan, ("a", 1), ("c", 3)), share(plan, ("b", 20))]
    assert [(one.unchanged, len(one.parts), len(one.seen)) for one in shares] == [(1, 1, 1), (0, 1, 0)]

    def unexpected(*_, **__):
        raise AssertionError("the driver compares")

    with monkeypatch.context() as patched:
        patched.setattr(Engine, "rows_of", unexpected)
        assert land(plan, shares) == 2
    assert ages(uri) == {"a": 1, "b": 20, "c": 3}
    noted = commits(uri)[0]["metadata"]
    assert [noted[f"rows_{name}"] for name in ("read", "inserted", "updated")] == ["3", "1", "1"]


@pytest.mark.parametrize("uri", ["sqlite", "file"], indirect=True)
def test_what_others_commit_between_a_tasks_look_and_the_commit_is_overwritten_as_if_they_came_first(uri):
    filled(uri, a=1, b=2, c=3, d=4)
    plan = planned(uri)
    early = share(plan, ("a", 1), ("b", 20), ("c", 3))  # as stored, other, as stored
    filled(uri, a=100, b=20, e=5)
    with session(uri) as opened:
        opened.remove(Customer, "c")
        opened.commit()
    late = share(plan, ("d", 4), ("e", 5), ("f", 6))
    assert land(plan, [early, late]) == 4
    assert ages(uri) == {"a": 1, "b": 20, "c": 3, "d": 4, "e": 5, "f": 6}
    noted = commits(uri)[0]["metadata"]
    assert [noted[f"rows_{name}"] for name in ("inserted", "updated")] == ["2", "1"]
    assert land(plan, [share(plan, ("a", 1), ("b", 20))]) is None


def test_commits_to_other_types_make_nobody_compare_again(folder, monkeypatch):
    from support.spark_shop import Knows

    filled(folder, a=1)
    plan = planned(folder)
    found = share(plan, ("a", 1), ("b", 2))
    commit(folder, Knows(left_key="a", right_key="b", since=1))
    monkeypatch.setattr("ontologia.spark.writing.landing._compare_again", None)
    assert land(plan, [found]) == 3


def test_a_type_that_somebody_else_made_in_the_meantime_is_compared_with(folder):
    plan = planned(folder, models="support.spark_shop:Customer")
    found = share(plan, ("a", 1), ("b", 2))
    filled(folder, a=1, b=3)
    assert land(plan, [found]) == 2
    assert (ages(folder), commits(folder)[0]["metadata"]["rows_updated"]) == ({"a": 1, "b": 2}, "1")


def test_an_identity_in_two_tasks_is_an_error_also_where_both_are_as_stored(folder):
    filled(folder, a=1, b=2)
    plan = planned(folder)
    for one, two in (("a", 1), ("a", 1)), (("a", 1), ("a", 9)), (("a", 8), ("a", 9)):
        with pytest.raises(ValidationError, match="entity Customer 'a' occurs more than once in this load"):
            land(plan, [share(plan, one), share(plan, ("b", 2), two)])
    assert "'a' occurs more than once" in (share(plan, ("a", 1), ("b", 1), ("a", 1)).error or "")
    assert head(folder) == 1


def test_of_several_tasks_rows_the_last_counts_also_where_it_is_the_one_that_is_stored(folder):
    filled(folder, a=1, b=2)
    plan = planned(folder, orderBy="version", columns=f"{COLUMNS}, version int")
    rows = [
        share(plan, ("a", 1), ("b", 30), version=[2, 1]),
        share(plan, ("a", 9), ("b", 2), ("c", 5), version=[1, 2, 1]),
    ]
    assert land(plan, rows) == 2
    assert ages(folder) == {"a": 1, "b": 2, "c": 5}
    tied = [share(plan, ("a", 1), version=[3]), share(plan, ("a", 9), version=[3])]
    with pytest.raises(ValidationError, match="'a' has several rows that order_by takes for the last"):
        land(plan, tied)
    greatest = planned(folder, orderBy="version", onTie="greatest", columns=f"{COLUMNS}, version int")
    assert land(greatest, [share(greatest, ("a", 1), version=[3]), share(greatest, ("a", 9), version=[3])]) == 3
    assert ages(folder)["a"] == 9


def test_an_overwrite_keeps_what_tasks_found_as_it_is_and_removes_the_rest(folder):
    filled(folder, a=1, b=2, c=3)
    plan = planned(folder, overwrite=True)
    assert land(plan, [share(plan, ("a", 1)), share(plan, ("b", 9))]) == 2
    assert ages(folder) == {"a": 1, "b": 9}


def test_a_look_at_a_state_that_was_forgotten_since_is_said_and_nothing_is_written(tmp_path):
    uri = filled(str(tmp_path / "onto.db"), a=1, b=2)
    plan = planned(uri)
    found = share(plan, ("a", 1))
    filled(uri, a=2)
    filled(uri, b=3)
    with session(uri) as opened:
        opened.forget(3, dry_run=False, token=opened.forget(3).token)
    with pytest.raises(HistoryForgottenError, match="the state at commit 1 was given up"):
        land(plan, [found])
    assert ages(uri) == {"a": 2, "b": 3}
