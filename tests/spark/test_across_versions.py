"""Reading across schema versions on Spark: executors carry rows over, past the upgraders where they need them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ontologia.errors import ValidationError
from ontologia.query.builder import QueryRoot
from ontologia.spark import read
from ontologia.spark.reading.queries import SparkSource
from ontologia.testing.conformance.across import STEPS, Airline, AirlinePartner, make_migrated, make_renamed
from ontologia.testing.conformance.answers import make_plain
from ontologia.testing.conformance.case import StoreUnderTest, sqlite
from support.engine_cases import directory

HERE = "ontologia.testing.conformance.across"


@pytest.fixture(scope="module", params=[pytest.param(sqlite("v2"), marks=pytest.mark.slow), directory("v2")], ids=str)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreUnderTest]:
    found = StoreUnderTest(request.param, request.param.create(tmp_path_factory.mktemp("store")))
    make_renamed(found)
    yield found
    found.close()


def rows_of(frame: Any) -> list[dict[str, Any]]:
    found = [row.asDict() for row in frame.collect()]
    return sorted(found, key=lambda row: (row.get("commit_id", 0), row["id"]))


def test_every_window_has_the_rows_that_the_engine_gives(spark, store):
    query = store.session(Airline, AirlinePartner).query().entities(Airline).across_versions(STEPS)
    windows = {
        "latest": (query, {}),
        "as_of": (query.as_of(2), {"as_of": 2}),
        "history": (query.with_history(), {"history": True}),
        "since": (query.history_since(2), {"since": 2}),
    }
    for name, (asked, options) in windows.items():
        expected = asked.to_arrow().to_pylist()
        assert rows_of(asked.to_spark(spark)) == expected, name
        found = read(spark, store.target, Airline, **options, across_versions=True, upgraders=STEPS)
        assert rows_of(found) == expected, name


def test_filters_ends_and_hops_see_the_fields_of_today(spark, store):
    session = store.session(Airline, AirlinePartner)
    found = read(
        spark, store.target, Airline, as_of=2, where=Airline.fleet == "3 planes", across_versions=True, upgraders=STEPS
    )
    assert [row.id for row in found.collect()] == ["a"]

    def ask(root: QueryRoot) -> Any:
        paths = root.entities(Airline).across_versions(STEPS).as_of(1).via(AirlinePartner).collect()
        ends = root.relations(AirlinePartner).across_versions(STEPS).with_history().collect()
        return make_plain(paths), make_plain(ends)

    assert ask(QueryRoot(SparkSource(spark, session.engine))) == ask(session.query())


def test_options_of_the_source_name_modules(spark, store):
    reader = spark.read.format("ontologia").options(type="Airline", asOf="2", acrossVersions="true")
    named = reader.options(models=f"{HERE}:Airline", upgraders=f'[["Carrier", 2, "{HERE}:count_planes"]]')
    assert sorted((row.id, row.fleet) for row in named.load(store.target).collect()) == [
        ("a", "3 planes"),
        ("b", "2 planes"),
    ]


def test_an_upgrader_that_executors_cannot_import_is_refused(spark, store):
    with pytest.raises(ValidationError, match=r"executors cannot import .*lambda"):
        read(spark, store.target, Airline, as_of=1, across_versions=True, upgraders={("Carrier", 2): lambda row: row})


def test_a_missing_upgrader_is_named_by_the_executors(spark, store):
    with pytest.raises(Exception, match=r'register @upgrader\("Carrier", from_version=2\)'):
        read(spark, store.target, Airline, as_of=1, across_versions=True, upgraders={}).collect()


def test_a_stream_goes_on_over_a_migration(spark, tmp_path):
    case = directory("v2")
    store = StoreUnderTest(case, case.create(tmp_path))
    make_migrated(store)
    seen: list[Any] = []
    stream = spark.readStream.format("ontologia").options(type="Carrier", changes="true", acrossVersions="true")
    query = (
        stream.load(store.target)
        .writeStream.foreachBatch(lambda frame, _: seen.extend(frame.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted((row.commit_id, row.operation, row.id, row.zone, row.tier) for row in seen) == [
        (1, "insert", "a", "utc", "basic"),
        (1, "insert", "b", "cet", "basic"),
        (2, "update_version", "a", "utc", "basic"),
        (3, "update_version", "a", "utc", "basic"),
        (3, "update_version", "b", "cet", "basic"),
        (4, "update_version", "b", "cet", "gold"),
    ]
    store.close()
