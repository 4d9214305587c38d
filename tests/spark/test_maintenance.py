"""Compaction and migration on executors leave the store as the embedded path would."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ontologia import Entity, Field, MigrationError, MigrationTokenError, Ontology, ValidationError
from ontologia.engines import shares
from ontologia.engines.parquet.care import snapshots
from ontologia.engines.parquet.care.snapshots import SnapshotTask
from ontologia.files import writing
from ontologia.objects import Location, open_objects
from ontologia.spark import compact, migrate, read
from ontologia.spark.care import compaction
from ontologia.testing.conformance.renames import New, Old
from support.spark_shop import Buys, Customer, commit, customers, head, new_store, session


class Renamed(Entity, name="Customer"):
    """The next version of Customer: one more field, and the name in parts."""

    id: Field[str] = Field(primary_key=True)
    names: Field[list[str]]
    age: Field[int]
    level: Field[str] = "basic"


def in_parts(row):
    return {"id": row["id"], "names": row["name"].split(), "age": row["age"]}


def without_bob(row):
    if row["id"] == "c2":
        raise ValueError("Bob has no parts")
    return in_parts(row)


STEPS = {("Customer", 1): in_parts}


def filled(uri):
    """Three commits: rows that stay, rows that are superseded once and twice, and a relation."""
    commit(uri, *(Customer(id=f"c{number}", name=f"Ann {number}", age=number) for number in range(40)))
    commit(uri, *(Customer(id=f"c{number}", name="Bob B", age=number) for number in range(20)))
    commit(
        uri,
        *(Customer(id=f"c{number}", name="Cy C", age=number + 1) for number in range(10)),
        Buys(left_key="c1", right_key="c2", at="mon", amount=2.5),
    )
    return uri


def everything(uri):
    """Every answer that could differ: each state of the past, and all versions."""
    with session(uri) as opened:
        asked = opened.query().entities(Customer).order_by(Customer.id)
        states = [asked.as_of(number).to_arrow().to_pylist() for number in range(head(uri) + 1)]
        versions = [(one.meta().commit_id, one) for one in asked.with_history().collect()]
        bought = opened.query().relations(Buys).to_arrow().to_pylist()
        return states, sorted(versions, key=lambda pair: (pair[0], pair[1].id)), bought


def copied(uri, place):
    shutil.copytree(Path(uri.removeprefix("file://")), place)
    return place.as_uri()


def snapshot_rows(spark, uri):
    """The content of snapshots, which has for every row the commit that superseded it."""
    root = Path(uri.removeprefix("file://"))
    parts = sorted({str(path) for path in root.glob("snapshots/entities/Customer/**/*.parquet") if path.is_file()})
    rows = spark.read.parquet(*parts).select("entity_key", "commit_id", "superseded_by").collect()
    return sorted(map(tuple, rows), key=lambda row: row[:2])


@pytest.fixture(params=["by range", "by shuffle"])
def strategy(request, monkeypatch):
    """Both ways to bring the rows of a range together, and several ranges, though the data is small."""
    monkeypatch.setattr(shares, "ROWS_PER_SHARE", 10)
    monkeypatch.setattr(compaction, "ROWS_SORTED", 10)
    monkeypatch.setattr(snapshots, "MOST_ROWS_AGAIN", 10**9 if request.param == "by range" else 0)
    return request.param


def test_a_compaction_on_spark_is_the_compaction_of_the_embedded_path(spark, folder, tmp_path, strategy):
    filled(folder)
    twin = copied(folder, tmp_path / "twin")
    before = everything(folder)
    with session(folder) as one, session(twin) as other:
        report = compact(spark, one, apply=True)
        assert report.applied
        expected = other.repository.compact(apply=True)
    assert [(item.ref, item.rows, item.files) for item in report.types] == [
        (item.ref, item.rows, item.files) for item in expected.types
    ]
    assert everything(folder) == before
    assert snapshot_rows(spark, folder) == snapshot_rows(spark, twin)
    with session(folder) as opened:
        (snapshot,) = opened.engine.log.index(Customer.__declaration__.ref).index.entries
    assert len(snapshot.parts) > 1
    assert {row.age for row in read(spark, folder, Customer).where("id = 'c3'").collect()} == {4}


def test_a_compaction_on_spark_can_follow_another_and_new_commits(spark, folder):
    filled(folder)
    with session(folder) as opened:
        compact(spark, opened, apply=True)
    commit(folder, Customer(id="c3", name="Di D", age=99), Customer(id="new", name="Eve E", age=1))
    before = everything(folder)
    with session(folder) as opened:
        assert [item.ref.name for item in compact(spark, opened).types] == ["Customer"]  # a preview
        compact(spark, opened, apply=True)
    assert everything(folder) == before
    assert customers(folder)["c3"] == ("Di D", 99)


@pytest.mark.s3
@pytest.mark.slow_on("by shuffle")
def test_maintenance_on_spark_works_in_a_bucket(spark, bucket, strategy):
    filled(bucket)
    before = everything(bucket)
    with session(bucket) as opened:
        compact(spark, opened, apply=True)
    assert everything(bucket) == before
    with Ontology(storage_uri=bucket, entity_types=[Renamed]) as onto:
        assert migrate(spark, onto, dry_run=False, force=True, upgraders=STEPS).rows_migrated == 40
        assert onto.query().entities(Renamed).count() == 40


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.slow_on("v1")
def test_a_migration_on_spark_leaves_the_rows_that_the_embedded_one_leaves(spark, tmp_path, version):
    uri = filled(new_store((tmp_path / "store").as_uri(), version))
    twin = copied(uri, tmp_path / "twin")
    found = []
    for place, on_spark in ((uri, True), (twin, False)):
        with Ontology(storage_uri=place, entity_types=[Renamed]) as onto:
            token = onto.migrate(upgraders=STEPS).token
            if on_spark:
                done = migrate(spark, onto, dry_run=False, token=token, upgraders=STEPS, meta={"why": "names"})
            else:
                done = onto.migrate(dry_run=False, token=token, upgraders=STEPS, meta={"why": "names"})
            rows = onto.query().entities(Renamed).order_by(Renamed.id).to_arrow().to_pylist()
            found.append((done.rows_migrated, done.new_schema_versions, onto.list_commits(1)[0]["metadata"], rows))
    assert found[0] == found[1]
    assert found[0][0] == 40
    with Ontology(storage_uri=uri, entity_types=[Renamed]) as onto:
        assert onto.query().entities(Renamed).where(Renamed.id == "c39").first().names == ["Ann", "39"]


def test_names_that_change_are_carried_over_by_executors_too(spark, folder):
    old = Ontology(storage_uri=folder, entity_types=[Old.Carrier], relation_types=[Old.Feeds])
    with old, old.session() as opened:
        opened.ensure([Old.Carrier(code="LH", tzone="Berlin"), Old.Carrier(code="SK", tzone="Oslo")])
        opened.ensure(Old.Feeds(left_key="SK", right_key="LH", hub="FRA", share=40))
    with Ontology(storage_uri=folder, entity_types=[New.Airline], relation_types=[New.Feeds]) as onto:
        migrate(spark, onto, dry_run=False, force=True)
        found = [(item.iata, item.timezone) for item in onto.query().entities(New.Airline).collect()]
        (feeds,) = onto.query().relations(New.Feeds).collect()
    assert found == [("LH", "Berlin"), ("SK", "Oslo")]
    assert (feeds.left.timezone, feeds.airport, feeds.percent) == ("Oslo", "FRA", 40)


def test_an_upgrader_that_fails_names_the_row_and_changes_nothing(spark, folder):
    filled(folder)
    before = everything(folder)
    with Ontology(storage_uri=folder, entity_types=[Renamed]) as onto:
        with pytest.raises(MigrationError, match=r"Customer.*'c2'.*Bob has no parts") as caught:
            migrate(spark, onto, dry_run=False, force=True, upgraders={("Customer", 1): without_bob})
        assert "Cy C" in str(caught.value)  # the row as it was
        with pytest.raises(MigrationError, match=r"Customer.*names"):
            migrate(spark, onto, dry_run=False, force=True, upgraders={("Customer", 1): lambda row: {"id": row["id"]}})
        with pytest.raises(MigrationTokenError):
            migrate(spark, onto, dry_run=False, token="of another plan", upgraders=STEPS)
    assert (head(folder), everything(folder)) == (3, before)


def test_an_embedded_file_is_kept_by_the_embedded_path(spark, tmp_path):
    uri = filled(str(tmp_path / "onto.db"))
    with session(uri) as opened, pytest.raises(ValidationError, match="sqlite needs no such care"):
        compact(spark, opened, apply=True)
    with Ontology(uri, entity_types=[Renamed]) as onto, pytest.raises(ValidationError, match="is for object storage"):
        migrate(spark, onto, dry_run=False, force=True, upgraders=STEPS)
    assert head(uri) == 3


def versions(*rows):
    """Stored customers, each as a key and a commit."""
    keys, commits = zip(*rows, strict=True)
    columns = {"entity_key": keys, "id": keys, "commit_id": commits, "schema_version_id": [1] * len(rows)}
    columns |= {"name": ["n"] * len(rows), "age": [1] * len(rows), "tags": ["[]"] * len(rows)}
    return pa.table(columns).append_column("note", pa.nulls(len(rows), pa.string()))


def test_a_row_knows_its_successor_also_across_batches_and_parts_are_cut_by_size(folder, monkeypatch):
    monkeypatch.setattr(snapshots, "PART_BYTES", 1)
    monkeypatch.setattr(writing, "ROW_GROUP_ROWS", 1)
    task = SnapshotTask(Location(folder), "snapshot", Customer.__declaration__.schema, document=False, files=())
    tables = [versions(("a", 1), ("a", 2)), versions(("a", 3), ("b", 1)), versions(("c", 1))]
    done = task._write_parts(tables)
    names = ["entity_key", "commit_id", "superseded_by"]
    found = [pq.read_table(open_objects(folder).local_path(part.path), columns=names) for part in done]
    assert [part.row_count for part in done] == [1, 2, 1, 1]
    rows = sorted(tuple(row.values()) for table in found for row in table.to_pylist())
    assert rows == [("a", 1, 2), ("a", 2, 3), ("a", 3, None), ("b", 1, None), ("c", 1, None)]


def test_superseded_rows_of_a_part_come_after_the_current_ones(folder):
    task = SnapshotTask(Location(folder), "snapshot", Customer.__declaration__.schema, document=False, files=())
    rows = versions(("a", 1), ("a", 2), ("b", 1), ("b", 4), ("c", 1))
    (part,) = task.write_batches(rows.to_batches())
    found = pq.read_table(open_objects(folder).local_path(part.path))
    assert found.column("superseded_by").to_pylist() == [None, None, None, 2, 4]
    assert found.column("entity_key").to_pylist() == ["a", "b", "c", "a", "b"]


def test_a_class_that_executors_cannot_import_is_named(spark, folder):
    class Local(Entity, name="Customer"):
        id: Field[str] = Field(primary_key=True)
        names: Field[list[str]]
        age: Field[int]

    commit(folder, Customer(id="c1", name="Ann", age=1))
    with (
        Ontology(storage_uri=folder, entity_types=[Local], relation_types=[]) as onto,
        pytest.raises(ValidationError, match=r"cannot import .*Local from .*: put the class into a module of its own"),
    ):
        migrate(spark, onto, dry_run=False, force=True, upgraders=STEPS)
    assert head(folder) == 1
