"""The types and stores of these tests. Spark's workers and the processes that get killed import it too."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge
from pydantic import StringConstraints

from ontologia import Entity, Field, OntologiaConfig, Relation, Session
from ontologia.engines.initializing import initialize_storage

Tidied = Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)]


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    age: Field[Annotated[int, Ge(0)]]
    tags: Field[list[str]] = Field(default_factory=list)
    note: Field[str | None] = None


class Buys(Relation[Customer, Customer]):
    at: Field[str] = Field(instance_key=True)
    amount: Field[float]


class Knows(Relation[Customer, Customer]):
    since: Field[int]


class Everything(Entity):
    number: Field[int] = Field(primary_key=True)
    text: Field[str | None] = None
    real: Field[float | None] = None
    yes: Field[bool | None] = None
    moment: Field[datetime | None] = None
    day: Field[date | None] = None
    raw: Field[bytes | None] = None
    shape: Field[dict[str, int] | None] = None
    commit_id: Field[int | None] = None


class Tidy(Entity):
    """Its key is not what it is given, and its default does not fit."""

    id: Field[Tidied] = Field("NONE", primary_key=True)
    size: Field[Annotated[str, StringConstraints(max_length=2)]] = "large"


TYPES: dict[str, Any] = {"entity_types": [Customer, Everything], "relation_types": [Buys, Knows]}


def new_store(uri: str, engine_version: str | None = None) -> str:
    if "://" in uri:
        initialize_storage(storage_uri=uri, engine_version=engine_version)
    return uri


def session(uri: str, config: OntologiaConfig | None = None) -> Session:
    return Session(uri, **TYPES, config=config or OntologiaConfig())


def commit(uri: str, *objects: Any) -> int | None:
    with session(uri) as opened:
        opened.ensure(objects)
        return opened.commit()


def customers(uri: str) -> dict[str, tuple[str, int]]:
    """The customers of a store as the embedded path reads them."""
    with session(uri) as opened:
        return {found.id: (found.name, found.age) for found in opened.query().entities(Customer).collect()}


def head(uri: str) -> int:
    with session(uri) as opened:
        return opened.repository.get_head_commit_id()


def commits(uri: str) -> list[dict[str, Any]]:
    with session(uri) as opened:
        return opened.list_commits(None)


def staged(uri: str) -> list[str]:
    """The files that a write left in its staging area."""
    root = Path(uri.removeprefix("file://") + "/staging") if "://" in uri else Path(f"{uri}.staging")
    return sorted(str(path) for path in root.rglob("*") if path.is_file() and "quarantine" not in str(path))
