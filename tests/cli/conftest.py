"""Stores of every engine, the shop's classes, and two ways to run the console: in this process and as a command."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

import jsonschema
import pytest

import ontologia
from ontologia.cli import main

APPS = Path(__file__).parent / "apps"
SOURCE = Path(ontologia.__file__).parent.parent
SCHEMAS = Path(ontologia.__file__).parent / "cli" / "schemas"

# One line per engine: how it is called, where it lies, and the version it is laid out with.
ENGINES = {
    "sqlite-v1": ("sqlite", "v1"),
    "sqlite-v2": ("sqlite", "v2"),
    "s3-v1": ("file", "v1"),
    "s3-v2": ("file", "v2"),
    "server-v1": ("server", "v1"),
    "server-v2": ("server", "v2"),
}


def marks_of(where: str, version: str) -> list[pytest.MarkDecorator]:
    """Servers are marked so; older versions of an engine are left out of the quick run, and on a server they only
    repeat what a directory shows."""
    marks = [pytest.mark.s3] * (where == "server") + [pytest.mark.thorough] * (version == "v1")
    return marks + [pytest.mark.slow] * (where == "server" and version == "v1")


EVERY_ENGINE = [pytest.param(name, marks=marks_of(*how)) for name, how in ENGINES.items()]


@dataclass(frozen=True)
class Answer:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def rows(self) -> list[dict]:
        """The fields of the rows of a query."""
        return [row["fields"] for row in self.json["rows"]]

    @property
    def keys(self) -> list[str]:
        return [row["key"] for row in self.json["rows"]]

    def valid(self, schema: str):
        """The JSON on stdout, checked against a schema of the repository."""
        jsonschema.validate(self.json, json.loads((SCHEMAS / f"{schema}.json").read_text()))
        return self.json

    def failed(self, code: int, *words: str) -> str:
        """The one line on stderr of a failure, and nothing on stdout."""
        assert self.code == code, (self.code, self.out, self.err)
        assert self.out == ""
        lines = [line for line in self.err.splitlines() if not line.startswith("target: ")]
        assert len(lines) == 1
        assert lines[0].startswith("onto: ")
        assert "Traceback" not in self.err
        for word in words:
            assert word in lines[0]
        return lines[0]


@dataclass
class Target:
    """A store by its options."""

    flags: list[str]
    version: str
    where: str
    bindings: dict = field(default_factory=dict)

    @property
    def is_sqlite(self):
        return self.flags[0] == "--db"

    def ontology(self, models):
        return ontologia.Ontology(
            **self.bindings,
            entity_types=[models.Customer, models.Product],
            relation_types=[models.Subscription],
        )


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """An empty working directory, the shop on the path, and no settings from outside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(SOURCE), str(APPS))))
    for name in ("DB", "STORAGE_URI", "CONFIG", "LOG_LEVEL"):
        monkeypatch.delenv(f"ONTOLOGIA_{name}", raising=False)


@pytest.fixture
def models():
    from myapp import models

    return models


@pytest.fixture
def place(request, tmp_path, monkeypatch):
    """A function from an engine's name to a target that holds nothing yet."""

    def make(name: str, called: str = "store") -> Target:
        where, version = ENGINES[name]
        if where == "sqlite":
            path = str(tmp_path / f"{called}.db")
            return Target(["--db", path], version, path, {"db_path": path})
        if where == "file":
            uri = (tmp_path / called).as_uri()
        else:
            server = request.getfixturevalue("s3")
            for key, value in server.environment.items():
                monkeypatch.setenv(key, value)
            uri = server.uri(f"console-tests/{uuid.uuid4().hex}")
        return Target(["--storage-uri", uri], version, uri, {"storage_uri": uri})

    return make


@pytest.fixture
def onto(capfd):
    """The console in this process."""

    def run(*arguments: str) -> Answer:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        said = capfd.readouterr()
        return Answer(code, said.out, said.err)

    return run


@pytest.fixture
def onto_command():
    """The console as its own process, in a pipe."""

    def run(*arguments: str, **options) -> Answer:
        command = [sys.executable, "-m", "ontologia.cli", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
        return Answer(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def initialized(place, onto):
    """A function from an engine's name to an empty store of it."""

    def make(name: str, called: str = "store") -> Target:
        target = place(name, called)
        answer = onto("init", *target.flags, "--engine-version", target.version, "--quiet")
        assert answer.code == 0, answer.err
        return target

    return make


@pytest.fixture(scope="session")
def _templates():
    """Filled stores on this machine, by engine: made once, copied for every test."""
    return {}


@pytest.fixture
def filled(initialized, place, models, tmp_path, tmp_path_factory, _templates):
    """A function from an engine's name to a store with two commits of shop data."""

    def make(name: str, called: str = "store") -> Target:
        if ENGINES[name][0] == "server":
            target = initialized(name, called)
            fill(target, models)
            return target
        if name not in _templates:
            folder = tmp_path_factory.mktemp(name)
            target = initialized(name, "template")
            fill(target, models)
            for part in tmp_path.glob("template*"):
                shutil.move(part, folder / part.name)
            _templates[name] = folder
        for part in _templates[name].iterdir():
            copy = tmp_path / part.name.replace("template", called)
            shutil.copytree(part, copy) if part.is_dir() else shutil.copy(part, copy)
        return place(name, called)

    return make


@pytest.fixture(params=EVERY_ENGINE)
def shop(request, filled) -> Target:
    """The shop in a store of every engine, one after the other."""
    return filled(request.param)


@pytest.fixture(params=EVERY_ENGINE)
def empty(request, initialized) -> Target:
    """An empty store of every engine, one after the other."""
    return initialized(request.param)


def fill(target: Target, models) -> None:
    """Five customers, three products, three subscriptions; then one customer changes."""
    with target.ontology(models) as ontology:
        with ontology.session() as session:
            session.ensure(customers(models, 5))
            session.ensure(models.Product(sku=sku, price=sku * 1.5, since=date(2026, 1, sku)) for sku in (1, 2, 10))
            for left, right, seat in (("c1", "1", "a"), ("c1", "10", "b"), ("c2", "2", "a")):
                session.ensure(models.Subscription(left_key=left, right_key=right, seat=seat, seats=len(right)))
        with ontology.session() as session:
            session.ensure(models.Customer(id="c1", name="Bob", tier="Gold", age=77))
            session.commit(meta={"source": "crm"})


def customers(models, count: int):
    for number in range(count):
        yield models.Customer(
            id=f"c{number}",
            name=f'Näme {number}\n"quoted"',
            tier="Gold" if number % 2 else "Basic",
            age=None if number == 2 else 20 + number,
            active=number != 3,
            joined=datetime(2026, 1, 1, number % 24, 30, tzinfo=UTC),
            tags=["a", str(number)],
            address={"city": "Rome" if number < 3 else "Oslo", "zip": number},
            photo=bytes([0, 255, number % 256]),
            score=float("nan") if number == 4 else number / 3,
        )
