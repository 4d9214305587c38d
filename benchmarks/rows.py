"""The same small piece of work beside more and more rows, and in stores of more and more types."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.customers import Customer, key, numbered, values
from benchmarks.embedded import filled
from benchmarks.growth import Growth, Table, Timed, timed
from benchmarks.ordinary import loaded
from ontologia import Entity, Field, Ontology
from ontologia.engines.dispatch import open_repository
from ontologia.engines.initializing import initialize_storage
from ontologia.query import count

COMMIT_S = 0.0012


def rows_sqlite(folder: Path, sizes: Iterable[int]) -> Iterator[Growth]:
    """One row into a SQLite type, in processor time: what the disk takes to sync is the disk's."""
    works = {version: f"commit of one row, sqlite/{version}, processor time" for version in ("v2", "v1")}
    table = Table("rows", most=dict.fromkeys(works.values(), COMMIT_S))

    def measure(version: str, size: int) -> None:
        path = folder / f"{version}-{size}.db"
        open_repository(path, engine_version=version).close()
        with filled(path, numbered(size)) as onto:
            table.add(works[version], size, cpu_of_a_commit(onto))
        path.unlink()

    small = []
    for size in sizes:
        measure("v2", size)
        small += [size] if size <= 1_000_000 else []
    for size in small:
        measure("v1", size)
    yield from table.growths()


def cpu_of_a_commit(onto: Ontology) -> list[float]:
    session, steps = onto.session(), itertools.count(1)
    row = next(iter(values(1)))

    def commit() -> None:
        session.ensure(Customer(**{**row, "balance": float(next(steps))}))
        session.commit()

    return timed(commit, 50, clock=time.process_time)


def rows_files(folder: Path, sizes: Iterable[int]) -> Iterator[Growth]:
    """Key lookup, count and one-row commits of an uncompacted store in files, beside more and more rows."""
    table = Table("rows", {"key lookup, files": 0.25, "group-by, files": None})
    for size in sizes:
        with loaded(folder / f"store-{size}", numbered(size)) as onto:
            query, session, steps = onto.query().entities(Customer), onto.session(), itertools.count(1)
            row = next(iter(values(1)))

            def commit(session: Any = session, steps: Any = steps, row: Any = row) -> None:
                session.ensure(Customer(**{**row, "balance": float(next(steps))}))
                session.commit()

            keys = itertools.cycle([key(number * 7919 % size) for number in range(100)])
            works: dict[str, Timed] = {
                "count, files": query.count,
                "key lookup, files": lambda q=query, k=keys: q.where(Customer.id == next(k)).first(),
                "group-by, files": lambda q=query: q.group_by(Customer.tier).agg(rows=count()),
                "commit of one row, files": commit,
            }
            for name, work in works.items():
                table.add(name, size, timed(work))
    yield from table.growths()


def types_files(folder: Path, sizes: Iterable[int]) -> Iterator[Growth]:
    """One row of one type, in stores that have more and more types: the protocol brings every index up to date."""
    table = Table("types", {"commit of one row": 1.0, "count": 0.25})
    for number in sizes:
        classes = [_made(place) for place in range(number)]
        uri = (folder / f"types-{number}").as_uri()
        initialize_storage(storage_uri=uri)
        with Ontology(storage_uri=uri, entity_types=classes) as onto:
            with onto.session() as session:
                session.ensure(cls(id="a") for cls in classes)
            session, steps = onto.session(), itertools.count(1)

            def commit(session: Any = session, steps: Any = steps, cls: Any = classes[0]) -> None:
                session.ensure(cls(id="a", size=next(steps)))
                session.commit()

            table.add("commit of one row", number, timed(commit))
            table.add("count", number, timed(onto.query().entities(classes[0]).count))
    yield from table.growths()


def _made(number: int) -> Any:
    class Thing(Entity, name=f"Thing{number}"):
        id: Field[str] = Field(primary_key=True)
        size: Field[int] = 0

    return Thing
