"""Rows, carried over from the version they are stored in to the one in code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ontologia.engines.catalog import TypeLayout
from ontologia.engines.transaction import Transaction
from ontologia.engines.upgrading import Failures, Journey, Leg, upgrade_rows
from ontologia.model.upgraders import Upgraders
from ontologia.runtime.migration.planning import Step

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 10_000


def rewrite_rows(transaction: Transaction, step: Step, upgraders: Upgraders) -> int:
    """Bring the latest state of a type into its new version. Returns how many rows there were."""
    old = list(transaction.scan(step.ref))
    layout = open_target(transaction, step)
    return carry_over(transaction, layout, step, old, upgraders)


def open_target(transaction: Transaction, step: Step) -> TypeLayout:
    """Where rows go: the new version of a type, or, where it has another name now, the type that takes its place."""
    if step.new_ref == step.ref:
        return transaction.activate(step.declaration.schema, step.target)
    layout = transaction.activate(step.declaration.schema)
    transaction.drop(step.ref, purge=False)
    return layout


def carry_over(
    transaction: Transaction,
    layout: TypeLayout,
    step: Step,
    stored: Sequence[tuple[int, pa.Table]],
    upgraders: Upgraders,
) -> int:
    """Append stored rows in their new version; how many. Rows that cannot be upgraded are all named, or counted."""
    rows, failures = 0, Failures(step.ref)
    for version, table in stored:
        for start in range(0, table.num_rows, ROWS_AT_ONCE):
            upgraded = upgrade_step(step, version, table.slice(start, ROWS_AT_ONCE), upgraders, failures)
            transaction.append(layout, upgraded)
            rows += upgraded.num_rows
    failures.raise_any()
    return rows


def upgrade_step(
    step: Step, version: int, table: pa.Table, upgraders: Upgraders, failures: Failures | None = None
) -> pa.Table:
    """Stored rows of one version, carried over and validated. Those that fail are left to `failures`, or raised."""
    numbers = range(version, step.target)
    functions = tuple(upgraders[step.ref.name, number] for number in numbers if (step.ref.name, number) in upgraders)
    leg = Leg(step.declaration.schema, step.difference, functions)
    return upgrade_rows(Journey(step.versions[version], step.declaration, (leg,)), table, failures)
