"""What the RFCs claim and a test can easily miss: each of these fails when the claim is made untrue."""

import json
import sqlite3
import threading
import time

import pytest

from ontologia import (
    Entity,
    Field,
    LeaseExpiredError,
    LockContentionError,
    OntologiaConfig,
    Ontology,
    Relation,
    initialize_storage,
    left,
    open_repository,
)
from ontologia.engines.parquet import paths
from ontologia.objects import open_objects
from ontologia.objects.lease_record import LeaseRecord


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    tier: Field[str] = Field(default="basic", index=True)


class CustomerWithEmail(Entity, name="Customer"):
    id: Field[str] = Field(primary_key=True)
    tier: Field[str] = Field(default="basic", index=True)
    email: Field[str] = "none"


class Shelf(Entity):
    """A type that never has rows."""

    id: Field[str] = Field(primary_key=True)


class ShelfWithRoom(Entity, name="Shelf"):
    id: Field[str] = Field(primary_key=True)
    room: Field[int] = 0


class Knows(Relation[Customer, Customer]):
    since: Field[int] = 0


class KnowsBetter(Relation[CustomerWithEmail, CustomerWithEmail], name="Knows"):
    since: Field[int] = 0
    note: Field[str] = ""


OLD, NEW = [Customer, Shelf, Knows], [CustomerWithEmail, ShelfWithRoom, KnowsBetter]
QUICKLY = OntologiaConfig(lock_timeout_ms=150, s3_lock_timeout_ms=150)


class Place:
    """A store of one engine, to be opened with these types or those."""

    def __init__(self, backend: str, version: str, folder) -> None:
        self.backend, self.version = backend, version
        self.file, self.folder = folder / "onto.db", folder / "store"
        where = {"db_path": str(self.file)} if backend == "sqlite" else {"storage_uri": self.folder.as_uri()}
        initialize_storage(**where, engine_version=version)
        self.where = where

    def open(self, types, config=None) -> Ontology:
        entities = [item for item in types if issubclass(item, Entity)]
        relations = [item for item in types if issubclass(item, Relation)]
        return Ontology(**self.where, entity_types=entities, relation_types=relations, config=config)


@pytest.fixture(params=["sqlite-v1", "sqlite-v2", "s3-v1", "s3-v2"])
def place(request, tmp_path):
    return Place(*request.param.split("-"), tmp_path)


@pytest.fixture
def filled(place):
    with place.open(OLD) as onto, onto.session() as session:
        session.ensure([Customer(id="a", tier="gold"), Customer(id="b"), Knows(left_key="a", right_key="b")])
    return place


def migrate(place):
    with place.open(NEW) as onto:
        onto.migrate(dry_run=False, force=True)


def answers(place):
    """What typed reads give in every window."""
    with place.open(NEW) as onto:
        found = []
        for query in (onto.query().entities(CustomerWithEmail), onto.query().relations(KnowsBetter)):
            for window in (query, query.with_history(), query.history_since(0), query.as_of(2)):
                found.append(window.to_arrow().to_pylist())
        return found


def test_rows_of_earlier_schema_versions_are_not_read(filled):
    """RFC 0009 §2: gone, they are not missed."""
    migrate(filled)
    before = answers(filled)
    assert before[0][0]["email"] == "none"
    if filled.backend == "s3":
        old = list(filled.folder.glob("commits/1-*/**/*.parquet"))
        assert old
        for file in old:
            file.unlink()
    else:
        with sqlite3.connect(filled.file) as connection:
            if filled.version == "v2":
                names = [
                    name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE name LIKE '%_v1'")
                ]
                old = [name for name in names if name.startswith(("entity_", "relation_"))]
                assert len(old) >= 2
                for name in old:
                    connection.execute(f'DROP TABLE "{name}"')
            else:
                for table in ("entity_history", "relation_history"):
                    deleted = connection.execute(f"DELETE FROM {table} WHERE schema_version_id = 1").rowcount
                    assert deleted > 0
    assert answers(filled) == before


