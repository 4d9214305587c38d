"""Migration whose upgraders run on executors. The plan, the token, the checks and the commit are the runtime's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ontologia.engines.base import Engine
from ontologia.engines.staging import Staging
from ontologia.engines.transaction import Transaction
from ontologia.errors import MigrationError, ValidationError
from ontologia.files.writing import gather
from ontologia.model import Declaration
from ontologia.model.upgraders import Upgraders, registered_upgraders
from ontologia.query.plan import LATEST
from ontologia.runtime import migration
from ontologia.runtime.migration import MigrationPreview, MigrationResult, Step
from ontologia.runtime.store import Store
from ontologia.spark.failures import explain_failures
from ontologia.spark.loading.staging import ROWS_SORTED
from ontologia.spark.ranges import collect_in_arrow, cut_into_ranges
from ontologia.spark.reading.rows import read_stored_rows
from ontologia.spark.workers import PART, Message, part_messages, parts_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


WROTE = Message({**PART, "error": "string"})


def migrate(
    spark: SparkSession,
    store: Store,
    *,
    dry_run: bool = True,
    token: str | None = None,
    force: bool = False,
    upgraders: Upgraders | None = None,
    meta: Mapping[str, str] | None = None,
    allow_discard: bool = False,
) -> MigrationPreview | MigrationResult:
    """Migrate with upgraders on executors: the plan, the token, the checks and the commit are `Store.migrate`'s."""
    steps = registered_upgraders() if upgraders is None else upgraders
    declarations = list(store.declarations.values())
    if dry_run:
        return migration.preview(store.engine, declarations, steps)
    return migration.apply(
        store.engine,
        declarations,
        steps,
        token=token,
        force=force,
        metadata=dict(meta or {}),
        allow_discard=allow_discard,
        rewrite=lambda transaction, step, chain: _rewrite(spark, store.engine, transaction, step, chain),
    )


def _check_importable(declaration: Declaration) -> None:
    """Executors make objects of a class, so they have to find it as the driver did."""
    cls = declaration.cls
    if cls.__module__ == "__main__" or "<locals>" in cls.__qualname__:
        raise ValidationError(
            f"executors cannot import {cls.__qualname__} from {cls.__module__}: put the class into a module of its own"
        )


@dataclass(frozen=True, slots=True)
class UpgradeTask:
    """What an executor needs to carry rows to their new version."""

    staging: Staging
    step: Step
    upgraders: Upgraders


def _rewrite(spark: SparkSession, engine: Engine, transaction: Transaction, step: Step, upgraders: Upgraders) -> int:
    if not engine.capabilities.object_storage:
        raise ValidationError(
            f"a migration on Spark is for object storage; {engine.backend} migrates in its own transaction"
        )
    _check_importable(step.declaration)
    rows = read_stored_rows(spark, engine, transaction.catalog, step.layout.schema, LATEST)
    layout = migration.open_target(transaction, step)
    task = UpgradeTask(transaction.staging(layout), step, upgraders)
    with explain_failures(f"migrating {layout.ref}"):
        ordered = cut_into_ranges(rows, layout.ref.identity, ROWS_SORTED).sorted_by(*layout.ref.identity)
        found = collect_in_arrow(ordered, lambda batches: _upgrade_part(task, batches), WROTE.ddl)
    failed = next((row.error for row in found if row.error is not None), None)
    if failed is not None:
        raise MigrationError(failed)
    parts = parts_of(found)
    transaction.adopt(layout, parts)
    return sum(part.row_count or 0 for part in parts)


def _upgrade_part(task: UpgradeTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Upgrade one range of keys. A row that cannot be upgraded is reported with its type, identity and content."""
    version = task.step.layout.schema_version_id
    with task.staging.writer() as parts:
        try:
            for table in gather(batches):
                parts.add(migration.upgrade_step(task.step, version, table, task.upgraders))
            yield WROTE.batch(part_messages(parts.finish()))
        except MigrationError as problem:
            yield WROTE.batch([{"error": str(problem)}])
