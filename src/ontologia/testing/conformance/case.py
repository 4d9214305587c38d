"""One engine under test, and the store that a test gets of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ontologia.config import OntologiaConfig
from ontologia.engines.capabilities import Capabilities
from ontologia.engines.dispatch import open_repository
from ontologia.engines.initializing import initialize_storage
from ontologia.model import Declared, Entity, Relation
from ontologia.runtime.ontology import Ontology
from ontologia.runtime.session import Session
from ontologia.testing.conformance.shop import ENTITIES, RELATIONS, history

Types = tuple[type[Declared], ...]


@dataclass(frozen=True)
class EngineCase:
    """How the suite gets stores of one engine.

    `create` makes a fresh, empty store, using the folder if it needs one, and returns its path or URI. `config` is what
    every session gets.
    """

    name: str
    create: Callable[[Path], str]
    config: OntologiaConfig = field(default_factory=OntologiaConfig)

    def __str__(self) -> str:
        return self.name

    @contextmanager
    def create_store(self) -> Iterator[StoreUnderTest]:
        """A new store that lives as long as the block: for examples that Hypothesis makes."""
        with tempfile.TemporaryDirectory(prefix="ontologia-") as folder:
            store = StoreUnderTest(self, self.create(Path(folder)))
            try:
                yield store
            finally:
                store.close()


def sqlite(engine_version: str) -> EngineCase:
    """A SQLite engine, in a file."""

    def create(folder: Path) -> str:
        target = str(folder / "onto.db")
        open_repository(target, engine_version=engine_version).close()
        return target

    return EngineCase(f"sqlite/{engine_version}", create)


def directory(engine_version: str) -> EngineCase:
    """An object-storage engine, in a directory."""

    def create(folder: Path) -> str:
        uri = (folder / "store").as_uri()
        initialize_storage(storage_uri=uri, engine_version=engine_version)
        return uri

    return EngineCase(f"s3/{engine_version} in a directory", create)


def graph() -> EngineCase:
    """A graph, in a directory, opened on its main branch."""

    def create(folder: Path) -> str:
        uri = (folder / "graph").as_uri()
        initialize_storage(storage_uri=uri, engine="omnigraph")
        return uri

    return EngineCase("a graph in a directory", create)


class StoreUnderTest:
    """An empty store, and the ways to open it. Whatever it opened, it closes at the end of the test."""

    def __init__(self, case: EngineCase, target: str) -> None:
        self.case = case
        self.target = target
        self._opened: list[Session | Ontology] = []

    def session(self, *types: type[Declared], config: OntologiaConfig | None = None) -> Session:
        """A session that declares these types; the shop's, if none are named."""
        entities, relations = _split(types or (*ENTITIES, *RELATIONS))
        session = Session(
            self.target, entity_types=entities, relation_types=relations, config=config or self.case.config
        )
        self._opened.append(session)
        return session

    def ontology(self, *types: type[Declared]) -> Ontology:
        """The same store as an `Ontology`."""
        entities, relations = _split(types or (*ENTITIES, *RELATIONS))
        where: dict[str, Any] = {"storage_uri" if "://" in self.target else "db_path": self.target}
        ontology = Ontology(config=self.case.config, entity_types=entities, relation_types=relations, **where)
        self._opened.append(ontology)
        return ontology

    def fill(self) -> Session:
        """A session on the store after the shop's whole history."""
        session = self.session()
        for commit in history():
            session.ensure(commit)
            session.commit()
        return session

    @property
    def capabilities(self) -> Capabilities:
        """What the engine says it can do."""
        return self.session().repository.capabilities

    def close(self) -> None:
        for opened in self._opened:
            opened.repository.close()
        self._opened.clear()


def _split(types: Types) -> tuple[list[type[Entity]], list[type[Relation[Any, Any]]]]:
    return [t for t in types if issubclass(t, Entity)], [t for t in types if issubclass(t, Relation)]


def commit(session: Session, *objects: Declared | Iterable[Declared]) -> int | None:
    """Ensure and commit in one line."""
    for obj in objects:
        session.ensure(obj)
    return session.commit()


class ConformanceSuite:
    """What every part of the suite uses: a `store` of the `engine` fixture's engine."""

    @pytest.fixture
    def store(self, engine: EngineCase, tmp_path: Path) -> Iterator[StoreUnderTest]:
        store = StoreUnderTest(engine, engine.create(tmp_path))
        yield store
        store.close()
