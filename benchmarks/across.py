"""Reading across three schema versions beside reading the same rows where they are all of one version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.customers import append
from benchmarks.report import Case
from ontologia import Entity, Field, OntologiaConfig, Ontology, initialize_storage
from ontologia.query import sum as sum_of

LIMIT = 1.5


class First(Entity, name="Reading"):
    """Before anything changed."""

    id: Field[str] = Field(primary_key=True)
    place: Field[str]
    value: Field[int]


class Second(Entity, name="Reading"):
    """A field was renamed, one added."""

    id: Field[str] = Field(primary_key=True)
    site: Field[str] = Field(renamed_from="place")
    value: Field[int]
    unit: Field[str] = "K"


class Third(Entity, name="Reading"):
    """A field was widened, one added."""

    id: Field[str] = Field(primary_key=True)
    site: Field[str]
    value: Field[int | None]
    unit: Field[str] = "K"
    checked: Field[bool] = False


def _store(folder: Path, engine: str, cls: type[Any]) -> Ontology:
    config = OntologiaConfig(max_batch_size=10**9, auto_compact="never")
    if engine == "SQLite":
        return Ontology(str(folder / "onto.db"), config, entity_types=[cls])
    uri = (folder / "store").as_uri()
    if not (folder / "store").exists():
        initialize_storage(storage_uri=uri)
    return Ontology(storage_uri=uri, config=config, entity_types=[cls])


def _rows(count: int) -> pa.Table:
    numbers = pa.array(range(count), pa.int64())
    keys = pc.binary_join_element_wise("r", pc.utf8_lpad(numbers.cast(pa.string()), 9, "0"), "")
    sites = pc.binary_join_element_wise("site", pc.cast(pc.divide(numbers, 100), pa.string()), " ")
    return pa.table({"entity_key": keys, "id": keys, "place": sites, "value": numbers})


def _migrated(folder: Path, engine: str, rows: pa.Table) -> Ontology:
    folder.mkdir()
    with _store(folder, engine, First) as onto:
        append(onto, rows, First)
    with _store(folder, engine, Second) as onto:
        onto.migrate(dry_run=False, force=True)
    onto = _store(folder, engine, Third)
    onto.migrate(dry_run=False, force=True)
    return onto


def _of_one_version(folder: Path, engine: str, rows: pa.Table) -> Ontology:
    folder.mkdir()
    onto = _store(folder, engine, Third)
    rows = rows.rename_columns(["entity_key", "id", "site", "value"])
    rows = rows.append_column("unit", pa.repeat("K", len(rows))).append_column("checked", pa.repeat(False, len(rows)))
    for _ in range(3):
        append(onto, rows, Third)
    return onto


def across(folder: Path, rows: int) -> Iterator[Case]:
    """Three versions of every row, each of another schema version, beside three of one and the same."""
    for engine in ("SQLite", "files"):
        (folder / engine).mkdir()
        yield from _asked(folder / engine, engine, rows)


def _asked(folder: Path, engine: str, count: int) -> Iterator[Case]:
    rows = _rows(count)
    migrated, plain = _migrated(folder / "migrated", engine, rows), _of_one_version(folder / "plain", engine, rows)
    ours, peer = (onto.query().entities(Third) for onto in (migrated, plain))
    ours = ours.across_versions()
    questions: dict[str, tuple[Callable[[Any], Any], int]] = {
        "latest": (lambda query: query.to_arrow(), 1),
        "the state before both migrations": (lambda query: query.as_of(1).to_arrow(), 1),
        "all of history": (lambda query: query.with_history().to_arrow(), 1),
        "a sum over history": (lambda query: query.with_history().sum(Third.value), 1),
        "the history of one row": (lambda query: query.with_history().where(Third.id == "r000000042").to_arrow(), 10),
        "numbers by group": (lambda query: query.as_of(1).group_by(Third.unit).agg(n=sum_of(Third.value)), 1),
    }
    for name, (ask, repeat) in questions.items():
        yield Case(
            f"{engine}: {name}, {count:,} rows",
            "across three schema versions",
            "one version of the same rows",
            LIMIT,
            partial(ask, ours),
            partial(ask, peer),
            repeat=repeat,
        )
    migrated.close()
    plain.close()
