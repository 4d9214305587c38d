"""Loads that make a type what its source is, in process: what the source no longer has goes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from ontologia import Entity, Field, Relation, RemovalLimitError, RemovalsUnsupportedError, Session, ValidationError
from ontologia.engines.dispatch import open_repository
from ontologia.engines.initializing import initialize_storage
from ontologia.runtime.intake.syncing import identities_to_remove
from ontologia.runtime.loading.local import LocalPipeline


class Stop(Entity):
    id: Field[int] = Field(primary_key=True)
    name: Field[str]


class Line(Relation[Stop, Stop]):
    number: Field[str] = Field(instance_key=True)


@pytest.fixture(params=["sqlite", "directory"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "onto.db")
    found = (tmp_path / "store").as_uri()
    initialize_storage(storage_uri=found)
    return found


def stops(**named: str) -> pa.Table:
    return pa.table({"id": pa.array([int(key[1:]) for key in named], pa.int64()), "name": list(named.values())})


def sync(uri: str, table: pa.Table, *, dry_run: bool = False, **how: object):
    pipeline = LocalPipeline(
        uri, on_invalid=how.pop("on_invalid", "abort"), on_conflict=how.pop("on_conflict", "upsert")
    )
    return pipeline.load(table, into=Stop, mode="sync", **how).commit(dry_run=dry_run)


def names(uri: str) -> dict[int, str]:
    with Session(uri, entity_types=[Stop], relation_types=[Line]) as session:
        return {stop.id: stop.name for stop in session.query().entities(Stop).collect()}


@pytest.fixture
def three(uri: str) -> str:
    assert sync(uri, stops(s1="Park", s2="Quay", s3="Mill")).commit_id == 1
    return uri


def test_the_type_becomes_what_the_source_is(three: str) -> None:
    preview = sync(three, stops(s2="Old Quay", s4="Dock"), dry_run=True)
    report = sync(three, stops(s2="Old Quay", s4="Dock"))
    for found in (preview, report):
        counts = found.types["Stop"]
        assert (counts.inserted, counts.updated, counts.removed) == (1, 1, 2)
    assert (preview.commit_id, report.commit_id, names(three)) == (None, 2, {2: "Old Quay", 4: "Dock"})
    with Session(three, entity_types=[Stop], relation_types=[Line]) as session:
        operations = {change["key"]: change["operation"] for change in session.list_commit_changes(2)}
        assert operations == {"1": "remove", "2": "update_version", "3": "remove", "4": "insert"}
        assert session.get_commit(2)["metadata"]["rows_removed"] == "2"  # type: ignore[index]
        assert session.query().entities(Stop).as_of(1).count() == 3
    assert sync(three, stops(s2="Old Quay", s4="Dock")).commit_id is None


def test_removals_alone_are_a_commit(three: str) -> None:
    assert (sync(three, stops(s1="Park")).commit_id, names(three)) == (2, {1: "Park"})


def test_more_removals_than_may_be_are_refused_and_nothing_is_written(three: str) -> None:
    for dry_run in (True, False):
        with pytest.raises(
            RemovalLimitError, match="entity Stop: the source lacks 2 of the rows that the store has, and 1 may"
        ):
            sync(three, stops(s1="New name"), max_removals=1, dry_run=dry_run)
    assert names(three) == {1: "Park", 2: "Quay", 3: "Mill"}
    assert sync(three, stops(s1="New name"), max_removals=2).types["Stop"].removed == 2


def test_a_source_without_rows_empties_nothing_unless_that_is_said(three: str) -> None:
    with pytest.raises(RemovalLimitError, match="the source has no rows, and the store 3: where they are all to go"):
        sync(three, stops())
    assert (sync(three, stops(), max_removals=3).types["Stop"].removed, names(three)) == (3, {})


def test_a_source_with_rows_that_do_not_fit_cannot_say_what_is_no_more(three: str) -> None:
    broken = pa.table({"id": ["1", "two"], "name": ["Park", "Quay"]})
    with pytest.raises(ValidationError, match="1 rows of the source do not fit, and so mode='sync' cannot tell"):
        sync(three, broken, on_invalid="quarantine")
    assert len(names(three)) == 3


def test_relations_are_synced_by_their_whole_identity(three: str) -> None:
    def load(*rows: tuple[int, int, str]) -> None:
        left, right, number = zip(*rows, strict=True)
        table = pa.table({"left_key": list(left), "right_key": list(right), "number": list(number)})
        LocalPipeline(three).load(table, into=Line, mode="sync").commit()

    load((1, 2, "a"), (1, 2, "b"), (2, 3, "a"))
    load((1, 2, "b"), (2, 1, "a"))
    with Session(three, entity_types=[Stop], relation_types=[Line]) as session:
        found = [(line.left_key, line.right_key, line.number) for line in session.query().relations(Line).collect()]
    assert found == [("1", "2", "b"), ("2", "1", "a")]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"mode": "mirror"}, "mode is one of upsert, sync, not 'mirror'"),
        ({"mode": "upsert", "max_removals": 3}, "max_removals is a number of rows from 0 on, for mode='sync'"),
        ({"mode": "sync", "max_removals": -1}, "max_removals is a number of rows"),
    ],
)
def test_what_makes_no_sense_is_said_before_the_source_is_read(uri: str, how: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        LocalPipeline(uri).load("nowhere.csv", into=Stop, **how)  # type: ignore[arg-type]


def test_a_load_that_keeps_what_is_there_cannot_sync(three: str) -> None:
    with pytest.raises(ValidationError, match="on_conflict is 'upsert'"):
        sync(three, stops(s1="x"), on_conflict="skip")


def test_an_engine_that_keeps_every_row_refuses(tmp_path: Path) -> None:
    open_repository(tmp_path / "v1.db", engine_version="v1").close()
    with pytest.raises(RemovalsUnsupportedError, match="entity Stop cannot be removed here"):
        sync(str(tmp_path / "v1.db"), stops(s1="Park"))


def test_the_rule_is_about_identities_alone() -> None:
    stored = pa.table({"left_key": ["a", "ab"], "right_key": ["bc", "c"], "instance_key": ["", ""]})
    source = pa.table({"left_key": ["ab"], "right_key": ["c"], "instance_key": [""], "amount": [1]})
    identity = ("left_key", "right_key", "instance_key")
    assert identities_to_remove(stored, source, identity).column("left_key").to_pylist() == ["a"]
