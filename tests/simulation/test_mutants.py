"""Deliberate faults in the protocols: the simulator finds each of them within so many seeds.

A plan here has only operations that can meet the fault, so that it is met soon.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ontologia.apiary import ledger, rewriting, vacuum, writing
from ontologia.engines.parquet.care import vacuum as bucket_vacuum
from ontologia.engines.parquet.log import coverage, log, swapping
from ontologia.engines.parquet.read import type_files
from ontologia.objects import Committed, conditional, utc_now
from ontologia.testing.simulation.frames import FramesWorld
from ontologia.testing.simulation.runs import Operation, Plan, World, run
from ontologia.testing.simulation.scheduler import Violation
from ontologia.testing.simulation.types import TypesWorld

pytestmark = pytest.mark.thorough

WRITE = ("write", ((1, 1.0, "x"), (2, 2.0, "x")))
FOREIGN = ("foreign", ((3, 1.0, "x"), (4, 2.0, "x")))
FRAME = {"pauses": "none", "partitioned": False, "checkpoint_every": 2}
BUCKET = {"pauses": "none", "version": "v2", "compact_after": 2}
Actors = tuple[tuple[tuple[Operation, ...], ...], ...]


def commits(first: int, count: int = 4) -> tuple[Operation, ...]:
    return tuple(("commit", ((f"k{number % 6}", first + number),)) for number in range(count))


def found_within(
    seeds: int, world: type[World], machines: Actors, options: dict[str, Any], faults: dict[str, float]
) -> bool:
    logging.disable(logging.CRITICAL)
    try:
        for seed in range(seeds):
            outcome = run(world, Plan(world.name, seed, machines, faults, options))
            if isinstance(outcome.failure, Violation):
                return True
            assert outcome.failure is None, str(outcome)
        return False
    finally:
        logging.disable(logging.NOTSET)


def put_without_condition(objects: Any, key: str, body: Any, *, encode: Any = None, **ignored: Any) -> Any:
    written = {**body, "writer_id": "nobody"}
    return Committed(objects.put(key, (encode or conditional.compact)(written)), written)


def test_ledger_entries_put_without_a_condition_are_found(monkeypatch):
    monkeypatch.setattr(ledger, "conditional_put", put_without_condition)
    assert found_within(10, FramesWorld, (((WRITE,) * 3,), ((WRITE,) * 3,)), FRAME, {})


def test_a_rewrite_that_does_not_look_for_newer_versions_is_found(monkeypatch):
    monkeypatch.setattr(rewriting.Rewrite, "check", lambda self, state: None)
    machines = (((WRITE, ("compact",), WRITE, ("compact",)),), ((WRITE, ("delete", 2, 1, 0.0), ("compact",)),))
    assert found_within(20, FramesWorld, machines, FRAME, {})


def test_a_vacuum_that_looks_for_names_after_it_decided_is_found(monkeypatch):
    retain = vacuum.retain

    def later(node: Any, name: Any, *how: Any) -> Any:
        kept, here = retain(node, name, *how), node.ledger(name)
        return replace(kept, named=vacuum._named(here, 1, here.snapshot().version))

    monkeypatch.setattr(vacuum, "retain", later)
    machines = (((WRITE,) * 6, (("vacuum", 0, 1),) * 6),)
    assert found_within(60, FramesWorld, machines, FRAME, {"stall": 0.05})


def test_a_vacuum_that_spares_no_young_files_is_found(monkeypatch):
    retain = vacuum.retain

    def nothing_young(node: Any, name: Any, *how: Any) -> Any:
        return replace(retain(node, name, *how), unnamed_until=utc_now() + timedelta(days=1))

    monkeypatch.setattr(vacuum, "retain", nothing_young)
    machines = (((WRITE,) * 6, (("vacuum", 0, 1),) * 6),)
    assert found_within(30, FramesWorld, machines, FRAME, {})


def test_a_checkpoint_that_takes_its_commit_back_is_found(monkeypatch):
    def settle(self: Any, state: Any, entry: Any) -> None:
        state.apply(entry)
        self._checkpoint_if_due(state)

    def run_out_of_memory(self: Any, state: Any) -> None:
        raise MemoryError("while the checkpoint is encoded")

    monkeypatch.setattr(ledger.Ledger, "_settle", settle)
    monkeypatch.setattr(ledger.Ledger, "_put_checkpoint", run_out_of_memory)
    assert found_within(5, FramesWorld, (((WRITE, WRITE),),), FRAME, {})


def test_cells_removed_while_their_commit_is_unknown_are_found(monkeypatch):
    monkeypatch.setattr(writing, "CommitOutcomeUnknownError", KeyError)
    faults = {"lose_answer": 0.2, "lose_request": 0.1}
    assert found_within(60, FramesWorld, (((WRITE,) * 5,), ((WRITE,) * 5,)), FRAME, faults)


def test_a_lost_answer_taken_for_a_refusal_is_found(monkeypatch):
    judge = conditional._Put._judge

    def forgetful(self: Any, found: Any) -> Any:
        self.writer_id = "nobody"
        return judge(self, found)

    monkeypatch.setattr(conditional._Put, "_judge", forgetful)
    assert found_within(30, FramesWorld, (((WRITE,) * 5,),), FRAME, {"lose_answer": 0.1})


def test_a_head_swapped_without_a_condition_is_found(monkeypatch):
    monkeypatch.setattr(swapping, "conditional_put", put_without_condition)
    faults = {"stall": 0.1}
    assert found_within(60, TypesWorld, ((commits(1),), (commits(10),), (commits(20),)), BUCKET, faults)


def test_an_index_trusted_over_the_head_is_found(monkeypatch):
    cover = coverage.cover

    def trusting(where: Any, head: Any, ref: Any, index: Any) -> Any:
        found = cover(where, head, ref, index)
        entries = [entry for entry in found.entries if entry.max_commit_id <= index.max_indexed_commit]
        return replace(found, entries=entries)

    for module in (coverage, type_files, log):
        monkeypatch.setattr(module, "cover", trusting, raising=False)
    faults = {"lose_request": 0.05, "crash": 0.05}
    assert found_within(40, TypesWorld, ((commits(1),), (commits(10), (("query",),) * 4)), BUCKET, faults)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_vacuum_of_a_bucket_that_neither_waits_nor_fences_is_found(monkeypatch):
    monkeypatch.setattr(bucket_vacuum, "utc_now", lambda: utc_now() + timedelta(days=30))
    monkeypatch.setattr(bucket_vacuum, "_fence", lambda engine, path=None: engine.log.head().head)
    machines = ((commits(1),), (commits(10),), ((("vacuum", 60, False),) * 5,))
    assert found_within(200, TypesWorld, machines, BUCKET, {"stall": 0.1})


def test_a_vacuum_that_knows_no_snapshots_is_found(monkeypatch):
    monkeypatch.setattr(bucket_vacuum, "_find_named_files", lambda engine, head: set())
    machines = ((commits(1), (("compact",), ("vacuum", 60, False)) * 4),)
    assert found_within(40, TypesWorld, machines, {**BUCKET, "pauses": "hours"}, {})


@pytest.mark.parametrize("world", [FramesWorld, TypesWorld], ids=lambda world: world.name)
def test_without_a_fault_in_the_protocol_the_same_plans_are_fine(world):
    machines: Any = {
        "frames": (((WRITE,) * 4, (("vacuum", 0, 1),) * 4), ((FOREIGN, ("compact",), ("delete", 2, 1, 0.0)),)),
        "types": ((commits(1), (("compact",), ("vacuum", 60, True)) * 2), (commits(10), (("query",),) * 3)),
    }
    faults = {"lose_answer": 0.03, "stall": 0.05, "crash": 0.01}
    options = FRAME if world is FramesWorld else BUCKET
    assert not found_within(10, world, machines[world.name], options, faults)
