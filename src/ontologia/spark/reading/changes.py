"""What happened between two commits: every row that was written, with its commit and its operation.

A row is a `remove` when it says that something went, an `insert` when nothing of its identity was there before it, and
else an `update_version`, as in the list of a commit's changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType, StructField, StructType

from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog
from ontologia.engines.changes import operation_of
from ontologia.engines.shares import range_predicates
from ontologia.errors import HistoryForgottenError, ValidationError
from ontologia.files.identity import identity_key
from ontologia.files.key_ranges import KeyRange
from ontologia.model import COMMIT_ID, TypeSchema
from ontologia.query.compiler import REMOVED
from ontologia.query.plan import Across, Plan, Window
from ontologia.runtime.delta import OPERATION
from ontologia.spark.types import result_struct


def operation_column(schema: TypeSchema) -> str:
    """What the operation is called beside the fields of a type."""
    return "__operation" if "operation" in schema.by_name else "operation"


def change_struct(schema: TypeSchema) -> StructType:
    """Changes as callers see them: commit, operation, then keys and fields."""
    commit, *rest, _ = result_struct(schema, versions=True).fields
    return StructType([commit, StructField(operation_column(schema), StringType(), False), *rest])


def change_rows(
    engine: Engine, schema: TypeSchema, keys: KeyRange, after: int, upto: int, across: Across | None = None
) -> pa.Table:
    """The rows of a range of keys from commits after one and up to another, in the order of commits."""
    where = range_predicates(schema, keys)
    catalog = engine.catalog_at(upto)
    check_remembered(catalog, schema, after)
    plan = Plan.of(schema, Window("since", after), where, stored=True, unordered=True)
    rows = up_to(engine.table(plan.change(across=across), catalog=catalog), upto)
    identity = schema.ref.identity
    rows = rows.sort_by([(COMMIT_ID, "ascending"), *((name, "ascending") for name in identity)])
    operations = _operations(engine, catalog, schema, rows, after, across)
    return rows.drop_columns([REMOVED]).append_column(OPERATION, operations)


def check_remembered(catalog: Catalog, schema: TypeSchema, after: int) -> None:
    """Refuse changes after a commit whose state was given up: what the next ones wrote is not told apart any more.

    From the beginning on they can be had: they begin with the state at which history does.
    """
    if 0 < after < catalog.base:
        raise HistoryForgottenError(
            f"changes of {schema.ref} are asked for from commit {after + 1} on, and the state before it was given up: "
            f"history begins at commit {catalog.base}. Ask for what came after that with since={catalog.base}, or "
            "without since for the state at which it begins as well; a stream takes a new checkpoint"
        )


def check_one_version(engine: Engine, schema: TypeSchema, after: int) -> None:
    """Refuse changes after a commit if some of them are rows of an earlier version of the schema.

    A migration writes the latest rows again, under the new version. What was written between that commit and it is
    not to be had under the new one.
    """
    layout = engine.catalog().layouts.get(schema.ref)
    if layout is None or layout.schema_version_id == 1 or after >= layout.activation_commit_id - 1:
        return
    last, base = layout.activation_commit_id - 1, engine.catalog().base
    for commit in engine.commits(since=max(after, base) if base > last else after):
        if commit.id <= last and _touches(engine, commit.id, schema):
            raise ValidationError(
                f"changes of {schema.ref} are asked for from commit {after + 1} on, and commit {commit.id} wrote rows "
                f"of an earlier version of its schema, which ended with the migration in commit {last + 1}: they "
                f"cannot be delivered. Ask for what came after, with since={last} and, for a stream, a new "
                f"checkpoint: commit {last + 1} then has every row, as the migration wrote it"
            )


def _touches(engine: Engine, commit_id: int, schema: TypeSchema) -> bool:
    ref = schema.ref
    return any((row["kind"], row["type_name"]) == (ref.kind, ref.name) for row in engine.list_commit_changes(commit_id))


def up_to(table: pa.Table, commit_id: int) -> pa.Table:
    """The rows of commits that were there when the read was planned: later ones are another read's."""
    return table.filter(pc.less_equal(table.column(COMMIT_ID), commit_id))


def _operations(
    engine: Engine, catalog: Catalog, schema: TypeSchema, rows: pa.Table, after: int, across: Across | None
) -> pa.Array:
    """The operation of each row. Rows come in the order of commits."""
    identity = schema.ref.identity
    there = set(_find_known(engine, schema, rows.select(list(identity)), after, across).to_pylist())
    layout = catalog.layouts.get(schema.ref)
    # A migration writes the rows that were there before again, under the new schema.
    is_cut = across is None and layout is not None and layout.schema_version_id > 1
    migrated = layout.activation_commit_id if is_cut and layout is not None else None
    operations = []
    columns = (identity_key(rows, identity), rows.column(COMMIT_ID), rows.column(REMOVED))
    for key, commit, removed in zip(*(column.to_pylist() for column in columns), strict=True):
        operations.append(operation_of(existed=key in there or commit == migrated, removed=removed))
        (there.discard if removed else there.add)(key)
    return pa.array(operations, pa.string())


def _find_known(engine: Engine, schema: TypeSchema, keys: pa.Table, commit_id: int, across: Across | None) -> pa.Array:
    """Which of these identities the store had at a commit."""
    if commit_id == 0 or not keys.num_rows:
        return pa.array([], pa.large_string())
    window = Window("as_of", commit_id)
    distinct = keys.group_by(_names(keys)).aggregate([])
    plan = Plan.of(schema, window, keyed=True, stored=True, unordered=True, across=across)
    return identity_key(engine.table(plan, distinct), schema.ref.identity).combine_chunks()


def _names(keys: pa.Table) -> Sequence[str]:
    return list(keys.column_names)
