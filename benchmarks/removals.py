"""What removing, erasing and forgetting cost: the questions after it, and the work itself."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.customers import Customer, append, changed, key, numbered
from benchmarks.embedded import CONFIG, TABLE, bare
from benchmarks.report import Case
from ontologia import Ontology, initialize_storage


def opened(where: str) -> Ontology:
    if "://" not in where:
        return Ontology(where, CONFIG, entity_types=[Customer])
    initialize_storage(storage_uri=where)
    return Ontology(storage_uri=where, config=CONFIG, entity_types=[Customer])


# --- removed ---


def questions(folder: Path, rows: int) -> Iterator[Case]:
    """The latest state of a store in which every tenth row was removed, beside one in which none was."""
    table = numbered(rows)
    for kind in ("sqlite", "files", "compacted"):
        stores = [filled(folder, table, kind, removed=removed) for removed in (True, False)]
        names = (f"{kind}, a tenth removed", f"{kind}, none removed")
        for name, ask in {
            "all rows as a table": lambda onto: onto.query().entities(Customer).to_arrow(),
            "a sum over all": lambda onto: onto.query().entities(Customer).sum(Customer.age),
            "a filter": lambda onto: onto.query().entities(Customer).where(Customer.age > 60).count(),
        }.items():
            yield Case(f"latest with removals: {name}", *names, 1.2, *(partial(ask, store) for store in stores))
        for store in stores:
            store.close()


def filled(folder: Path, rows: pa.Table, kind: str, *, removed: bool) -> Ontology:
    """All rows in a commit, and every tenth in another one: written again, or removed."""
    place = folder / f"{kind}-{removed}.db"
    onto = opened(str(place) if kind == "sqlite" else place.as_uri())
    tenth = rows.take(pa.array(range(0, rows.num_rows, 10)))
    append(onto, rows)
    with onto.engine.write() as transaction:
        layout = transaction.catalog.layouts[Customer.__declaration__.schema.ref]
        (transaction.remove if removed else transaction.append)(layout, tenth)
        transaction.publish({})
    if kind == "compacted":
        onto.repository.compact(apply=True)
    return onto


# --- erased and forgotten ---


def given_up(folder: Path, rows: int) -> Iterator[Case]:
    """One identity erased, and a tenth of history forgotten, beside writing the same file anew by hand."""
    table = numbered(rows)
    for kind, by_hand in (("SQLite", by_sqlite(folder, table)), ("files", by_pyarrow(folder, table))):
        with opened(str(folder / "x.db") if kind == "SQLite" else (folder / "store").as_uri()) as onto:
            append(onto, table)
            keys, steps = itertools.count(7), itertools.count(1)

            def erase(onto: Ontology = onto, keys: Iterator[int] = keys) -> None:
                wanted = key(next(keys))
                plan = onto.erase(Customer, wanted, reason="bench")
                onto.erase(Customer, wanted, reason="bench", dry_run=False, token=plan.token)

            def lived(onto: Ontology = onto, steps: Iterator[int] = steps) -> tuple[int]:
                append(onto, changed(table.slice(rows // 2, rows // 10), next(steps)))
                return (onto.engine.catalog().head,)

            def forget(before: int, onto: Ontology = onto) -> None:
                plan = onto.forget(before=before)
                onto.forget(before=before, dry_run=False, token=plan.token)

            name, peer = f"{rows:,} rows, {kind}", "a row deleted, all written anew, unproved"
            yield Case(f"erase 1 of {name}", "erase(), proved by reading all", peer, None, erase, by_hand, runs=3)
            yield Case(f"forget {rows // 10:,} of {name}", "forget()", peer, None, forget, by_hand, lived, runs=3)


def by_sqlite(folder: Path, table: pa.Table) -> Callable[[], object]:
    place = folder / "by-hand.db"
    with opened(str(place)) as onto:
        append(onto, table)
    connection, keys = bare(place), itertools.count(7)

    def delete() -> None:
        connection.execute(f"DELETE FROM {TABLE} WHERE entity_key = ?", (key(next(keys)),))
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    return delete


def by_pyarrow(folder: Path, table: pa.Table) -> Callable[[], object]:
    place, keys = folder / "by-hand.parquet", itertools.count(7)
    pq.write_table(table, place, compression="zstd")

    def delete() -> None:
        found = pq.read_table(place)
        pq.write_table(found.filter(pc.field("entity_key") != key(next(keys))), f"{place}.new", compression="zstd")
        shutil.move(f"{place}.new", place)

    return delete
