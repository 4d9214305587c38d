"""Preview, token, and the rewrite of latest state under one commit (RFC 0009 §6)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ontologia.engines.base import Engine
from ontologia.engines.transaction import Transaction
from ontologia.engines.upgrading import Failures
from ontologia.errors import (
    DiscardError,
    LockContentionError,
    MigrationLockError,
    MigrationTokenError,
    MissingUpgraderError,
)
from ontologia.model import Declaration, TypeRef
from ontologia.model.upgraders import Upgraders
from ontologia.query.plan import LATEST
from ontologia.runtime.migration.carrying import rewrite_rows, upgrade_step
from ontologia.runtime.migration.planning import Step, describe, plan_steps
from ontologia.runtime.migration.results import MigrationCheck, MigrationPreview, MigrationResult, by_type
from ontologia.runtime.pages import pages

Rewrite = Callable[[Transaction, Step, Upgraders], int]


def preview(engine: Engine, declarations: Sequence[Declaration], upgraders: Upgraders) -> MigrationPreview:
    """The plan, without touching anything."""
    catalog = engine.catalog()
    return describe(engine, plan_steps(engine, catalog, engine.schema_versions(), declarations, upgraders))


def check(engine: Engine, declarations: Sequence[Declaration], upgraders: Upgraders) -> MigrationCheck:
    """Carry every row over and throw the result away: each that fails is reported, and nothing is written."""
    catalog = engine.catalog()
    rows, failures = {}, []
    for step in plan_steps(engine, catalog, engine.schema_versions(), declarations, upgraders):
        if step.missing:
            raise MissingUpgraderError(step.missing)
        failed = Failures(step.ref, most_named=None)
        rows[step.new_ref] = 0
        for page in pages(engine, step.layout.schema, LATEST, catalog.head):
            rows[step.new_ref] += page.num_rows
            upgrade_step(step, step.layout.schema_version_id, page, upgraders, failed)
        failures += failed.messages()
    return MigrationCheck(by_type(rows), failures)


def apply(
    engine: Engine,
    declarations: Sequence[Declaration],
    upgraders: Upgraders,
    *,
    token: str | None,
    force: bool,
    metadata: Mapping[str, str],
    rewrite: Rewrite | None = None,
    allow_discard: bool = False,
) -> MigrationResult:
    """Run the plan under the write lock, in one commit; whatever goes wrong leaves the store as it was.

    `rewrite` is who carries the rows over: by default, this process. Values are discarded only with `allow_discard`.
    """
    if token is None and not force:
        raise MigrationTokenError("a migration needs the token of its preview, or force=True")
    started = time.monotonic()

    def work(transaction: Transaction) -> MigrationResult:
        versions = [version for ref in transaction.catalog.layouts for version in transaction.recorded(ref)]
        steps = plan_steps(engine, transaction.catalog, versions, declarations, upgraders)
        plan = describe(engine, steps)
        if token != plan.token and (token is not None or not force):
            raise MigrationTokenError("the store or the code changed since the preview: preview again for a new token")
        if not plan.has_changes:
            return MigrationResult(success=True, duration_s=time.monotonic() - started)
        if plan.missing_steps:
            raise MissingUpgraderError(plan.missing_steps)
        if plan.discarded_values and not allow_discard:
            raise DiscardError(plan.discarded_values)
        rewritten = {step.ref: (rewrite or rewrite_rows)(transaction, step, upgraders) for step in steps}
        commit_id = transaction.publish({**metadata, **commit_metadata(steps, rewritten)})
        return MigrationResult(
            success=True,
            types_migrated=[step.new_ref.name for step in steps],
            rows_migrated=by_type({step.new_ref: rewritten[step.ref] for step in steps}),
            new_schema_versions={step.new_ref.name: step.new_version for step in steps},
            duration_s=time.monotonic() - started,
            commit_id=commit_id,
        )

    try:
        return engine.transact(work)
    except LockContentionError as problem:
        raise MigrationLockError(str(problem)) from problem


def commit_metadata(steps: Sequence[Step], rewritten: Mapping[TypeRef, int]) -> dict[str, Any]:
    """RFC 0009 §6.1."""
    return {
        "kind": "migration",
        "migrated_types": [
            {
                "type_kind": step.ref.kind,
                "type_name": step.new_ref.name,
                "from_schema_version_id": step.layout.schema_version_id,
                "to_schema_version_id": step.new_version,
                "rows_rewritten": rewritten[step.ref],
                "change": step.change,
                **({} if step.new_ref == step.ref else {"renamed_from": step.ref.name}),
                **_ways(step),
            }
            for step in steps
        ],
    }


def _ways(step: Step) -> dict[str, Any]:
    """What readers of earlier rows need to know, since neither names nor defaults are part of a schema."""
    earlier = step.declaration.schema.earlier
    ends = {old: new for new, old in earlier.ends.items() if old in (step.layout.schema.left, step.layout.schema.right)}
    found: dict[str, Any] = {"renamed_fields": dict(step.difference.renamed)}
    if ends:
        found["renamed_ends"] = ends
    filled = step.defaults_of_new_fields()
    return {**found, "filled": filled} if filled else found
