"""How costs grow: the same small piece of work beside more and more rows, commits and types.

The exponent is fitted to the medians on a logarithmic scale: 0 is flat, 1 grows as the store does.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.customers import Customer, key, values
from benchmarks.embedded import filled, numbered
from benchmarks.ordinary import loaded, memory
from ontologia import Entity, Field, OntologiaConfig, Ontology
from ontologia.engines.dispatch import open_repository
from ontologia.engines.initializing import initialize_storage
from ontologia.query import count

FLAT = 0.15
RUNS = 15


Takes = Literal["time", "requests", "files", "kB", "MiB"]


@dataclass(frozen=True, slots=True)
class Growth:
    """What one piece of work takes at several sizes, and the exponent it is to stay under.

    It takes time, `requests` to the store, `files` opened, `kB` written or `MiB` of memory.
    """

    name: str
    unit: str
    sizes: list[int]
    medians: list[float]
    spreads: list[tuple[float, float]]
    limit: float | None = FLAT
    takes: Takes = "time"

    @property
    def exponent(self) -> float:
        """The slope of the medians, both axes logarithmic."""
        if len(self.sizes) < 2:
            return 0.0
        xs, ys = [math.log(size) for size in self.sizes], [math.log(value) for value in self.medians]
        return statistics.linear_regression(xs, ys).slope

    @property
    def shape(self) -> str:
        steps = {"flat": 0.15, "n^0.25": 0.375, "n^0.5": 0.75, "n": 1.5}
        return next((name for name, most in steps.items() if self.exponent <= most), "n²")

    @property
    def met(self) -> bool | None:
        return None if self.limit is None else self.exponent <= self.limit


Timed = Callable[[], object]


def timed(work: Timed, runs: int = RUNS, *, clock: Callable[[], float] = time.perf_counter) -> list[float]:
    work()
    found = []
    for _ in range(runs):
        started = clock()
        work()
        found.append(clock() - started)
    return sorted(found)


class Table:
    """Collects what the same works take at several sizes."""

    def __init__(
        self,
        unit: str,
        limits: dict[str, float | None] | None = None,
        takes: Takes = "time",
    ) -> None:
        self.unit = unit
        self.takes = takes
        self.limits = limits or {}
        self.found: dict[str, list[tuple[int, list[float]]]] = {}

    def add(self, name: str, size: int, times: list[float]) -> None:
        self.found.setdefault(name, []).append((size, times))

    def growths(self) -> Iterator[Growth]:
        for name, points in self.found.items():
            yield Growth(
                name,
                self.unit,
                [size for size, _ in points],
                [statistics.median(times) for _, times in points],
                [(times[len(times) // 4], times[-1 - len(times) // 4]) for _, times in points],
                self.limits.get(name, FLAT),
                self.takes,
            )


# --- rows ---


def rows_sqlite(folder: Path, sizes: Sequence[int]) -> Iterator[Growth]:
    """One row into a SQLite type, in processor time: what the disk takes to sync is the disk's."""
    table = Table("rows")
    for size in sizes:
        for version in ("v1", "v2") if size <= 1_000_000 else ("v2",):
            path = folder / f"{version}-{size}.db"
            open_repository(path, engine_version=version).close()
            with filled(path, numbered(size)) as onto:
                table.add(f"commit of one row, sqlite/{version}, processor time", size, cpu_of_a_commit(onto))
            path.unlink()
    yield from table.growths()


def cpu_of_a_commit(onto: Ontology) -> list[float]:
    session, steps = onto.session(), itertools.count(1)
    row = next(iter(values(1)))

    def commit() -> None:
        session.ensure(Customer(**{**row, "balance": float(next(steps))}))
        session.commit()

    return timed(commit, 50, clock=time.process_time)


