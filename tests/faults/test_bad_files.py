"""Files that are not what they should be, and disks that give no more: one clear error each, and nothing written."""

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ontologia import Entity, Field, OntologiaError, Ontology, StorageBackendError, ValidationError


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    text: Field[str] = ""


def add(onto, *things):
    with onto.session() as session:
        session.ensure(things)


@pytest.mark.parametrize(
    "content", [b"xy", b"hello, world\n" * 100, b"PK\x03\x04" + bytes(5000), b"SQLite format 3" + b"x" * 500]
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(StorageBackendError, match=r"notes\.txt"):
        Ontology(str(path))
    assert (path.read_bytes(), os.listdir(tmp_path)) == (content, ["notes.txt"])


def test_a_foreign_sqlite_file_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "photos.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE photos (id INTEGER)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StorageBackendError, match="something else"):
        Ontology(str(path))
    assert path.read_bytes() == before


def test_a_foreign_file_with_a_table_of_our_name_is_refused(tmp_path):
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE storage_meta (something INTEGER)")
    connection.commit()
    connection.close()
    with pytest.raises(OntologiaError, match=r"other\.db"):
        Ontology(str(path))


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(StorageBackendError, match="folder"):
        Ontology(str(tmp_path))


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(StorageBackendError, match="folder does not exist"):
        Ontology(str(tmp_path / "missing" / "onto.db"))


def test_a_missing_folder_is_not_created(tmp_path):
    with pytest.raises(StorageBackendError):
        Ontology(str(tmp_path / "missing" / "onto.db"))
    assert os.listdir(tmp_path) == []


def test_a_file_in_place_of_a_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageBackendError):
        Ontology(str(tmp_path / "file" / "onto.db"))


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_a_path_that_cannot_be_is_refused(path):
    with pytest.raises(OntologiaError, match=r"cannot be opened|zero byte"):
        Ontology(path)


def test_a_damaged_file_is_an_error_of_ours(path):
    with Ontology(path, entity_types=[Thing]) as onto:
        add(onto, *(Thing(id=str(number), text="x" * 2000) for number in range(50)))
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(os.path.getsize(path) - 4096))
    with pytest.raises(StorageBackendError), Ontology(path, entity_types=[Thing]) as onto:
        onto.query().entities(Thing).collect()


def test_a_file_cut_short_is_an_error_of_ours(path):
    with Ontology(path, entity_types=[Thing]) as onto:
        add(onto, *(Thing(id=str(number), text="x" * 2000) for number in range(50)))
    os.truncate(path, 4096 * 3)
    with pytest.raises(StorageBackendError), Ontology(path, entity_types=[Thing]) as onto:
        onto.query().entities(Thing).collect()


# --- a full disk ---


def session_without_room(onto):
    """A store with one row, and a session with more than the disk has room for."""
    add(onto, Thing(id="first"))
    with onto.engine.connections.use() as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    session = onto.session()
    session.ensure(Thing(id=str(number), text="x" * 2000) for number in range(100))
    return session


def test_a_full_disk_is_named_and_nothing_is_written(path):
    with Ontology(path, entity_types=[Thing]) as onto:
        session = session_without_room(onto)
        with pytest.raises(StorageBackendError, match="disk is full"):
            session.commit()
        assert [thing.id for thing in onto.query().entities(Thing).collect()] == ["first"]


def test_after_room_was_made_the_same_session_commits(path):
    with Ontology(path, entity_types=[Thing]) as onto:
        session = session_without_room(onto)
        with pytest.raises(StorageBackendError):
            session.commit()
        with onto.engine.connections.use() as connection:
            connection.execute("PRAGMA max_page_count = 1000000")
        assert session.commit() == 2


def run(program, path):
    """Run a program in a process of its own; its last line says how it ended."""
    prelude = """
import os, resource, sys
from ontologia import Entity, Field, Ontology, OntologiaError

class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    text: Field[str] = ""
"""
    done = subprocess.run([sys.executable, "-c", prelude + program, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_a_limit_on_the_size_of_files_is_an_error_and_nothing_is_written(path):
    with Ontology(path, entity_types=[Thing]) as onto:
        add(onto, Thing(id="first"))
    program = """
onto = Ontology(sys.argv[1], entity_types=[Thing])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
session = onto.session()
session.ensure(Thing(id=str(number), text="x" * 5000) for number in range(200))
try:
    session.commit()
except OntologiaError as problem:
    print(type(problem).__name__, [thing.id for thing in onto.query().entities(Thing).collect()])
"""
    assert run(program, path) == "StorageBackendError ['first']"


# --- files that may be read and not written ---

AS_NOBODY = """
with Ontology(":memory:", entity_types=[Thing]) as onto, onto.session() as session:
    session.ensure(Thing(id="a"))  # loads what is loaded late: nobody may not be allowed to read where Python is
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
"""


@pytest.fixture
def locked_away(tmp_path_factory, engine_version):
    """A store that may be read and not written, in a folder that everyone may enter and nobody may write to."""
    from ontologia import open_repository

    base = tmp_path_factory.mktemp("readonly")
    folder = base / "folder"
    folder.mkdir()
    path = str(folder / "onto.db")
    open_repository(path, engine_version=engine_version).close()
    with Ontology(path, entity_types=[Thing]) as onto:
        add(onto, Thing(id="first"))
    shut = {
        parent: parent.stat().st_mode for parent in (base, *base.parents) if not parent.stat().st_mode & stat.S_IXOTH
    }
    for parent, mode in shut.items():
        parent.chmod(mode | stat.S_IXOTH | stat.S_IROTH)
    os.chmod(path, 0o444)
    folder.chmod(0o555)
    yield path
    folder.chmod(0o755)
    for parent, mode in shut.items():
        parent.chmod(mode)


WRITE = """
try:
    with Ontology(sys.argv[1], entity_types=[Thing]) as onto, onto.session() as session:
        session.ensure(Thing(id="second"))
except OntologiaError as problem:
    print(type(problem).__name__, problem)
"""


@pytest.mark.xdist_group("folders of all workers are opened to everyone")
def test_writing_to_a_read_only_file_is_one_clear_error_and_leaves_it_as_it_was(locked_away):
    before = Path(locked_away).read_bytes()
    assert run(AS_NOBODY + WRITE, locked_away).startswith("StorageBackendError")
    assert Path(locked_away).read_bytes() == before


def test_a_file_that_may_not_be_read_is_one_clear_error(locked_away):
    os.chmod(locked_away, 0o000)
    program = (
        AS_NOBODY
        + "try:\n    Ontology(sys.argv[1])\nexcept OntologiaError as problem:\n    print(type(problem).__name__)\n"
    )
    assert run(program, locked_away) == "StorageBackendError"


def test_a_folder_that_may_not_be_entered_is_one_clear_error(locked_away):
    os.chmod(os.path.dirname(locked_away), 0o000)
    program = (
        AS_NOBODY
        + "try:\n    Ontology(sys.argv[1])\nexcept OntologiaError as problem:\n    print(type(problem).__name__)\n"
    )
    assert run(program, locked_away) == "StorageBackendError"


def test_bad_data_in_a_row_is_refused_before_anything_is_written(path):
    with Ontology(path, entity_types=[Thing]) as onto:
        session = onto.session()
        session.ensure([Thing(id="good"), Thing(id="bad", text="\ud800")])
        with pytest.raises(ValidationError):
            session.commit()
        assert onto.list_commits() == []
