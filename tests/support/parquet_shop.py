"""A small shop on object storage: its types, its store, and everything a reader can be told about it."""

from __future__ import annotations

import contextlib
import json
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ontologia import Entity, Field, OntologiaConfig, Relation
from ontologia.engines.dispatch import open_objects_engine
from ontologia.engines.parquet import setup
from ontologia.engines.parquet.engine import ParquetEngine
from ontologia.engines.repository import Repository
from ontologia.model import Declared
from ontologia.objects import Objects, open_objects
from ontologia.objects.clock import SystemClock
from ontologia.query.plan import LATEST, Window
from ontologia.runtime.session import Session
from ontologia.runtime.store import collect_declarations

VERSIONS = ("v1", "v2")


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    tier: Field[str | None] = Field(default=None)
    age: Field[int] = Field(default=0)
    tags: Field[list[str]] = Field(default_factory=list)


class CustomerWithEmail(Entity, name="Customer"):
    """The next version of a customer; rows carry over by themselves."""

    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    tier: Field[str | None] = Field(default=None)
    age: Field[int] = Field(default=0)
    tags: Field[list[str]] = Field(default_factory=list)
    email: Field[str] = Field(default="none")


class Product(Entity):
    sku: Field[str] = Field(primary_key=True)
    price: Field[float] = Field(default=0.0)


class Bought(Relation[Customer, Product]):
    """Unkeyed."""

    amount: Field[int] = Field(default=1)


class Rated(Relation[Customer, Product]):
    """Keyed: a customer may rate a product in several years."""

    year: Field[str] = Field(instance_key=True)
    stars: Field[int] = Field(default=3)


TYPES: tuple[type[Declared], ...] = (Customer, Product, Bought, Rated)
HISTORY: list[list[Declared]] = [
    [Customer(id="c1", name="Alice", tier="gold"), Customer(id="c2", name="Bob"), Product(sku="p1", price=1.5)],
    [Customer(id="c1", name="Alice", tier="silver", age=31), Bought(left_key="c1", right_key="p1", amount=2)],
    [Rated(left_key="c1", right_key="p1", year="2024"), Rated(left_key="c1", right_key="p1", year="2025", stars=5)],
]


