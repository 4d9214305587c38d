"""Frames beside delta-rs: commits, writers that race, bulk loads, filters, merges; and how costs grow."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from benchmarks.report import Case
from ontologia.apiary import Apiary, Frame
from ontologia.apiary.entries import AddCells, Cell, Checkpoint, Entry, RewriteCells, encode
from ontologia.apiary.ledger import CHECKPOINT_EVERY, Ledger
from ontologia.apiary.types import declare_schema
from ontologia.config import OntologiaConfig

MERGED = 10_000
WRITERS = 8
MERGERS = 4
EACH = 5
SCHEMA = {"id": "int64", "part": "string", "amount": "float64", "name": "string", "seen": "timestamp"}


def rows(count: int, first: int = 0, parts: int = 20) -> pa.Table:
    ids = np.arange(first, first + count)
    names = pa.array([f"customer-{n:05d}" for n in range(1000)]).take(pa.array(ids % 1000))
    return pa.table(
        {
            "id": ids,
            "part": pa.array([f"p{n:02d}" for n in range(parts)]).take(pa.array(ids % parts)),
            "amount": ids * 0.25,
            "name": names,
            "seen": pa.array(ids * 1_000_000, pa.timestamp("us")),
        }
    )


def new_frame(stack: ExitStack, folder: Path, partitioned: bool = False, synced: bool = True) -> Frame:
    config = OntologiaConfig(sync_files=synced)
    ap = stack.enter_context(Apiary("bench", str(folder / uuid.uuid4().hex), config=config))
    ap.create_hive("h")
    ap.create_box("h", "b")
    return ap.create_frame("h", "b", "f", SCHEMA, ["part"] if partitioned else None)


def commits(folder: Path) -> Iterator[Case]:
    """One row a commit into a frame, alone and with eight writers who each have their own view of it.

    delta-rs does not wait for the disk, so each case is measured twice: as frames are by default, which survive a power
    failure, and with the promise of delta-rs.
    """
    one = rows(1)
    for synced in (True, False):
        how = "frame.write" if synced else "frame.write, not synced"
        with ExitStack() as stack:
            frame, table = new_frame(stack, folder, synced=synced), str(folder / uuid.uuid4().hex)
            write_deltalake(table, one)
            yield Case(
                "append 1 row (at least 3x)", how, "delta-rs", 1 / 3,
                lambda frame=frame: frame.write(one),
                lambda table=table: write_deltalake(table, one, mode="append"), repeat=10,
            )  # fmt: skip
            root, config = frame._node.location.uri, frame._node.location.settings
            nodes = [stack.enter_context(Apiary("bench", root, config=config)).frame("h.b.f") for _ in range(WRITERS)]

            def ours(nodes: list[Frame] = nodes) -> None:
                with ThreadPoolExecutor(WRITERS) as pool:
                    list(pool.map(lambda node: [node.write(one) for _ in range(EACH)], nodes))

            def theirs(table: str = table) -> None:
                with ThreadPoolExecutor(WRITERS) as pool:
                    list(pool.map(lambda _: [_append_until_it_lands(table, one) for _ in range(EACH)], range(WRITERS)))

            yield Case(f"{WRITERS} writers x {EACH} rows (at least 2x)", how, "delta-rs", 0.5, ours, theirs, runs=3)


def _append_until_it_lands(table: str, one: pa.Table) -> None:
    while True:
        try:
            write_deltalake(table, one, mode="append")
            return
        except CommitFailedError:
            continue


def bulk(folder: Path, appended: int, merged_into: int) -> Iterator[Case]:
    """A large append to a frame in twenty partitions, and merges, alone and by several writers."""
    with ExitStack() as stack:
        table = rows(appended)
        yield Case(
            f"append {appended:,} rows in 20 partitions", "frame.write", "delta-rs", 1.1,
            lambda frame: frame.write(table),
            lambda place: write_deltalake(place, table, partition_by=["part"]),
            lambda: [new_frame(stack, folder, partitioned=True)],
            lambda: [str(folder / uuid.uuid4().hex)],
            runs=2,
        )  # fmt: skip
        base = rows(merged_into)
        source = rows(MERGED, first=merged_into - MERGED // 2)

        def filled() -> list[Frame]:
            frame = new_frame(stack, folder)
            frame.write(base)
            return [frame]

        def filled_delta() -> list[DeltaTable]:
            place = str(folder / uuid.uuid4().hex)
            write_deltalake(place, base)
            return [DeltaTable(place)]

        yield Case(
            f"merge {MERGED:,} into {merged_into:,} rows", "frame.merge", "delta-rs", 1.0,
            lambda frame: frame.merge(source, on=["id"]), lambda table: _merge_delta(table, source),
            filled, filled_delta, runs=3,
        )  # fmt: skip
        parts = [source.slice(number * 100, 100) for number in range(MERGERS)]

        def by_writers(frame: Frame) -> None:
            root, config = frame._node.location.uri, frame._node.location.settings
            with ExitStack() as nodes, ThreadPoolExecutor(MERGERS) as pool:
                views = [nodes.enter_context(Apiary("bench", root, config=config)).frame("h.b.f") for _ in parts]
                list(pool.map(lambda view, part: view.merge(part, on=["id"]), views, parts))

        def by_writers_of_delta(table: DeltaTable) -> None:
            with ThreadPoolExecutor(MERGERS) as pool:
                list(pool.map(lambda part: _merge_until_it_lands(table.table_uri, part), parts))

        yield Case(
            f"{MERGERS} writers merge 100 rows each into {merged_into:,}", "frame.merge", "delta-rs, tried again", None,
            by_writers, by_writers_of_delta, filled, filled_delta, runs=3,
        )  # fmt: skip


def _merge_delta(table: DeltaTable, source: pa.Table) -> None:
    merger = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


def _merge_until_it_lands(uri: str, source: pa.Table) -> None:
    while True:
        try:
            return _merge_delta(DeltaTable(uri), source)
        except CommitFailedError:
            continue


def filters(folder: Path, cells: int) -> Iterator[Case]:
    """Point and range filters over many cells of a frame, with DuckDB on both."""
    with ExitStack() as stack:
        frame, place = new_frame(stack, folder), str(folder / "delta-cells")
        ap = stack.enter_context(Apiary("bench", frame._node.location.uri))
        for number in range(cells):
            part = rows(2_000, first=number * 2_000)
            frame.write(part)
            write_deltalake(place, part, mode="append")

        def theirs(condition: str) -> object:
            dataset = DeltaTable(place).to_pyarrow_dataset()
            with duckdb.connect() as connection:
                connection.register("t", dataset)
                return connection.execute(f"SELECT * FROM t WHERE {condition}").to_arrow_table()

        first = cells * 1_000
        point, span = f"id = {first}", f"id BETWEEN {first} AND {first + 5000}"
        for what, condition in (("point", point), ("range", span)):
            yield Case(
                f"{what} filter over {cells} cells", "SQL on a frame", "delta-rs and DuckDB", 1.0,
                lambda condition=condition: ap.query(f"SELECT * FROM h.b.f WHERE {condition}"),
                lambda condition=condition: theirs(condition),
            )  # fmt: skip


def growth(folder: Path, versions: int, cells: int) -> Iterator[Case]:
    """Opening, committing to and asking a frame as history and cells grow, each beside the smallest of its kind."""
    with ExitStack() as stack:
        by_versions = {count: grown(stack, folder, versions=count, cells=1) for count in (10, 200, 1_000, versions)}
        by_cells = {count: grown(stack, folder, versions=2, cells=count) for count in (10, 1_000, cells)}
        yield Case(
            f"open at {versions:,} versions", f"{versions:,} versions", "200 versions", 1.5,
            opening(by_versions[versions]), opening(by_versions[200]), repeat=25,
        )  # fmt: skip
        one = rows(1)
        for kind, grown_by in (("versions", by_versions), ("cells", by_cells)):
            least, larger = grown_by[10], {count: frame for count, frame in grown_by.items() if count >= 1_000}
            # Opening and pruning look at every cell, so they may grow with the cells, and with nothing else.
            limits = {count: 2.0 if kind == "versions" else count / 10 for count in larger}
            for count, ours in larger.items():
                sides = (f"{count:,} {kind}", f"10 {kind}")
                repeat = 25 if count < cells else 1
                yield Case(f"open at {sides[0]}", *sides, limits[count], opening(ours), opening(least), repeat=repeat)
            for count, ours in larger.items():
                sides = (f"{count:,} {kind}", f"10 {kind}")
                yield Case(
                    f"point filter at {sides[0]}", *sides, limits[count],
                    lambda ours=ours: ours.read(filter={"id": -5}), lambda least=least: least.read(filter={"id": -5}),
                    repeat=5,
                )  # fmt: skip
                yield Case(
                    f"append at {sides[0]}", *sides, 2.0,
                    lambda ours=ours: ours.write(one), lambda least=least: least.write(one), repeat=10,
                )  # fmt: skip


def opening(frame: Frame):
    node = frame._node
    return lambda: Ledger(node.objects.under(frame.name.folder), frame.name, "bench").snapshot()


def grown(stack: ExitStack, folder: Path, *, versions: int, cells: int) -> Frame:
    """A frame with a history that is written down, not lived through: its first cell is real, the others are claims."""
    frame = new_frame(stack, folder)
    frame.write(rows(1))
    node = frame._node
    place = Path(node.objects.local_path(f"{frame.name.folder}/_ledger/x")).parent
    entry = Entry.from_json(json.loads((place / "000001.json").read_text()))
    (real,) = entry.action.cells
    numbers = itertools.count()

    def claimed() -> Cell:
        return replace(real, id=f"cell_{uuid.UUID(int=next(numbers))}", stats=_elsewhere(real, next(numbers)))

    for version in range(2, versions + 1):
        last = version == versions
        many = tuple(claimed() for _ in range(cells - 1)) if last else ()
        action = AddCells(many) if last else RewriteCells((), ())
        (place / f"{version:06d}.json").write_bytes(encode(replace(entry, version=version, action=action).to_json()))
        if version % CHECKPOINT_EVERY == 0 and not last:
            checkpoint = Checkpoint(version, declare_schema(SCHEMA), (), (real,)).to_json()
            (place / "_checkpoint").mkdir(exist_ok=True)
            (place / "_checkpoint" / f"checkpoint_{version:06d}.json").write_bytes(encode(checkpoint))
    found = stack.enter_context(Apiary("bench", node.location.uri)).frame("h.b.f")
    found._node.ledger(found.name).write_checkpoint()
    return found


def _elsewhere(cell: Cell, number: int) -> dict[str, dict[str, object]]:
    bounds = {"min": 1000 + number, "max": 1000 + number, "null_count": 0, "distinct_count": None}
    return {**{name: dict(said) for name, said in cell.stats.items()}, "id": bounds}