def rows_files(folder: Path, sizes: Sequence[int]) -> Iterator[Growth]:
    """Key lookup, count and one-row commits of an uncompacted store in files, beside more and more rows."""
    table = Table("rows", {"key lookup, files": 0.25, "group-by, files": None})
    for size in sizes:
        with loaded(folder / f"store-{size}", numbered(size)) as onto:
            query, session, steps = onto.query().entities(Customer), onto.session(), itertools.count(1)
            row = next(iter(values(1)))

            def commit(session: Any = session, steps: Any = steps, row: Any = row) -> None:
                session.ensure(Customer(**{**row, "balance": float(next(steps))}))
                session.commit()

            wanted = key(size // 2)
            works: dict[str, Timed] = {
                "count, files": query.count,
                "key lookup, files": lambda q=query, w=wanted: q.where(Customer.id == w).first(),
                "group-by, files": lambda q=query: q.group_by(Customer.tier).agg(rows=count()),
                "commit of one row, files": commit,
            }
            for name, work in works.items():
                table.add(name, size, timed(work))
    yield from table.growths()


# --- commits ---


def commits_files(folder: Path, depths: Sequence[int]) -> Iterator[Growth]:
    """Questions and commits of a store in files that nobody compacts, after more and more commits of one row."""
    table = Table("commits", {"first question of a process": None, "first commit of a process": 0.5, "commit": 0.5})
    requests = Table("commits", takes="requests")
    rows = [Customer(**row) for row in values(200)]
    with ExitStack() as stack:
        uri = (folder / "deep").as_uri()
        config = OntologiaConfig(auto_compact="never", cache_directory=str(folder / "cache"))
        initialize_storage(storage_uri=uri, config=config)
        onto = stack.enter_context(Ontology(storage_uri=uri, config=config, entity_types=[Customer]))
        session, steps = onto.session(), itertools.count(1)

        def commit(onto_session: Any = session) -> None:
            step = next(steps)
            row = rows[step % len(rows)].model_dump() | {
                "id": f"c{step * 7919 % 1_000_003:07d}",
                "balance": float(step),
            }
            onto_session.ensure(Customer(**row))
            onto_session.commit()

        done = 0
        for depth in depths:
            for _ in range(depth - done):
                commit()
            done = depth
            query = onto.query().entities(Customer)
            table.add("count", depth, timed(query.count))
            table.add("filter", depth, timed(lambda q=query: q.where(Customer.age == 33).to_arrow()))
            table.add("key lookup", depth, timed(lambda q=query: q.where(Customer.id == "c0007919").first()))

            def first_question() -> None:
                with Ontology(storage_uri=uri, config=config, entity_types=[Customer]) as fresh:
                    fresh.query().entities(Customer).where(Customer.age == 33).count()

            table.add("first question of a process", depth, timed(first_question, 3))

            def first_commit() -> int:
                with Ontology(storage_uri=uri, config=config, entity_types=[Customer]) as fresh:
                    with fresh.engine.objects.counting() as counted:
                        commit(fresh.session())
                    return counted.total

            table.add("first commit of a process", depth, timed(first_commit, 3))
            requests.add("requests of the first commit of a process", depth, [float(first_commit())])
            table.add("commit", depth, timed(commit, 7))
    yield from table.growths()
    yield from requests.growths()


def commits_kept(folder: Path, depths: Sequence[int]) -> Iterator[Growth]:
    """A store in files with the settings of everybody, which merges its small files itself.

    The depths lie half-way between two merges: just after one, everything would look better than it mostly is.
    """
    table, files, written = Table("commits"), Table("commits", takes="files"), Table("commits", takes="kB")
    row = next(iter(values(1)))
    place = folder / "kept"
    config = OntologiaConfig(cache_directory=str(folder / "cache"))
    initialize_storage(storage_uri=place.as_uri(), config=config)
    done = 0
    for depth in depths:
        with Ontology(storage_uri=place.as_uri(), config=config, entity_types=[Customer]) as onto:
            for step in range(done, depth):
                with onto.session() as session:
                    session.ensure(Customer(**row | {"id": f"c{step * 7919 % 1_000_003:07d}", "balance": float(step)}))
        done = depth

        def first(ask: Callable[[Any], object]) -> None:
            with Ontology(storage_uri=place.as_uri(), config=config, entity_types=[Customer]) as fresh:
                ask(fresh.query().entities(Customer))

        table.add("merged by itself: first count of a process", depth, timed(lambda: first(lambda q: q.count()), 3))
        table.add(
            "merged by itself: first key lookup of a process",
            depth,
            timed(lambda: first(lambda q: q.where(Customer.id == "c0007919").first()), 3),
        )
        index = place / "meta/indices/entities/Customer.json"
        files.add("merged by itself: files", depth, [float(index.read_text().count('"path"'))])
        last = next(place.glob(f"commits/{depth}-*"))
        control = (index, place / "meta/head.json", *(file for file in last.rglob("*") if file.is_file()))
        size = sum(file.stat().st_size for file in control)
        written.add("merged by itself: written by one commit", depth, [size / 1_000])
    for found in (table, files, written):
        yield from found.growths()


# --- memory ---


def memory_files(folder: Path, sizes: Sequence[int]) -> Iterator[Growth]:
    """The most memory of a process that asks or commits once, with default settings, beside more and more rows."""
    table = Table("rows", takes="MiB")
    for size in sizes:
        for name, most in memory(size, folder).items():
            table.add(f"peak memory: {name}", size, [float(most)])
    yield from table.growths()


# --- types ---


def types_files(folder: Path, counts: Sequence[int]) -> Iterator[Growth]:
    """One row of one type, in stores that have more and more types: the protocol brings every index up to date."""
    table = Table("types", {"commit of one row": 1.0, "count": 0.25})
    for number in counts:
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


def suites(folder: Path, *, quick: bool) -> Iterator[tuple[str, Callable[[], Iterator[Growth]]]]:
    """Every growth table, small or whole."""
    rows = (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000, 10_000_000)
    commits = (10, 100, 300) if quick else (10, 100, 1_000)
    kept = (50, 350, 950) if quick else (50, 350, 950, 9_950)
    types = (1, 10, 30) if quick else (1, 10, 100)
    yield "growth-rows-sqlite", lambda: rows_sqlite(folder, rows)
    yield "growth-rows-files", lambda: rows_files(folder, rows)
    yield "growth-memory", lambda: memory_files(folder, rows)
    yield "growth-commits", lambda: commits_files(folder, commits)
    yield "growth-commits-merged", lambda: commits_kept(folder, kept)
    yield "growth-types", lambda: types_files(folder, types)