class AheadClock(SystemClock):
    """A clock that is off by some seconds. One far ahead sees every lease as expired."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def wall(self) -> float:
        return time.time() + self.seconds


@dataclass
class Shop:
    """A store of one engine version, and the ways to open it."""

    objects: Objects
    version: str
    cache: Path
    opened: list[Repository] = field(default_factory=list)

    @classmethod
    def create(cls, objects: Objects, version: str, cache: Path, *, filled: bool = True) -> Shop:
        setup.initialize(objects, version)
        shop = cls(objects, version, cache)
        if filled:
            for rows in HISTORY:
                shop.commit(rows)
        return shop

    def repository(
        self, objects: Objects | None = None, *, clock: Any = None, keep_alive: bool = True, **settings: Any
    ) -> Repository:
        config = OntologiaConfig(**{"cache_directory": str(self.cache), "s3_lock_timeout_ms": 2_000} | settings)
        repository = Repository(open_objects_engine(objects or self.objects, config))
        assert isinstance(repository.engine, ParquetEngine)
        repository.engine.lease.keep_alive = keep_alive
        if clock is not None:
            repository.engine.lease.clock = clock
        self.opened.append(repository)
        return repository

    def session(self, *types: type[Declared], repository: Repository | None = None, **how: Any) -> Session:
        entities = [t for t in types or TYPES if issubclass(t, Entity)]
        relations = [t for t in types or TYPES if issubclass(t, Relation)]
        return Session.over(repository or self.repository(**how), collect_declarations(entities, relations))

    def commit(self, rows: Iterable[Declared], **how: Any) -> int | None:
        """Commit with a runtime of its own, as another process would."""
        with self.using(**how) as repository:
            return commit(repository, rows)

    @contextlib.contextmanager
    def using(self, objects: Objects | None = None, **how: Any) -> Iterator[Repository]:
        """A repository for the block."""
        repository = self.repository(objects, **how)
        try:
            yield repository
        finally:
            repository.close()
            self.opened.remove(repository)

    def copy(self, name: str | None = None) -> Shop:
        """The same store once more, in memory."""
        twin = open_objects(f"memory://{name or uuid.uuid4().hex}/twin")
        copy_objects(self.objects, twin)
        return Shop(twin, self.version, self.cache)

    def read(self, key: str) -> dict[str, Any]:
        """What an object of the control plane says."""
        found: dict[str, Any] = json.loads(self.objects.get(key).data)
        return found

    def state(self) -> State:
        with self.using() as repository:
            return state(repository)

    def close(self) -> None:
        for repository in self.opened:
            repository.close()


def commit(repository: Repository, rows: Iterable[Declared], **meta: str) -> int | None:
    """One commit of these rows."""
    session = Session.over(repository, {})
    session.ensure(list(rows))
    return session.commit(meta=meta)


def migrate(shop: Shop, objects: Objects | None = None) -> None:
    """Give customers an address."""
    session = shop.session(CustomerWithEmail, Product, objects=objects, keep_alive=False)
    session.migrate(dry_run=False, force=True)


def copy_objects(source: Objects, target: Objects) -> None:
    for info in list(source.list()):
        target.put(info.key, source.get(info.key).data)


Rows = tuple[tuple[tuple[str, Any], ...], ...]
State = dict[str, Any]


def rows_of(repository: Repository, kind: str, name: str, window: Window = LATEST) -> Rows:
    """What a question answers, in the order it answers, comparable and hashable."""
    ask: Callable[..., list[dict[str, Any]]] = getattr(repository, f"query_{kind}")
    return tuple(tuple((key, repr(value)) for key, value in row.items()) for row in ask(name, window=window))


def state(repository: Repository) -> State:
    """Everything a reader can see: every type in every window, and the log."""
    catalog = repository.engine.catalog()
    found: State = {"head": catalog.head, "commits": [commit.id for commit in repository.engine.commits()]}
    windows = [LATEST, Window("history")]
    windows += [Window(mode, at) for mode in ("as_of", "since") for at in range(catalog.head + 1)]  # type: ignore[arg-type]
    for ref, layout in sorted(catalog.layouts.items()):
        found[f"{ref} version"] = layout.schema_version_id
        for window in windows:
            kind = "entities" if ref.kind == "entity" else "relations"
            found[f"{ref} {window.mode} {window.commit}"] = rows_of(repository, kind, ref.name, window)
    found["changes"] = {number: repository.list_commit_changes(number) for number in found["commits"]}
    return found


def latest(repository: Repository) -> dict[str, dict[str, dict[str, Any]]]:
    """The current rows of every type by identity, without commit ids."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for ref in sorted(repository.engine.catalog().layouts):
        names = ("id", "sku") if ref.kind == "entity" else ("left_key", "right_key", "instance_key")
        rows = repository.query_entities(ref.name) if ref.kind == "entity" else repository.query_relations(ref.name)
        found[ref.name] = {
            "/".join(str(row[name]) for name in names if name in row): {
                name: value for name, value in row.items() if name != "commit_id"
            }
            for row in rows
        }
    return found


def attempts(objects: Objects) -> set[str]:
    """The folders of all attempts, committed or not."""
    return {"/".join(info.key.split("/")[:2]) for info in objects.list("commits/")}


def committed_attempts(repository: Repository) -> set[str]:
    head = repository.engine.log.head().head
    return {path.removesuffix("/manifest.json") for path, _ in repository.engine.log.chain(head)}


KEYS = [f"k{number:02d}" for number in range(24)]


def some_keys(chance: random.Random) -> list[str]:
    """A few keys from anywhere, many of a range, or many from anywhere."""
    match chance.randrange(4):
        case 0 | 1:
            return chance.sample(KEYS, chance.randint(1, 3))
        case 2:
            start = chance.randrange(len(KEYS) - 8)
            return KEYS[start : start + 8]
    return chance.sample(KEYS, 9)
