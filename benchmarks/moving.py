"""A store copied with its history, also into a bucket, beside loading the same rows commit by commit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.customers import Customer, values
from benchmarks.report import Case
from ontologia import OntologiaConfig, Session, copy_history, initialize_storage
from ontologia.testing.s3server import s3_server

ROWS_EACH = 20


def copies(folder: Path, commits: int) -> Iterator[Case]:
    """A store copied with its history, every commit compared, beside as many commits of a session."""
    config = OntologiaConfig(cache_directory=str(folder / "cache"))
    names = itertools.count()

    def place(kind: str) -> str:
        name = f"{kind}-{next(names)}"
        if kind == "bucket":
            return server.uri(f"ontologia-copies/{name}")
        return str(folder / f"{name}.db") if kind == "SQLite file" else (folder / name).as_uri()

    def load(kind: str, commits: int) -> str:
        target = place(kind)
        initialize_storage(target, config=config)
        with Session(target, entity_types=[Customer], config=config) as session:
            for number in range(commits):
                session.ensure(Customer(**fields) for fields in values(ROWS_EACH, number))
                session.commit()
        return target

    with s3_server() as server:
        server.create_bucket("ontologia-copies")
        for kind, number in (("SQLite file", commits), ("directory", commits), ("bucket", commits // 5)):
            source = load("SQLite file" if kind == "bucket" else kind, number)
            yield Case(
                f"copy with history, {number:,} commits of {ROWS_EACH} rows, into a {kind}",
                "copy_history",
                "a session, commit by commit",
                2.0,
                partial(_copy, source, config),
                partial(load, kind, number),
                fresh_ours=lambda kind=kind: (place(kind),),  # type: ignore[misc]
                runs=2,
            )


def _copy(source: str, config: OntologiaConfig, target: str) -> None:
    copy_history(source, target, config=config)
