"""A store copied with its history: from every engine to every other, in place, and cut off at every step."""

import itertools
import os
import shutil
from pathlib import Path

import pytest

from ontologia import (
    CopyMismatchError,
    Entity,
    Field,
    LockContentionError,
    OntologiaConfig,
    Ontology,
    RemovalsUnsupportedError,
    Session,
    UnfinishedCopyError,
    UninitializedStorageError,
    ValidationError,
    copy_history,
    initialize_storage,
    open_repository,
)
from ontologia.engines.copies import open_copy
from ontologia.engines.damage import recover_head
from ontologia.engines.history import CopyNote
from ontologia.engines.targets import StorageTarget
from ontologia.objects import Request
from ontologia.runtime.transfer import copying
from support.copied_shop import CASES, Product, everything, place, shop
from support.cut_off import Fault, faults_at, is_killed


@pytest.mark.parametrize(
    "source", [name if name in ("sqlite/v1", "s3/v2") else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
@pytest.mark.thorough
def test_a_copy_is_the_same_on_every_engine(source, tmp_path):
    origin = shop(source, tmp_path / "source")
    wanted = everything(origin)
    assert len(wanted["commits"]) == 9
    for name in CASES:
        folder = tmp_path / name.replace("/", "-")
        folder.mkdir()
        report = copy_history(origin, place(name, folder), engine_version=name[-2:])
        assert (report.head, report.applied, f"{report.engine}/{report.engine_version}") == (9, True, name)
        assert everything(report.target) == wanted
        with Session(report.target, entity_types=[Product]) as session:  # and it goes on as any store
            session.ensure(Product(sku=4, price=4.0))
            assert session.commit() == 10
            if name.startswith("s3"):
                assert session.repository.index_verify().healthy
    assert everything(origin) == wanted


@pytest.mark.parametrize("source", ["sqlite/v1", "s3/v1"])
def test_a_store_becomes_v2_in_place(source, tmp_path):
    origin = shop(source, tmp_path / "source")
    wanted = everything(origin)
    with Ontology(origin, entity_types=[Product]) as reader:
        report = copy_history(origin, in_place=True)
        assert (report.head, report.engine_version, report.in_place) == (9, "v2", True)
        if source.startswith("s3"):
            assert reader.query().entities(Product).count() == 4
    assert everything(origin) == wanted
    with Session(origin, entity_types=[Product]) as session:
        assert session.storage_info()["engine_version"] == "v2"
        session.ensure(Product(sku=4, price=4.0))
        assert session.commit() == 10
        if source.startswith("s3"):
            session.repository.vacuum(older_than_s=0, apply=True)
    assert everything(origin)["commits"][:9] == wanted["commits"]
    if source.startswith("sqlite"):
        assert b"fields_json" not in Path(origin).read_bytes()
    else:
        assert not list(Path(origin.removeprefix("file://")).glob("**/Customer.parquet"))
    with pytest.raises(ValidationError, match="in place a v1 store becomes a v2 store"):
        copy_history(origin, in_place=True)


@pytest.mark.parametrize("source", ["sqlite/v2", "s3/v2"])
def test_removals_are_copied_and_v1_refuses_them_before_anything_is_written(source, tmp_path):
    origin = shop(source, tmp_path / "source", removals=True)
    wanted = everything(origin)
    assert [[item["operation"] for item in changes] for changes in wanted["changes"][-2:]] == [
        ["remove", "insert", "remove"],
        ["remove", "insert"],
    ]
    for name in ("sqlite/v2", "s3/v2"):
        folder = tmp_path / name.replace("/", "-")
        folder.mkdir()
        report = copy_history(origin, place(name, folder))
        assert everything(report.target) == wanted
        with Ontology(report.target, entity_types=[Product]) as onto:
            assert sorted(found.sku for found in onto.query().entities(Product).collect()) == [1, 2, 3]
            assert onto.storage_info()["features"] == ["removals"]
    with pytest.raises(RemovalsUnsupportedError, match="copy it to v2"):
        copy_history(origin, tmp_path / "v1.db", engine_version="v1")
    assert not (tmp_path / "v1.db").exists()


@pytest.mark.s3
def test_a_store_is_copied_into_a_bucket_and_back(s3_prefix, tmp_path):
    origin = shop("sqlite/v2", tmp_path / "source")
    copy_history(origin, f"{s3_prefix}/v1", engine_version="v1")
    copy_history(f"{s3_prefix}/v1", f"{s3_prefix}/v2")
    copy_history(f"{s3_prefix}/v2", tmp_path / "back.db")
    assert everything(str(tmp_path / "back.db")) == everything(origin)


# --- what a copy refuses ---


@pytest.fixture
def small(tmp_path):
    """Three commits of one type, in SQLite v1."""
    return filled(tmp_path / "small.db", "v1")


class Account(Entity):
    id: Field[str] = Field(primary_key=True)
    value: Field[int]


def filled(target, version: str) -> str:
    where = os.fspath(target)
    if "://" in where:
        initialize_storage(where, engine_version=version)
    else:
        open_repository(where, engine_version=version).close()
    for number in range(1, 4):
        with Session(where, entity_types=[Account]) as session:
            session.ensure(Account(id=key, value=number) for key in "ab"[: number + 1])
    return where


def test_a_target_that_holds_anything_is_refused_and_stays_as_it_is(small, tmp_path):
    other = filled(tmp_path / "other.db", "v2")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    for target in (other, folder.as_uri(), small):
        with pytest.raises(ValidationError, match=r"already|not empty|the source itself"):
            copy_history(small, target)
    assert everything(other)["changes"] == everything(small)["changes"]
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_a_source_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(UninitializedStorageError, match="no ontology here to copy"):
        copy_history(tmp_path / "nothing.db", tmp_path / "copy.db")
    assert not list(tmp_path.iterdir())


def test_a_graph_is_refused_as_a_source_and_as_a_target(small, tmp_path):
    graph = (tmp_path / "graph").as_uri()
    initialize_storage(storage_uri=graph, engine="omnigraph")
    with pytest.raises(ValidationError, match="numbers its commits by itself"):
        copy_history(graph, tmp_path / "copy.db")
    with pytest.raises(ValidationError, match="holds a graph"):
        copy_history(small, graph)


def test_a_preview_says_what_would_be_copied_and_writes_nothing(small, tmp_path):
    report = copy_history(small, tmp_path / "copy.db", dry_run=True)
    assert (report.head, report.applied) == (3, False)
    assert not (tmp_path / "copy.db").exists()


def test_commits_made_meanwhile_stay_behind(small, tmp_path):
    def commit_more(what: str, done: int, total: int) -> None:
        if what == "copying":
            with Session(small, entity_types=[Account]) as session:
                session.ensure(Account(id="late", value=1))

    report = copy_history(small, tmp_path / "copy.db", progress=commit_more)
    assert (report.head, everything(small)["commits"][:3]) == (3, everything(report.target)["commits"])


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_copy_that_is_not_what_its_source_is_does_not_become_a_store(small, tmp_path, kind, monkeypatch):
    target = str(tmp_path / "copy.db") if kind == "file" else (tmp_path / "copy").as_uri()
    passing = copying._Job._passing

    def lossy(self, past):
        return ((version, rows.slice(0, 1)) for version, rows in passing(self, past))

    monkeypatch.setattr(copying._Job, "_passing", lossy)
    with pytest.raises(CopyMismatchError, match="commit 1: entity Account, version 1, has 1 rows and should have 2"):
        copy_history(small, target)
    with pytest.raises(UnfinishedCopyError, match="not complete, and no store yet"):
        open_repository(target)


def test_the_lease_on_a_target_is_kept_for_as_long_as_the_copy_takes(tmp_path):
    with open_copy((tmp_path / "copy").as_uri(), None, CopyNote("a.db", 0, "v2"), begun=None) as copy:
        assert copy.engine.lease.held
        assert copy.engine.turn.is_wanted()  # else the lease would not be renewed


# --- cut off ---


@pytest.fixture
def step_by_step(monkeypatch, tmp_path):
    """Every commit is a step of its own, and the cache is too."""
    monkeypatch.setattr(copying, "BATCH_COMMITS", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def half_done(source: str, target: str) -> None:
    """Cut a copy off after its second commit."""

    def stop(what: str, done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_history(source, target, progress=stop)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_half_done_copy_is_known_for_one_and_gone_on_with(small, tmp_path, kind, step_by_step):
    target = str(tmp_path / "copy.db") if kind == "file" else (tmp_path / "copy").as_uri()
    half_done(small, target)
    with pytest.raises(UnfinishedCopyError):
        open_repository(target)
    with pytest.raises((UnfinishedCopyError, ValidationError)):
        initialize_storage(target)
    if kind == "folder":
        with pytest.raises(UnfinishedCopyError):
            recover_head(StorageTarget("s3", target))
    with pytest.raises(ValidationError, match="not complete, and this would be another one"):
        copy_history(filled(tmp_path / "other.db", "v1"), target)
    with pytest.raises(ValidationError, match="not complete, and this would be another one"):
        copy_history(small, target, engine_version="v1")
    report = copy_history(small, target)
    assert (report.resumed_after, report.rows) == (2, 2)
    assert everything(target) == everything(small)


def survivors(target: str) -> str | None:
    """The engine version of what can be opened, None for what is not a store."""
    try:
        with open_repository(target, make_file=False) as repository:
            return repository.storage_info()["engine_version"] if repository.get_head_commit_id() else None
    except (UnfinishedCopyError, UninitializedStorageError):
        return None


@pytest.mark.thorough
def test_a_fault_at_any_request_leaves_a_copy_that_can_be_finished(small, step_by_step):
    wanted = everything(small)
    names = itertools.count()

    def attempt(fault: Fault) -> list[Request]:
        target = f"memory://copies-{os.getpid()}-{next(names)}/store"
        fault.during(lambda: copy_history(small, target), at=target)
        if survivors(target) is None:
            copy_history(small, target)
        assert everything(target) == wanted, fault
        return fault.seen

    for fault in faults_at(attempt(Fault()), kinds=2):
        attempt(fault)


@pytest.mark.thorough
def test_a_fault_at_any_request_in_place_leaves_the_old_store_or_the_new_one(step_by_step, tmp_path):
    original = filled((tmp_path / "original").as_uri(), "v1")
    wanted = everything(original)
    names = itertools.count()

    def attempt(fault: Fault) -> list[Request]:
        folder = tmp_path / f"copy-{next(names)}"
        shutil.copytree(tmp_path / "original", folder)
        fault.during(lambda: copy_history(folder.as_uri(), in_place=True), at=folder.as_uri())
        found = survivors(folder.as_uri())
        if found is not None:
            assert everything(folder.as_uri()) == wanted, fault
        if found != "v2":
            copy_history(folder.as_uri(), in_place=True)
        assert survivors(folder.as_uri()) == "v2"
        assert everything(folder.as_uri()) == wanted, fault
        shutil.rmtree(folder)
        return fault.seen

    for fault in faults_at(attempt(Fault())):
        attempt(fault)


# --- killed ---


@pytest.mark.thorough
def test_a_copy_killed_at_any_statement_goes_on(tmp_path, step_by_step):
    small = filled(tmp_path / "small.db", "v2")
    wanted = everything(small)
    for statement in itertools.count(1):
        target = str(tmp_path / f"{statement}.db")
        was_killed = is_killed(statement, lambda: copy_history(small, target))  # noqa: B023 — called at once
        if survivors(target) is None:
            copy_history(small, target)
        assert everything(target) == wanted, statement
        if not was_killed:
            break
    assert statement > 40


@pytest.mark.thorough
def test_a_file_whose_way_to_v2_was_killed_at_any_statement_is_the_old_one_or_the_new(tmp_path, step_by_step):
    original = filled(tmp_path / "original.db", "v1")
    wanted = everything(original)
    for statement in itertools.count(1):
        target = str(tmp_path / f"{statement}.db")
        shutil.copy(original, target)
        was_killed = is_killed(statement, lambda: copy_history(target, in_place=True))  # noqa: B023 — called at once
        assert everything(target) == wanted, statement
        if survivors(target) == "v1":
            copy_history(target, in_place=True)  # the lock of the dead process is not a hindrance
        assert survivors(target) == "v2"
        assert everything(target) == wanted, statement
        if not was_killed:
            break
    assert statement > 40


def test_who_holds_the_write_lock_and_until_when_is_said_to_a_copy_in_place_and_to_writers(tmp_path):
    path = filled(tmp_path / "one.db", "v1")
    quick = OntologiaConfig(lock_timeout_ms=50)
    with open_repository(path, config=quick) as other, Ontology(path, quick, entity_types=[Product]) as onto:
        other.acquire_lock("somebody", 60_000)
        told = r"one\.db: somebody holds the write lock until 20\d\d-.*if it is dead the lock ends then: try again"
        with pytest.raises(LockContentionError, match=told):
            copy_history(path, in_place=True, config=quick)
        session = onto.session()
        session.ensure(Product(sku=4, price=4.0))
        with pytest.raises(LockContentionError, match=told):
            session.commit()


def test_a_link_to_the_source_is_the_source_itself(tmp_path):
    origin = shop("s3/v2", tmp_path / "source")
    folder = Path(origin.removeprefix("file://"))
    (tmp_path / "link").symlink_to(folder)
    for again in ((tmp_path / "link").as_uri(), f"{origin}/"):
        with pytest.raises(ValidationError, match="is the source itself"):
            copy_history(origin, again)


def test_a_copy_into_a_place_that_holds_a_store_is_not_told_to_empty_it(tmp_path):
    source, taken = filled(tmp_path / "one.db", "v2"), (tmp_path / "taken").as_uri()
    initialize_storage(storage_uri=taken)
    with pytest.raises(ValidationError, match=r"taken holds an ontology already; a copy .* in an empty place$"):
        copy_history(source, taken)
