"""Graphs beside bare pylance on a local disk: commits, depth of history, branches, merges, reads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from benchmarks.report import Case
from ontologia import Entity, Field
from ontologia.omnigraph import Omnigraph

UPSERTS = 1_000


class Item(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    size: Field[int] = 0


def items(numbers: object, step: int) -> pa.Table:
    numbers = np.asarray(numbers)
    ids = np.char.add("k", np.char.zfill(numbers.astype(str), 8))
    return pa.table(
        {"id": pa.array(ids), "name": pa.array([f"item {step}"] * len(numbers)), "size": pa.array(numbers + step)}
    )


def upsert(dataset: lance.LanceDataset, rows: pa.Table) -> None:
    builder = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    builder.conflict_retries(0).use_index(False).execute(rows)


def million(folder: Path, rows: int) -> Iterator[Case]:
    """A type of many rows in a graph, beside the same rows as one dataset of bare pylance."""
    table = items(range(rows), 0)
    graph = Omnigraph.init(folder / "graph", [Item])
    graph.load(table, "append", type=Item)
    bare = lance.write_dataset(table, folder / "bare", enable_stable_row_ids=True, data_storage_version="2.2")
    steps, chance = itertools.count(1), np.random.default_rng(0)

    def some() -> list[pa.Table]:
        return [items(chance.choice(rows, UPSERTS, replace=False), next(steps))]

    def commit(table: pa.Table) -> None:
        with graph.transaction() as tx:
            tx.upsert_arrow(Item, table)

    yield Case(
        f"commit {UPSERTS:,} upserts into {rows:,}", "one graph commit", "merge_insert", 2,
        commit, lambda table: upsert(bare, table), some, some, runs=9,
    )  # fmt: skip

    yield from reading(graph, bare, rows)
    yield merging(graph, folder, chance, rows)


def reading(graph: Omnigraph, bare: lance.LanceDataset, rows: int) -> Iterator[Case]:
    graph.optimize()
    bare.optimize.compact_files()
    bare.create_scalar_index("id", "BTREE")
    yield Case(
        f"read all of {rows:,} rows", "snapshot().to_arrow()", "scan", 1.2,
        lambda: graph.snapshot().to_arrow(Item), lambda: lance.dataset(bare.uri).to_table(), runs=7,
    )  # fmt: skip
    keys = itertools.count()

    def key() -> list[str]:
        return [f"k{next(keys) * 7919 % rows:08d}"]

    snapshot = graph.snapshot()
    yield Case(
        "look a key up by its index", "snapshot().get()", "scan with a filter", 2,
        lambda name: snapshot.get(Item, name),
        lambda name: bare.scanner(filter=f"id = '{name}'").to_table(), key, key, runs=25,
    )  # fmt: skip
    yield Case(
        "the same through the query builder", "query().first()", "scan with a filter", 2,
        lambda name: graph.query().entities(Item).where(Item.id == name).first(),
        lambda name: bare.scanner(filter=f"id = '{name}'").to_table(), key, key, runs=25,
    )  # fmt: skip


def merging(graph: Omnigraph, folder: Path, chance: np.random.Generator, rows: int) -> Case:
    """Each side changed one row in a hundred, none of them the same. The peer writes the source's rows."""
    names, share = itertools.count(), rows // 100

    def diverged() -> list[str]:
        number = next(names)
        name = f"b{number}"
        graph.create_branch(name)
        numbers = chance.permutation(rows)
        for branch, part in (("main", numbers[:share]), (name, numbers[share : 2 * share])):
            with graph.transaction(branch) as tx:
                tx.upsert_arrow(Item, items(part, number + 100))
        return [name]

    plain = lance.write_dataset(items(range(rows), 0), folder / "plain", enable_stable_row_ids=True)
    return Case(
        f"merge a branch, {share:,} of {rows:,} rows changed on each side", "merge()", "merge_insert of those rows", 3,
        lambda name: graph.merge(name), lambda table: upsert(plain, table),
        diverged, lambda: [items(chance.choice(rows, share, replace=False), 5)], runs=3,
    )  # fmt: skip


def depth(folder: Path, commits: int) -> Iterator[Case]:
    """A commit and a branch of a graph after many commits, beside those after ten."""
    graphs = {}
    for number in (10, commits):
        graph = graphs[number] = Omnigraph.init(folder / str(number), [Item])
        graph.load(items(range(1000), 0), "append", type=Item)
        for step in range(number):
            small(graph, step)
        graph.optimize()
    deep, shallow, numbers = graphs[commits], graphs[10], itertools.count(5000)
    yield Case(
        f"commit at depth {commits:,}", "one row", "one row at depth 10", 1.3,
        lambda: small(deep, next(numbers)), lambda: small(shallow, next(numbers)), runs=15,
    )  # fmt: skip
    yield Case(
        f"create a branch at depth {commits:,}", "create_branch()", "create_branch() at depth 10", None,
        lambda: deep.create_branch(f"b{next(numbers)}"), lambda: shallow.create_branch(f"b{next(numbers)}"), runs=9,
    )  # fmt: skip


def small(graph: Omnigraph, number: int) -> None:
    with graph.transaction() as tx:
        tx.upsert_arrow(Item, items([number % 1000], number))
