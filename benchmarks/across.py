"""Reading across three schema versions beside reading the same rows where they are all of one version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.report import Case
from ontologia import Entity, Field, OntologiaConfig, Ontology, initialize_storage
from ontologia.query import sum as sum_of

ROWS = 200_000
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
    config = OntologiaConfig(max_batch_size=4 * ROWS, auto_compact="never")
    if engine == "sqlite/v2":
        return Ontology(str(folder / "onto.db"), config, entity_types=[cls])
    uri = (folder / "store").as_uri()
    if not (folder / "store").exists():
        initialize_storage(storage_uri=uri)
    return Ontology(storage_uri=uri, config=config, entity_types=[cls])


def _rows() -> pa.Table:
    numbers = pa.array(range(ROWS), pa.int64())
    keys = pc.binary_join_element_wise("r", pc.utf8_lpad(numbers.cast(pa.string()), 9, "0"), "")
    sites = pc.binary_join_element_wise("site", pc.cast(pc.divide(numbers, 100), pa.string()), " ")
    return pa.table({"entity_key": keys, "id": keys, "place": sites, "value": numbers})


def _append(onto: Ontology, cls: type[Any], rows: pa.Table) -> None:
    schema = cls.__declaration__.schema
    with onto.engine.write() as transaction:
        layout = transaction.catalog.layouts.get(schema.ref) or transaction.activate(schema)
        transaction.append(layout, rows)
        transaction.publish({})


def _migrated(folder: Path, engine: str) -> Ontology:
    folder.mkdir()
    with _store(folder, engine, First) as onto:
        _append(onto, First, _rows())
    with _store(folder, engine, Second) as onto:
        onto.migrate(dry_run=False, force=True)
    onto = _store(folder, engine, Third)
    onto.migrate(dry_run=False, force=True)
    return onto


def _of_one_version(folder: Path, engine: str) -> Ontology:
    folder.mkdir()
    onto = _store(folder, engine, Third)
    rows = _rows().rename_columns(["entity_key", "id", "site", "value"])
    rows = rows.append_column("unit", pa.array(["K"] * ROWS)).append_column("checked", pa.array([False] * ROWS))
    for _ in range(3):
        _append(onto, Third, rows)
    return onto


def across(folder: Path, engine: str) -> Iterator[Case]:
    """Three versions of every row, of one schema version each, and of one for all."""
    migrated, plain = _migrated(folder / "migrated", engine), _of_one_version(folder / "plain", engine)
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
            f"{engine}: {name}, {ROWS:,} rows",
            "across three schema versions",
            "one version of the same rows",
            LIMIT,
            partial(ask, ours),
            partial(ask, peer),
            repeat=repeat,
        )
    migrated.close()
    plain.close()


SUITES: dict[str, Callable[[Path], Iterator[Case]]] = {
    "across-versions": partial(across, engine="sqlite/v2"),
    "across-versions-objects": partial(across, engine="s3/v2"),
}
