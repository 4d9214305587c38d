"""Erased identities are nowhere: not in rows, not in free pages, logs, snapshots, indices or caches."""

import itertools
import json
import shutil
import sqlite3
import zlib
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ontologia import (
    Entity,
    ErasureIncompleteError,
    ErasureRefusedError,
    Field,
    OntologiaConfig,
    Ontology,
    Relation,
    Session,
    ValidationError,
    copy_history,
    initialize_storage,
)
from ontologia.cli import main
from ontologia.engines.parquet.read.packed import PACKED_AFTER
from ontologia.engines.sqlite import erasure as sqlite_erasure
from ontologia.objects import Location, Request
from ontologia.runtime import erasure
from ontologia.runtime.loading.local import LocalPipeline
from support.cut_off import Fault, faults_at, is_killed

ENGINES = ["sqlite/v1", "sqlite/v2", "s3/v1", "s3/v2"]
ANN = "ann-7f3a9c51e2"
"""Who wants to be forgotten. Her values are as easy to find as she is."""
SECRETS = [ANN, "Ann-Secretson-one", "Ann-Secretson-two"]


class Person(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str] = Field(index=True)


class PersonWithMail(Entity, name="Person"):
    id: Field[str] = Field(primary_key=True)
    name: Field[str] = Field(index=True)
    mail: Field[str | None] = None


class Knows(Relation[Person, Person]):
    since: Field[int] = 0


