"""The store that every release leaves behind in each of its formats, and what it must answer ever after.

`python -m goldens.shop goldens/<version>`, run in `tests/`, writes the stores of the release at hand, each as an archive, and
their answers. They are data: once released, none is ever written anew.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from ontologia import Entity, Event, Field, OntologiaConfig, Ontology, Relation, Session, initialize_storage
from ontologia.apiary import Apiary
from ontologia.omnigraph import Omnigraph

TYPED = ("sqlite-v1", "sqlite-v2", "s3-v1", "s3-v2")
KINDS = (*TYPED, "graph", "frames")
CONFIG = OntologiaConfig(auto_compact="never")


class FirstCustomer(Entity, name="Customer"):
    """A customer, before the migration."""

    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    tier: Field[str] = Field(default="basic", index=True)


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    full_name: Field[str] = Field(renamed_from="name")
    tier: Field[str] = Field(default="basic", index=True)
    born: Field[date | None] = None
    seen: Field[datetime | None] = None
    tags: Field[list[str]] = Field(default_factory=list)


class Product(Entity):
    sku: Field[str] = Field(primary_key=True)
    price: Field[float]
    stock: Field[int | None] = None


class Order(Relation[Customer, Product]):
    number: Field[str] = Field(instance_key=True)
    quantity: Field[int] = 1


class FirstOrder(Relation[FirstCustomer, Product], name="Order"):
    number: Field[str] = Field(instance_key=True)
    quantity: Field[int] = 1


class Restocked(Event):
    sku: Field[str]


def write(kind: str, folder: Path) -> None:
    """A store with updates, a removal where the format knows them, a migration with a rename, and an event."""
    if kind == "frames":
        _write_frames(folder / kind)
    elif kind == "graph":
        _write_graph(folder / kind)
    else:
        _write_typed(kind, folder / kind)


def _write_typed(kind: str, path: Path) -> None:
    backend, version = kind.split("-")
    target = {"db_path": str(path)} if backend == "sqlite" else {"storage_uri": path.absolute().as_uri()}
    initialize_storage(**target, engine_version=version)
    first = {"entity_types": [FirstCustomer, Product], "relation_types": [FirstOrder], "config": CONFIG}
    with Ontology(**target, **first) as onto:
        with onto.session() as session:
            session.ensure([FirstCustomer(id="c1", name="Ada"), FirstCustomer(id="c2", name="Größe\n'\"\x01")])
            session.ensure([Product(sku="tea", price=4.5, stock=2**60), Product(sku="a/b c", price=-0.0)])
            session.ensure(FirstOrder(left_key="c1", right_key="tea", number="1", quantity=10))
        session = onto.session()
        session.ensure(FirstCustomer(id="c1", name="Ada", tier="gold"))
        session.commit(meta={"why": "tenth order"})
        if onto.repository.capabilities.removals:
            with onto.session() as session:
                session.remove(Product, "a/b c")
    now = {"entity_types": [Customer, Product], "relation_types": [Order], "config": CONFIG}
    with Ontology(**target, **now) as onto:
        onto.migrate(dry_run=False, force=True)
        with onto.session() as session:
            session.ensure(
                Customer(
                    id="c3",
                    full_name="Grace",
                    born=date(1906, 12, 9),
                    seen=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
                    tags=["navy", ""],
                )
            )
    with Session(next(iter(target.values())), "golden", **now) as session:
        session.ensure(Product(sku="tea", price=4.9, stock=2**60 - 1))
        session.commit(event=Restocked(sku="tea"))


def _write_graph(path: Path) -> None:
    with Omnigraph.init(str(path), types=[Customer, Product, Order], actor="ada") as graph:
        with graph.transaction(message="first") as tx:
            tx.upsert([Customer(id="c1", full_name="Ada"), Product(sku="tea", price=4.5)])
            tx.upsert(Order(left_key="c1", right_key="tea", number="1"))
        graph.tag("v1")
        graph.create_branch("prices")
        with graph.transaction("prices", message="dearer") as tx:
            tx.upsert(Product(sku="tea", price=4.9))
        with graph.transaction(message="gold") as tx:
            tx.upsert(Customer(id="c1", full_name="Ada", tier="gold"))
        graph.merge("prices")
        graph.create_branch("open")
        with graph.transaction("open", message="not merged yet") as tx:
            tx.upsert(Customer(id="c2", full_name="Grace"))


def _write_frames(path: Path) -> None:
    with Apiary("golden", storage=str(path)) as apiary:
        apiary.create_hive("shop")
        apiary.create_box("shop", "sales")
        columns = {"region": "string", "day": "date32", "amount": "float64", "pieces": "int64"}
        frame = apiary.create_frame("shop", "sales", "days", columns, partition_by=["region"])
        for day in range(1, 4):
            rows = {"region": ["north", "south/…"], "day": [date(2026, 1, day)] * 2, "amount": [day * 1.5, -0.0]}
            frame.write(pa.table({**rows, "pieces": [day, None]}, schema=frame.schema))
        frame.update({"region": "north"}, {"pieces": 7})
        frame.delete({"day": date(2026, 1, 2)})


@contextmanager
def open_typed(kind: str, path: Path) -> Iterator[Ontology]:
    target = {"db_path": str(path)} if kind.startswith("sqlite") else {"storage_uri": path.absolute().as_uri()}
    with Ontology(**target, entity_types=[Customer, Product], relation_types=[Order], config=CONFIG) as onto:
        yield onto


def answers(kind: str, path: Path) -> dict[str, Any]:
    """Everything that can be asked of a store, as JSON has it."""
    ask = {"graph": _graph_answers, "frames": _frame_answers}.get(kind)
    found = ask(path) if ask else _typed_answers(kind, path)
    return json.loads(json.dumps(found, default=str, sort_keys=True))


def _typed_answers(kind: str, path: Path) -> dict[str, Any]:
    with open_typed(kind, path) as onto:
        head = onto.repository.get_head_commit_id()
        questions = {
            "Customer": onto.query().entities(Customer).across_versions(),
            "Product": onto.query().entities(Product).across_versions(),
            "Order": onto.query().relations(Order).across_versions(),
        }
        return {
            "head": head,
            "log": [[commit["id"], commit["metadata"]] for commit in onto.list_commits(limit=None)],
            "states": {
                commit: {name: _rows(query.as_of(commit)) for name, query in questions.items()}
                for commit in range(1, head + 1)
            },
            "history": {name: _rows(query.with_history()) for name, query in questions.items()},
        }


def _graph_answers(path: Path) -> dict[str, Any]:
    with Omnigraph.open(str(path), types=[Customer, Product, Order]) as graph:
        points = ("main", "prices", "open", "v1")
        return {
            "messages": [commit.message for commit in graph.commits()],
            "states": {
                point: {
                    "Customer": _rows(graph.snapshot(point).query().entities(Customer)),
                    "Product": _rows(graph.snapshot(point).query().entities(Product)),
                    "Order": _rows(graph.snapshot(point).query().relations(Order)),
                }
                for point in points
            },
        }


def _frame_answers(path: Path) -> dict[str, Any]:
    with Apiary("golden", storage=str(path)) as apiary:
        frame = apiary.frame("shop.sales.days")
        return {"states": {version: _sorted(frame.read(version=version)) for version in range(1, 6)}}


def _rows(query: Any) -> list[Any]:
    return _sorted(query.to_arrow())


def _sorted(table: pa.Table) -> list[Any]:
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist())


def pack(store: Path, archive: Path) -> None:
    """Put a store into an archive, whether it is one file or a folder."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for file in sorted(store.rglob("*")) if store.is_dir() else [store]:
            target.write(file, file.relative_to(store.parent))


if __name__ == "__main__":
    release = Path(sys.argv[1])
    release.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            write(kind, Path(folder))
            found = answers(kind, Path(folder, kind))
            (release / f"{kind}.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
            pack(Path(folder, kind), release / f"{kind}.zip")
