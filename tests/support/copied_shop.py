"""A store with everything that a copy with history has to take along, on every engine; and all that a store says."""

from pathlib import Path

from ontologia import Entity, Field, Ontology, Session
from ontologia.engines.dispatch import open_engine
from ontologia.runtime.transfer import digests
from ontologia.testing.conformance import directory, sqlite
from ontologia.testing.conformance.case import StoreUnderTest

CASES = {"sqlite/v1": sqlite("v1"), "sqlite/v2": sqlite("v2"), "s3/v1": directory("v1"), "s3/v2": directory("v2")}


class Product(Entity):
    """The shop's product with one more field."""

    sku: Field[int] = Field(primary_key=True)
    price: Field[float]
    order: Field[str] = Field(default="none")
    group: Field[int | None] = Field(default=None, index=True)
    colour: Field[str | None] = Field(default=None)


class Parcel(Entity, renamed_from="Order"):
    """What the shop called an order."""

    number: Field[str] = Field(primary_key=True)
    note: Field[str | int | None] = Field(default=None)


def shop(name: str, folder: Path, *, removals: bool = False) -> str:
    """The shop's history, then migrations, a type under another name, drops with and without history, a compaction."""
    folder.mkdir()
    store = StoreUnderTest(CASES[name], CASES[name].create(folder))
    store.fill()
    store.close()
    with Session(store.target, entity_types=[Product, Parcel]) as session:
        session.migrate(dry_run=False, force=True, allow_discard=True, meta={"why": "colours"})
        session.ensure(Product(sku=1, price=1.0, colour="red"))
        session.commit()
    with Ontology(store.target) as onto:
        for relation, purge in (("Placed", False), ("Follows", True)):
            plan = onto.drop_types(relations=[relation], purge_history=purge)
            onto.drop_types(relations=[relation], purge_history=purge, dry_run=False, token=plan.token)
        if name.startswith("s3"):
            onto.repository.compact(apply=True)
    with Session(store.target, entity_types=[Product]) as session:
        session.ensure(Product(sku=3, price=-0.0))
        session.commit()
        if name.endswith("v2") and removals:
            session.remove(Product, 3, 10)
            session.ensure(Product(sku=11, price=1.0))
            session.commit()
            if name.startswith("s3"):
                session.repository.compact(apply=True)
            session.remove(Product, 11)
            session.ensure(Product(sku=3, price=2.0))
            session.commit()
    return store.target


def place(name: str, folder: Path) -> str:
    return str(folder / "copy.db") if name.startswith("sqlite") else (folder / "copy").as_uri()


def everything(target: str) -> dict:
    """All that a store says of its past, rows as hashes."""
    with open_engine(target) as engine:
        history, catalog = engine.history(), engine.catalog()
        found = list(digests.digests(history, history.past()))
        return {
            "commits": [(item.commit.to_dict(), item.recorded, item.dropped, item.rows) for item in found],
            "changes": [engine.list_commit_changes(number) for number in range(1, catalog.head + 1)],
            "current": sorted((str(ref), item.schema_version_id) for ref, item in catalog.layouts.items()),
            "dropped": catalog.dropped,
        }
