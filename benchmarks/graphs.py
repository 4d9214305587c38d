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

ROWS = 1_000_000
UPSERTS = 1_000
SHARE = ROWS // 100


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


def million(folder: Path) -> Iterator[Case]:
    """A type of a million rows, in a graph and as one dataset."""
    rows = items(range(ROWS), 0)
    graph = Omnigraph.init(folder / "graph", [Item])
    graph.load(rows, "append", type=Item)
    bare = lance.write_dataset(rows, folder / "bare", enable_stable_row_ids=True, data_storage_version="2.2")
    steps, chance = itertools.count(1), np.random.default_rng(0)

    def some() -> list[pa.Table]:
        return [items(chance.choice(ROWS, UPSERTS, replace=False), next(steps))]

    def commit(table: pa.Table) -> None:
        with graph.transaction() as tx:
            tx.upsert_arrow(Item, table)

    yield Case(
        f"commit {UPSERTS:,} upserts into {ROWS:,}", "one graph commit", "merge_insert", 2,
        commit, lambda table: upsert(bare, table), some, some, runs=9,
    )  # fmt: skip

    yield from reading(graph, bare)
    yield merging(graph, folder, chance)


def reading(graph: Omnigraph, bare: lance.LanceDataset) -> Iterator[Case]:
    graph.optimize()
    bare.optimize.compact_files()
    bare.create_scalar_index("id", "BTREE")
    yield Case(
        f"read all of {ROWS:,} rows", "snapshot().to_arrow()", "scan", 1.2,
        lambda: graph.snapshot().to_arrow(Item), lambda: lance.dataset(bare.uri).to_table(), runs=7,
    )  # fmt: skip
    keys = itertools.count()

    def key() -> list[str]:
        return [f"k{next(keys) * 7919 % ROWS:08d}"]

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


def merging(graph: Omnigraph, folder: Path, chance: np.random.Generator) -> Case:
    """Each side changed one row in a hundred, none of them the same. The peer writes the source's rows."""
    names = itertools.count()

    def diverged() -> list[str]:
        number = next(names)
        name = f"b{number}"
        graph.create_branch(name)
        numbers = chance.permutation(ROWS)
        for branch, part in (("main", numbers[:SHARE]), (name, numbers[SHARE : 2 * SHARE])):
            with graph.transaction(branch) as tx:
                tx.upsert_arrow(Item, items(part, number + 100))
        return [name]

    plain = lance.write_dataset(items(range(ROWS), 0), folder / "plain", enable_stable_row_ids=True)
    return Case(
        f"merge a branch, {SHARE:,} of {ROWS:,} rows changed on each side", "merge()", "merge_insert of those rows", 3,
        lambda name: graph.merge(name), lambda table: upsert(plain, table),
        diverged, lambda: [items(chance.choice(ROWS, SHARE, replace=False), 5)], runs=3,
    )  # fmt: skip


def depth(folder: Path) -> Iterator[Case]:
    """What a commit costs after a thousand others, beside one after ten; and what a branch costs there."""
    graphs = {}
    for commits in (10, 1000):
        graph = graphs[commits] = Omnigraph.init(folder / str(commits), [Item])
        graph.load(items(range(1000), 0), "append", type=Item)
        for number in range(commits):
            small(graph, number)
        graph.optimize()
    numbers = itertools.count(5000)
    yield Case(
        "commit at depth 1,000", "one row", "one row at depth 10", 1.3,
        lambda: small(graphs[1000], next(numbers)), lambda: small(graphs[10], next(numbers)), runs=15,
    )  # fmt: skip
    yield Case(
        "create a branch at depth 1,000", "create_branch()", "create_branch() at depth 10", None,
        lambda: graphs[1000].create_branch(f"b{next(numbers)}"),
        lambda: graphs[10].create_branch(f"b{next(numbers)}"), runs=9,
    )  # fmt: skip


def small(graph: Omnigraph, number: int) -> None:
    with graph.transaction() as tx:
        tx.upsert_arrow(Item, items([number % 1000], number))


SUITES = {"graphs": million, "graph-depth": depth}
