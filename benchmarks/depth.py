"""Questions and commits of a store in files after more and more commits of one row: merged by itself, or never."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.customers import Customer, values
from benchmarks.growth import Growth, Table, timed
from ontologia import OntologiaConfig, Ontology, copy_history
from ontologia.engines.initializing import initialize_storage

ROW = next(iter(values(1)))
SOUGHT = "c0007919"
REQUESTS = "requests of the first commit of a process"
MOST_REQUESTS = 12


def customer(step: int) -> Customer:
    return Customer(**ROW | {"id": f"c{step * 7919 % 1_000_003:07d}", "balance": float(step), "age": step % 90})


def never_merged(folder: Path, sizes: Iterable[int]) -> Iterator[Growth]:
    """A store that nobody compacts, with `auto_compact="never"`.

    It is copied from a SQLite file of as many commits: every commit of its own would write the whole index, which alone
    takes minutes at ten thousand. The first piece of work of a process reads an index with an entry per file.
    """
    table = Table(
        "commits",
        {
            "first filter of a process": 0.5,
            "first count of a process": 0.5,
            "first key lookup of a process": None,
            "first commit of a process": 0.5,
            "commit": 0.5,
        },
        prefix="never merged: ",
    )
    requests = Table("commits", takes="requests", prefix="never merged: ", most={REQUESTS: MOST_REQUESTS})
    config = OntologiaConfig(auto_compact="never", cache_directory=str(folder / "cache"))
    source, done = str(folder / "source.db"), 0
    for depth in sizes:
        _commit_one_by_one(source, done, depth)
        done = depth
        uri = (folder / f"never-{depth}").as_uri()
        copy_history(source, uri, config=config)
        opened = _Opened(uri, config)
        with opened.fresh() as onto:
            query = onto.query().entities(Customer)
            table.add("count", depth, timed(query.count))
            table.add("filter", depth, timed(lambda q=query: q.where(Customer.age == 33).to_arrow()))
            table.add("key lookup", depth, timed(lambda q=query: q.where(Customer.id == SOUGHT).first()))
        few = 3 if depth <= 1_000 else 1
        for name, ask in QUESTIONS.items():
            table.add(f"first {name} of a process", depth, timed(lambda a=ask, o=opened: o.first(a), few))
        table.add("first commit of a process", depth, timed(opened.commit, few))
        requests.add(REQUESTS, depth, [float(opened.commit())])
        with opened.fresh() as onto:
            table.add("commit", depth, timed(lambda o=onto, p=opened: p.commit_to(o), 7))
    yield from table.growths()
    yield from requests.growths()


QUESTIONS: dict[str, Callable[[Any], object]] = {
    "count": lambda query: query.count(),
    "key lookup": lambda query: query.where(Customer.id == SOUGHT).first(),
    "filter": lambda query: query.where(Customer.age == 33).count(),
}


def _commit_one_by_one(path: str, done: int, depth: int) -> None:
    with Ontology(path, entity_types=[Customer]) as onto:
        session = onto.session()
        for step in range(done, depth):
            session.ensure(customer(step))
            session.commit()


class _Opened:
    """A store, opened again for every piece of work, as a new process does."""

    def __init__(self, uri: str, config: OntologiaConfig) -> None:
        self._uri = uri
        self._config = config
        self._steps = itertools.count(10**6)

    def fresh(self) -> Ontology:
        return Ontology(storage_uri=self._uri, config=self._config, entity_types=[Customer])

    def first(self, ask: Callable[[Any], object]) -> None:
        with self.fresh() as onto:
            ask(onto.query().entities(Customer))

    def commit(self) -> int:
        """A commit; how many requests it took."""
        with self.fresh() as onto:
            return self.commit_to(onto)

    def commit_to(self, onto: Ontology) -> int:
        with onto.engine.objects.counting() as counted, onto.session() as session:
            session.ensure(customer(next(self._steps)))
        return counted.total


def merged_by_itself(folder: Path, sizes: Iterable[int]) -> Iterator[Growth]:
    """A store with the settings of everybody, which merges its small files itself.

    The depths lie half-way between two merges: just after one, everything would look better than it mostly is.
    """
    prefix = "merged by itself: "
    table = Table("commits", prefix=prefix)
    requests = Table("commits", takes="requests", prefix=prefix, most={REQUESTS: MOST_REQUESTS})
    files, written = Table("commits", takes="files", prefix=prefix), Table("commits", takes="kB", prefix=prefix)
    place = folder / "merged"
    config = OntologiaConfig(cache_directory=str(folder / "cache"))
    initialize_storage(storage_uri=place.as_uri(), config=config)
    opened, done = _Opened(place.as_uri(), config), 0
    for depth in sizes:
        with opened.fresh() as onto:
            for step in range(done, depth):
                with onto.session() as session:
                    session.ensure(customer(step))
        index = place / "meta/indices/entities/Customer.json"
        files.add("files", depth, [float(index.read_text().count('"path"'))])
        last = next(place.glob(f"commits/{depth}-*"))
        control = (index, place / "meta/head.json", *(file for file in last.rglob("*") if file.is_file()))
        written.add("written by one commit", depth, [sum(file.stat().st_size for file in control) / 1_000])
        with opened.fresh() as onto:
            query = onto.query().entities(Customer)
            for name, ask in QUESTIONS.items():
                table.add(name, depth, timed(lambda a=ask, q=query: a(q)))
        for name, ask in QUESTIONS.items():
            table.add(f"first {name} of a process", depth, timed(lambda a=ask, o=opened: o.first(a), 3))
        requests.add(REQUESTS, depth, [float(opened.commit())])
        done = depth + 1
    for found in (table, requests, files, written):
        yield from found.growths()
