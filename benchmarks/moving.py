"""A store copied with its history, beside loading the same rows commit by commit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.customers import Customer, values
from benchmarks.report import Case
from ontologia import OntologiaConfig, Session, copy_history, initialize_storage

COMMITS, ROWS_EACH = 1_000, 20


def copies(folder: Path, commits: int) -> Iterator[Case]:
    """On each engine: its own copy, verified, beside as many commits of a session."""
    config = OntologiaConfig(cache_directory=str(folder / "cache"))
    names = itertools.count()

    def place(kind: str) -> str:
        name = folder / f"{kind}-{next(names)}"
        return f"{name}.db" if kind == "sqlite" else name.as_uri()

    def load(kind: str) -> str:
        target = place(kind)
        initialize_storage(target, config=config)
        with Session(target, entity_types=[Customer], config=config) as session:
            for number in range(commits):
                session.ensure(Customer(**fields) for fields in values(ROWS_EACH, number))
                session.commit()
        return target

    for kind in ("sqlite", "folder"):
        source = load(kind)
        yield Case(
            f"copy with history, {commits:,} commits of {ROWS_EACH} rows, {kind}",
            "copy_history, every commit compared",
            "a session, commit by commit",
            2.0,
            partial(_copy, source, config),
            partial(load, kind),
            fresh_ours=lambda kind=kind: (place(kind),),  # type: ignore[misc]
            runs=1,
        )


def _copy(source: str, config: OntologiaConfig, target: str) -> None:
    copy_history(source, target, config=config)


SUITES = {"copies": partial(copies, commits=COMMITS)}