class Visit(Entity):
    at: Field[datetime] = Field(primary_key=True)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """All files of a cache are read: it is this test's alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def target_of(name: str, folder: Path) -> str:
    where = str(folder / "onto.db") if name.startswith("sqlite") else (folder / "store").as_uri()
    initialize_storage(where, engine_version=name[-2:])
    return where


def filled(name: str, folder: Path, *, related: bool = False, config: OntologiaConfig | None = None) -> str:
    """Ann and others in several commits and two schema versions; in a bucket compacted halfway."""
    where = target_of(name, folder)
    settings = config or OntologiaConfig(auto_compact="never")
    with Session(where, entity_types=[Person], relation_types=[Knows], config=settings) as session:
        session.ensure([Person(id=ANN, name="Ann-Secretson-one"), Person(id="bob", name="Bob")])
        session.commit()
        session.ensure([Person(id="zoe", name="Zoe"), Person(id="bob", name="Bobby")])
        if related:
            session.ensure([Knows(left_key=ANN, right_key="bob"), Knows(left_key="bob", right_key=ANN)])
        session.ensure(Knows(left_key="bob", right_key="zoe", since=1))
        session.commit()
        if name.startswith("s3"):
            session.repository.compact(apply=True)
        session.ensure(Person(id=ANN, name="Ann-Secretson-two"))
        session.commit()
    with Ontology(where, entity_types=[PersonWithMail], config=settings) as onto:
        onto.migrate(dry_run=False, force=True)
    return where


def erase(where: str, *, cascade: bool = False, config: OntologiaConfig | None = None, key: str = ANN):
    with Ontology(where, config=config) as onto:
        plan = onto.erase("Person", key, reason="article 17", cascade=cascade)
        return onto.erase("Person", key, reason="article 17", cascade=cascade, dry_run=False, token=plan.token)


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file, as it lies there, and what its columns say where it is Parquet."""
    found = {}
    for path in (path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        if path.suffix == ".parquet":
            columns = pq.read_table(path).to_pydict().values()
            data += repr(list(columns)).encode() + str(pq.read_metadata(path).to_dict()).encode()
        found[str(path)] = data
    return found


def places_with(folder: Path, *texts: str) -> list[str]:
    return [place for place, data in bytes_of(folder).items() if any(text.encode() in data for text in texts)]


def others(where: str) -> list:
    """What every commit and every window says of everybody else."""
    with Ontology(where, entity_types=[PersonWithMail], relation_types=[Knows]) as onto:
        people = onto.query().entities(PersonWithMail)
        head = onto.repository.get_head_commit_id()
        windows = [people, people.with_history(), people.history_since(3), *(people.as_of(n) for n in range(1, 5))]
        rows = [[(p.meta().commit_id, p.id, p.name) for p in window.collect() if p.id != ANN] for window in windows]
        changes = [
            [item for item in onto.list_commit_changes(number) if ANN not in item.values()]
            for number in range(1, min(head, 4) + 1)
        ]
        table = onto.query().relations(Knows).with_history().to_arrow()
        ends = list(zip(table["left_key"].to_pylist(), table["right_key"].to_pylist(), strict=True))
        log = onto.list_commits(None)[-4:]
        return [rows, changes, [pair for pair in ends if ANN not in pair], log]


@pytest.mark.parametrize("name", ENGINES)
def test_an_erased_identity_is_nowhere_and_everybody_else_is_as_before(name, tmp_path):
    where = filled(name, tmp_path, related=True)
    before = others(where)
    assert places_with(tmp_path, *SECRETS)
    with Ontology(where) as onto, pytest.raises(ErasureRefusedError, match=r"relations end at .* \(2 of Knows\)"):
        onto.erase("Person", ANN, reason="article 17")
    report = erase(where, cascade=True)
    assert [(item.ref.name, item.identities, item.rows) for item in report.found] == [
        ("Person", 1, 3),
        ("Knows", 2, 2),
    ]
    assert report.mentions == []
    assert places_with(tmp_path, *SECRETS) == []
    assert others(where) == before
    with Ontology(where) as onto:
        commit = onto.get_commit(report.commit_id)
        assert report.commit_id == 5
        assert (commit["metadata"]["kind"], commit["metadata"]["reason"]) == ("erasure", "article 17")
        assert erasure.proves(
            report.receipt,
            erasure.preview(onto.engine, "Person", [ANN], reason="again", cascade=True).wanted,
            commit["metadata"],
        )
        assert onto.list_commit_changes(5) == []
        if name.startswith("s3"):
            assert onto.repository.index_verify().healthy
    with Session(where, entity_types=[PersonWithMail]) as session:
        session.ensure(PersonWithMail(id="new", name="New"))
        assert session.commit() == 6
    again = erase(where, cascade=True)
    assert (again.rows, again.commit_id, again.mentions) == (0, None, [])


@pytest.mark.s3
def test_copies_in_the_cache_of_this_machine_go_too(s3_prefix, tmp_path):
    config = OntologiaConfig(cache_directory=str(tmp_path / "cache"), auto_compact="never")
    initialize_storage(s3_prefix, config=config)
    with Session(s3_prefix, entity_types=[Person], config=config) as session:
        session.ensure([Person(id=ANN, name="Ann-Secretson-one"), Person(id="bob", name="Bob")])
        session.commit()
        assert len(session.query().entities(Person).collect()) == 2
    assert places_with(tmp_path / "cache", *SECRETS)
    erase(s3_prefix, config=config)
    assert places_with(tmp_path / "cache", *SECRETS) == []
    for info in Location.of(s3_prefix).open_objects().list():
        (tmp_path / "found").mkdir(exist_ok=True)
        name = f"{zlib.crc32(info.key.encode())}{Path(info.key).suffix}"
        (tmp_path / "found" / name).write_bytes(Location.of(s3_prefix).open_objects().get(info.key).data)
    assert places_with(tmp_path / "found", *SECRETS) == []


def test_rows_of_small_files_that_are_packed_in_the_cache_go_too(tmp_path):
    where, cache = (tmp_path / "store").as_uri(), tmp_path / "cache"
    config = OntologiaConfig(cache_directory=str(cache), auto_compact="never")
    initialize_storage(where, config=config)
    with Session(where, entity_types=[Person], config=config) as session:
        for number in range(PACKED_AFTER):
            session.ensure([Person(id=ANN, name=f"Ann-Secretson-{number}"), Person(id=f"p{number}", name="Other")])
            session.commit()
        assert session.query().entities(Person).where(Person.name == "Other").count() == PACKED_AFTER
    assert places_with(cache, *SECRETS)
    erase(where, config=config)
    assert places_with(cache, *SECRETS) == []


def test_notes_that_mention_the_key_are_told_and_stay(tmp_path):
    where = target_of("sqlite/v2", tmp_path)
    with Session(where, entity_types=[Person]) as session:
        session.ensure(Person(id=ANN, name="x"))
        session.commit(meta={"about": ANN})
    report = erase(where)
    assert {trace.place for trace in report.mentions} == {"table commits", where}


@pytest.mark.parametrize("name", ["sqlite/v2", "s3/v2"])
@pytest.mark.parametrize("key", ["a1", ANN])
def test_rows_set_aside_that_mention_a_key_are_told(tmp_path, name, key):
    where = target_of(name, tmp_path)
    with Session(where, entity_types=[Person]) as session:
        session.ensure(Person(id=key, name="x"))
        session.commit()
    wrong = pa.table({"id": [*(f"other{number}" for number in range(500)), key], "name": pa.nulls(501, pa.string())})
    LocalPipeline(where, on_invalid="quarantine").load(wrong, into=Person).commit()
    report = erase(where, key=key)
    assert [trace.place for trace in report.mentions if "quarantine" in trace.place]


def deleted_by_others(where: str) -> str:
    """Rows deleted by a tool that knows nothing of erasure."""
    connection = sqlite3.connect(where)
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("DELETE FROM entity_Person_v1 WHERE entity_key = ?", (ANN,))
    connection.commit()
    connection.close()
    return where


def test_bytes_of_rows_that_went_another_way_are_cleaned(tmp_path):
    where = deleted_by_others(small("sqlite/v2", tmp_path / "store"))
    assert places_with(tmp_path / "store", ANN) == [where]
    with Ontology(where) as onto:
        plan = onto.erase("Person", ANN, reason="article 17")
        assert (plan.rows, plan.pending) == (0, True)
        assert (applied(onto, plan.token).commit_id, places_with(tmp_path / "store", *SECRETS)) == (None, [])
        assert not onto.erase("Person", ANN, reason="article 17").pending


def test_bytes_that_are_still_there_after_cleaning_are_an_error(tmp_path, monkeypatch):
    where = deleted_by_others(small("sqlite/v2", tmp_path / "store"))
    monkeypatch.setattr(sqlite_erasure, "clean", lambda engine: None)
    with pytest.raises(ErasureIncompleteError, match=f"bytes of what was erased are still in {where}: end whoever"):
        erase(where)


@pytest.mark.parametrize("mentioned", [False, True])
def test_an_erasure_under_the_eyes_of_a_reader_fails_and_is_finished_later(tmp_path, mentioned, capsys):
    where = small("sqlite/v2", tmp_path / "store")
    if mentioned:
        with Session(where, entity_types=[Person]) as session:
            session.ensure(Person(id="bob", name=f"a friend of {ANN}"))
    (tmp_path / "onto.toml").write_text("lock_timeout_ms = 50\n")
    words = ["erase", "Person", ANN, "--reason", "article 17", "--db", where, "--config", str(tmp_path / "onto.toml")]
    with sqlite3.connect(where) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM commits").fetchall()
        code, _, told = erase_in_console(words, capsys)
        assert (code, "another process reads the file" in told, "Keep the receipt" in told) == (5, True, True)
        assert erase_in_console(words, capsys)[0] == 5  # and still
        reader.rollback()
    reader.close()
    code, said, _ = erase_in_console(words, capsys)
    assert (code, "mentioned in" in said) == (0, mentioned)
    assert places_with(tmp_path / "store", *(SECRETS[1:] if mentioned else SECRETS)) == []


def erase_in_console(words: list[str], capsys) -> tuple[int, str, str]:
    assert main([*words, "--json"]) == 0
    token = json.loads(capsys.readouterr().out)["token"]
    code = main([*words, "--apply", "--token", token])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_what_makes_no_sense_is_refused(tmp_path):
    where = filled("sqlite/v2", tmp_path)
    with Ontology(where) as onto:
        for arguments, message in (
            (("Person",), "at least one key"),
            (("Nobody", "x"), "is not in this store"),
            (("Knows", "x"), r"named by \(left_key, right_key\)"),
        ):
            with pytest.raises(ValidationError, match=message):
                onto.erase(*arguments, reason="because")
        with pytest.raises(ValidationError, match="needs a reason"):
            onto.erase("Person", "bob", reason=" ")
        plan = onto.erase("Person", "nobody", reason="because")
        assert plan.rows == 0
        with pytest.raises(ErasureRefusedError, match="token"):
            onto.erase("Person", ANN, reason="because", dry_run=False, token=plan.token)
    graph = (tmp_path / "graph").as_uri()
    initialize_storage(graph, engine="omnigraph")
    with Ontology(graph) as onto:
        assert not onto.engine.capabilities.erasure
        with pytest.raises(ValidationError, match="can erase"):
            onto.engine.eraser()


def test_a_single_relation_is_erased_by_its_ends(tmp_path):
    for name in ("sqlite/v2", "s3/v2"):
        folder = tmp_path / name.replace("/", "-")
        folder.mkdir()
        where = filled(name, folder, related=True)
        with Ontology(where, relation_types=[Knows]) as onto:
            plan = onto.erase("Knows", (ANN, "bob"), reason="because")
            assert plan.rows == 1
            onto.erase("Knows", (ANN, "bob"), reason="because", dry_run=False, token=plan.token)
            table = onto.query().relations(Knows).to_arrow()
            left = set(zip(table["left_key"].to_pylist(), table["right_key"].to_pylist(), strict=True))
        assert left == {("bob", ANN), ("bob", "zoe")}


def test_a_store_on_its_way_to_v2_is_refused_because_it_has_the_rows_twice(tmp_path):
    for name in ("sqlite/v1", "s3/v1"):
        where = small(name, tmp_path / name.replace("/", "-"))

        def stop(what: str, done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            copy_history(where, in_place=True, progress=stop)
        with pytest.raises(ValidationError, match="on its way to v2"):
            erase(where)
        copy_history(where, in_place=True)
        assert erase(where).rows == 2


# --- cut off ---


def small(name: str, folder: Path) -> str:
    """Two people in two commits."""
    folder.mkdir()
    where = target_of(name, folder)
    with Session(where, entity_types=[Person], config=OntologiaConfig(auto_compact="never")) as session:
        for step in ("one", "two"):
            session.ensure([Person(id=ANN, name=f"Ann-Secretson-{step}"), Person(id="bob", name=f"Bob {step}")])
            session.commit()
    return where


def bob(where: str) -> list:
    with Ontology(where, entity_types=[Person]) as onto:
        rows = onto.query().entities(Person).with_history().collect()
        return [[(row.meta().commit_id, row.name) for row in rows if row.id == "bob"], onto.list_commits(None)[-2:]]


def applied(onto: Ontology, token: str):
    return onto.erase("Person", ANN, reason="article 17", dry_run=False, token=token)


def applied_at(where: str, token: str) -> None:
    with Ontology(where) as onto:
        applied(onto, token)


@pytest.mark.thorough
def test_a_fault_at_any_request_leaves_everybody_else_and_the_erasure_can_be_finished(tmp_path):
    original = small("s3/v2", tmp_path / "original")
    wanted = bob(original)

    def attempt(fault: Fault) -> list[Request]:
        folder = tmp_path / "attempt"
        shutil.copytree(tmp_path / "original", folder)
        where = (folder / "store").as_uri()
        with Ontology(where) as onto:
            token = onto.erase("Person", ANN, reason="article 17").token
            fault.during(lambda: applied(onto, token), at=where)
        assert bob(where) == wanted, fault
        erase(where)
        assert bob(where) == wanted
        assert places_with(folder, *SECRETS) == [], fault
        shutil.rmtree(folder)
        return fault.seen

    for fault in faults_at(attempt(Fault())):
        attempt(fault)


@pytest.mark.thorough
def test_an_erasure_killed_at_any_statement_is_finished_by_another(tmp_path):
    small("sqlite/v2", tmp_path / "original")
    wanted = bob(str(tmp_path / "original" / "onto.db"))
    for statement in itertools.count(1):
        folder = tmp_path / str(statement)
        shutil.copytree(tmp_path / "original", folder)
        where = str(folder / "onto.db")
        with Ontology(where) as onto:
            token = onto.erase("Person", ANN, reason="article 17").token
        was_killed = is_killed(statement, lambda: applied_at(where, token))  # noqa: B023 — called at once
        assert bob(where) == wanted
        erase(where)
        assert bob(where) == wanted
        assert places_with(folder, *SECRETS) == [], statement
        if not was_killed:
            break
    assert statement > 20


def test_a_key_that_is_spelled_otherwise_is_found_and_what_is_no_key_is_refused(tmp_path):
    where = str(tmp_path / "onto.db")
    with Ontology(where, entity_types=[Visit]) as onto:
        with onto.session() as session:
            session.ensure(Visit(at=datetime(2020, 1, 1, tzinfo=UTC)))
        for spelled in ("2020-01-01", "2020-01-01T00:00:00Z", datetime(2020, 1, 1)):
            assert onto.erase(Visit, spelled, reason="article 17").rows == 1
        for wrong in (["2020-01-01"], date(2020, 1, 1), "yesterday", None, "\ud800"):
            with pytest.raises(ValidationError, match="is not a key of Visit"):
                onto.erase(Visit, wrong, reason="article 17")


def test_a_token_stays_good_while_others_commit_until_there_is_more_to_erase(tmp_path):
    where = filled("s3/v2", tmp_path)
    with Ontology(where, entity_types=[PersonWithMail]) as onto:
        token = onto.erase("Person", ANN, reason="article 17").token
        for key, is_good in (("somebody else", True), (ANN, False)):
            with onto.session() as session:
                session.ensure(PersonWithMail(id=key, name="new"))
            assert (onto.erase("Person", ANN, reason="article 17").token == token) == is_good
        with pytest.raises(ErasureRefusedError, match="has changed: preview it again"):
            applied(onto, token)


@pytest.mark.parametrize("name", ["sqlite/v2", "s3/v2"])
def test_a_token_of_another_store_is_refused(name, tmp_path):
    for place in (tmp_path / "here", tmp_path / "there"):
        place.mkdir()
    here, there = (filled(name, tmp_path / place) for place in ("here", "there"))
    with Ontology(there) as other:
        token = other.erase("Person", ANN, reason="article 17").token
    with Ontology(here) as onto, pytest.raises(ErasureRefusedError, match="preview it again"):
        onto.erase("Person", ANN, reason="article 17", dry_run=False, token=token)


class Human(Entity, renamed_from="Person"):
    id: Field[str] = Field(primary_key=True)
    name: Field[str] = Field(index=True)
    mail: Field[str | None] = None


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("called", ["Person", "Human"])
def test_an_identity_goes_under_all_names_of_its_type_whichever_is_said(name, called, tmp_path):
    where = filled(name, tmp_path)
    with Ontology(where, entity_types=[Human]) as onto:
        onto.migrate(dry_run=False, force=True)
        plan = onto.erase(called, ANN, reason="r")
        onto.erase(called, ANN, reason="r", dry_run=False, token=plan.token)
    assert places_with(tmp_path, *SECRETS) == []


class Product(Entity):
    id: Field[int] = Field(primary_key=True)


class Customer(Entity):
    id: Field[int] = Field(primary_key=True)
    name: Field[str] = ""


class Likes(Relation[Customer, Product]):
    n: Field[int] = 0


class Recommends(Relation[Product, Product]):
    n: Field[int] = 0


@pytest.mark.parametrize("name", ENGINES)
def test_rows_of_other_types_with_the_same_key_are_no_leftovers(name, tmp_path):
    where = target_of(name, tmp_path)
    types = {"entity_types": [Customer, Product], "relation_types": [Likes, Recommends]}
    with Ontology(where, **types) as onto:
        with onto.session() as session:
            session.ensure([Customer(id=1, name="Ann"), Customer(id=2), Product(id=1), Product(id=2)])
            session.ensure([Likes(left_key="1", right_key="2"), Likes(left_key="2", right_key="1")])
            session.ensure([Recommends(left_key="1", right_key="2"), Recommends(left_key="2", right_key="1")])
        plan = onto.erase(Customer, 1, reason="r", cascade=True)
        report = onto.erase(Customer, 1, reason="r", cascade=True, dry_run=False, token=plan.token)
        assert report.rows == 2
        assert onto.query().relations(Recommends).count() == 2
        assert onto.query().relations(Likes).collect()[0].right_key == "1"


@pytest.mark.parametrize("name", ["s3/v1", "s3/v2"])
def test_leftovers_of_the_erased_type_are_told_though_another_has_the_same_key(name, tmp_path, monkeypatch):
    where = target_of(name, tmp_path)
    with Ontology(where, entity_types=[Customer, Product]) as onto:
        with onto.session() as session:
            session.ensure([Customer(id=1, name="Ann"), Product(id=1)])
        monkeypatch.setattr("ontologia.engines.parquet.care.erasure.delete_unnamed", lambda *_: None)
        plan = onto.erase(Customer, 1, reason="r")
        with pytest.raises(ErasureIncompleteError, match="Customer"):
            onto.erase(Customer, 1, reason="r", dry_run=False, token=plan.token)
