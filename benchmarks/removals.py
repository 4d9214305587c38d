"""The latest state of a store in which every tenth row was removed, beside one of the same size in which none was."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.customers import Customer
from benchmarks.embedded import CONFIG, numbered
from benchmarks.report import Case
from ontologia import Ontology, initialize_storage

ROWS = 300_000


def opened(where: str) -> Ontology:
    place = {"storage_uri": where} if "://" in where else {"db_path": where}
    return Ontology(config=CONFIG, entity_types=[Customer], **place)  # type: ignore[arg-type]


def filled(where: str, rows: pa.Table, *, removed: bool) -> Ontology:
    """All rows in a commit, and every tenth in another one: written again, or removed."""
    onto = opened(where)
    schema = Customer.__declaration__.schema
    tenth = rows.take(pa.array(range(0, rows.num_rows, 10)))
    with onto.engine.write() as transaction:
        transaction.append(transaction.activate(schema), rows)
        transaction.publish({})
    with onto.engine.write() as transaction:
        layout = transaction.catalog.layouts[schema.ref]
        (transaction.remove if removed else transaction.append)(layout, tenth)
        transaction.publish({})
    return onto


def stores(folder: Path, kind: str) -> tuple[Ontology, Ontology]:
    rows = numbered(ROWS)
    found = []
    for removed in (True, False):
        where = str(folder / f"removals-{removed}.db")
        if kind != "sqlite":
            where = (folder / f"removals-{removed}").as_uri()
            initialize_storage(storage_uri=where)
        found.append(filled(where, rows, removed=removed))
        if kind == "compacted":
            found[-1].repository.compact(apply=True)
    return found[0], found[1]


def questions(folder: Path, *, kind: str) -> Iterator[Case]:
    """What is asked of the latest state, on one kind of store."""
    ours, peer = stores(folder, kind)
    names = (f"{kind}, a tenth removed", f"{kind}, none removed")
    for name, ask in {
        "all rows as a table": lambda onto: onto.query().entities(Customer).to_arrow(),
        "a sum over all": lambda onto: onto.query().entities(Customer).sum(Customer.age),
        "a filter": lambda onto: onto.query().entities(Customer).where(Customer.age > 60).count(),
    }.items():
        yield Case(f"latest with removals: {name}", *names, 1.2, partial(ask, ours), partial(ask, peer))
    ours.close()
    peer.close()


SUITES = {f"removals-{kind}": partial(questions, kind=kind) for kind in ("sqlite", "files", "compacted")}