def test_every_type_of_a_migration_is_activated_by_its_commit_also_one_without_rows(filled):
    """RFC 0009 §6.3."""
    with filled.open(OLD) as onto, onto.session() as session:
        session.ensure(Shelf(id="s"))
    migrate(filled)
    with open_repository(**filled.where) as repository:
        layouts = repository.engine.catalog().layouts
        found = {ref.name: (layout.schema_version_id, layout.activation_commit_id) for ref, layout in layouts.items()}
    assert found == {"Customer": (2, 3), "Shelf": (2, 3), "Knows": (2, 3)}


def test_a_migration_waits_for_a_held_lock_gives_up_and_changes_nothing(filled):
    with open_repository(**filled.where) as holder:
        holder.acquire_lock("somebody else", 60_000)
        with filled.open(NEW, QUICKLY) as onto, pytest.raises(LockContentionError, match="somebody else"):
            onto.migrate(dry_run=False, force=True)
        assert holder.get_head_commit_id() == 1
        assert holder.release_lock("somebody else")
    migrate(filled)
    assert answers(filled)[0]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_filter_on_an_endpoint_is_applied_where_its_file_is_read(tmp_path, version):
    """RFC 0004 §4.3: before the join, in the scan."""
    place = Place("s3", version, tmp_path)
    with place.open(OLD) as onto:
        with onto.session() as session:
            session.ensure([Customer(id=f"c{number}", tier=f"t{number % 7}") for number in range(100)])
            session.ensure([Knows(left_key=f"c{number}", right_key="c0") for number in range(100)])
        plan = onto.query().relations(Knows).where(left(Knows).tier == "t3").explain()
    assert "Filters: tier='t3'" in plan  # so a scan is labelled; a filter above it is a node of its own


def test_a_filter_on_an_endpoint_of_sqlite_narrows_the_endpoint_before_the_relation_is_looked_up(tmp_path):
    place = Place("sqlite", "v2", tmp_path)
    with place.open(OLD) as onto:
        with onto.session() as session:
            session.ensure([Customer(id=f"c{number}", tier=f"t{number % 7}") for number in range(100)])
            session.ensure([Knows(left_key=f"c{number}", right_key="c0") for number in range(100)])
        plan = onto.query().relations(Knows).where(left(Knows).tier == "t3").explain()
    assert "SEARCH t USING PRIMARY KEY (left_key=?)" in plan


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.thorough
def test_a_commit_that_takes_longer_than_its_lease_needs_the_keep_alive(tmp_path, version):
    """RFC 0004 §3.2: without it, such a commit is refused before the swap."""
    place = Place("s3", version, tmp_path)
    config = OntologiaConfig(s3_lease_ttl_ms=400)
    for keep_alive, head in ((False, 0), (True, 1)):
        with place.open(OLD, config) as onto:
            onto.engine.lease.keep_alive = keep_alive
            with onto.engine.locked() as lease:
                assert outlived(place, prolonged=keep_alive)
                if keep_alive:
                    lease.guard()
                else:
                    with pytest.raises(LeaseExpiredError):
                        lease.guard()
            assert commit_slowly(onto, place, keep_alive) is keep_alive
            assert onto.engine.catalog().head == head


def commit_slowly(onto, place, keep_alive) -> bool:
    """Commit, and take longer over it than the lease lasts; whether it was made."""
    session = onto.session()
    session.ensure(Customer(id="a"))
    put_all = onto.engine.put_all

    def slowly(writes):
        put_all(writes)
        assert outlived(place, prolonged=keep_alive)

    onto.engine.put_all = slowly
    try:
        session.commit()
    except LeaseExpiredError:
        return False
    return True


def outlived(place, *, prolonged: bool) -> bool:
    """Wait until the lease as it is now has run out, or was prolonged."""
    objects = open_objects(place.folder.as_uri())

    def ends() -> float:
        record = LeaseRecord.read(json.loads(objects.get(paths.lock()).data))
        assert record is not None
        return record.expires_at.timestamp()

    first, waiting = ends(), threading.Event()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if time.time() > first and (not prolonged or ends() > first):
            return True
        waiting.wait(0.02)
    return False
