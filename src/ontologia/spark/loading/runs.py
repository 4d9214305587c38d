"""The run of a pipeline on Spark: loads as DataFrames, a job per type, one commit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, NumericType, StructType

from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog, TypeLayout
from ontologia.engines.staging import Staging
from ontologia.engines.transaction import Transaction
from ontologia.errors import ValidationError
from ontologia.files.data_files import DataFile
from ontologia.model import Declaration, TypeRef
from ontologia.runtime.intake.checks import checks_of
from ontologia.runtime.intake.comparing import COUNTS
from ontologia.runtime.intake.loads import NAME, LoadTerms, names_in, unquote
from ontologia.runtime.intake.quarantine import Quarantine
from ontologia.runtime.intake.reports import TypeReport
from ontologia.runtime.intake.rows import ORDER
from ontologia.runtime.intake.syncing import check_removals, check_sync
from ontologia.spark.failures import explain_failures, stoppable
from ontologia.spark.loading.mapping import map_identity, map_rows
from ontologia.spark.loading.removals import Removal, Removals, SyncTask, find_named
from ontologia.spark.loading.staging import StageTask, stage_rows
from ontologia.spark.sources import opened
from ontologia.spark.workers import parts_of

if TYPE_CHECKING:
    from ontologia.spark.loading.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class SparkLoad:
    """One load of a pipeline: its mapped rows and its terms."""

    declaration: Declaration
    rows: DataFrame
    terms: LoadTerms
    order: DataType | None
    """The type of what `order_by` says."""
    unfilled: tuple[str, ...]
    """The fields that the source has no column for."""
    ignored: tuple[str, ...]


def open_load(
    spark: SparkSession,
    terms: LoadTerms,
    source: Any,
    format: str | None,
    options: Mapping[str, str] | None,
    order_by: Any,
) -> SparkLoad:
    """A source as rows of a type."""
    with stoppable():
        frame = opened(spark, source, format, options, as_text=_find_structured(terms, order_by))
        rows = map_rows(frame, terms.declaration, terms.expressions, order_by=order_by)
    order = None if order_by is None else rows.schema[ORDER].dataType
    unfilled, ignored = terms.fields_without(frame.columns), terms.columns_without(frame.columns, order_by)
    return SparkLoad(terms.declaration, rows, terms, order, unfilled, ignored)


def open_removal(
    spark: SparkSession, terms: LoadTerms, source: Any, format: str | None, options: Mapping[str, str] | None
) -> Removal:
    """A source as identities of a type."""
    with stoppable():
        frame = opened(spark, source, format, options)
        return Removal(terms.declaration, map_identity(frame, terms.declaration, terms.expressions))


def check_alike(load: SparkLoad, others: Sequence[SparkLoad]) -> None:
    """Refuse a load whose rows cannot be put in order with those of another: a type's loads are one job."""
    ref = load.declaration.ref
    for other in others:
        if other.declaration.ref != ref:
            continue
        rules = [
            (one.order is None, one.terms.on_duplicate, one.terms.on_tie, one.terms.mode, one.terms.max_removals)
            for one in (other, load)
        ]
        if rules[0] != rules[1]:
            raise ValidationError(
                f"{ref} is loaded from several sources: give all of them order_by, on_duplicate and on_tie, or "
                "none, and the same mode"
            )
        kept = [one.terms.kept_columns(one.unfilled) for one in (other, load)]
        if kept[0] != kept[1]:
            raise ValidationError(
                f"{ref} is loaded from several sources: with missing='keep', all of them fill the same fields"
            )
        kinds = (other.order, load.order)
        if other.order != load.order and not all(isinstance(kind, NumericType) for kind in kinds):
            shown = " and ".join(_order_name(kind) for kind in kinds if kind is not None)
            raise ValidationError(f"{ref} is ordered by {shown}: make them of one type")


def each_once(names: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """What the loads of one type name, together."""
    return tuple(dict.fromkeys(chain.from_iterable(names)))


def _find_structured(terms: LoadTerms, order_by: Any) -> set[str]:
    """The columns that fill structured fields as they are, and nothing else."""
    structured = {column.name for column in terms.declaration.schema.columns if column.scalar is None}
    whole, others = set(), names_in(order_by)
    for filled, by in ({name: name for name in structured} | dict(terms.expressions)).items():
        if filled in structured and isinstance(by, str) and (name := NAME.fullmatch(by)):
            whole.add(unquote(name))
        else:
            others |= names_in(by)
    return {name for name in whole if name.lower() not in others}


@dataclass(slots=True)
class Run:
    """One run of a pipeline against an open engine."""

    pipeline: Pipeline
    engine: Engine
    quarantine: Quarantine

    def preview(self, catalog: Catalog) -> dict[TypeRef, TypeReport]:
        reports = {}
        for ref, loads in self.by_type().items():
            layout = catalog.layouts.get(ref) or TypeLayout(ref, loads[0].declaration.schema, 1, catalog.head + 1)
            staged = self._stage(catalog, loads, self._task(catalog, layout, loads, None))
            removed = self._removals(loads, staged.report, staged.removals)
            reports[ref] = replace(staged.report, removed=removed.num_rows)
        for removal in self.pipeline._removals:
            keys = find_named(self.pipeline.session, self.engine, catalog, removal)
            reports[removal.declaration.ref] = TypeReport(removed=keys.num_rows)
        return reports

    def publish(
        self, transaction: Transaction, metadata: Mapping[str, str], started: float
    ) -> tuple[dict[TypeRef, TypeReport], int | None]:
        self.quarantine.clear()  # of an attempt that lost a race
        catalog = transaction.catalog
        catalog.check(self.pipeline._schemas())
        reports: dict[TypeRef, TypeReport] = {}
        for ref, loads in self.by_type().items():
            layout = transaction.layout_for(loads[0].declaration.schema)
            task = self._task(catalog, layout, loads, transaction.staging(layout))
            staged = self._stage(catalog, loads, task)
            removals = self._removals(loads, staged.report, staged.removals)
            removed = self._take_away(transaction, layout, removals)
            transaction.adopt(layout, staged.parts)
            reports[ref] = replace(staged.report, removed=removed)
        for removal in self.pipeline._removals:
            keys = find_named(self.pipeline.session, self.engine, catalog, removal)
            layout = transaction.layout_for(removal.declaration.schema)
            reports[layout.ref] = TypeReport(removed=self._take_away(transaction, layout, keys))
        if not any(report.inserted or report.updated or report.removed for report in reports.values()):
            return reports, None
        return reports, transaction.publish({**metadata, **self._record(reports, started)})

    def _removals(self, loads: Sequence[SparkLoad], report: TypeReport, removals: Removals) -> pa.Table:
        """The identities that a sync removes, if it may; none of another load, and of a type that is new."""
        ref, terms = loads[0].declaration.ref, loads[0].terms
        if terms.mode == "sync":
            check_sync(ref, self.engine.capabilities, self.pipeline.on_conflict, report.rejected)
            check_removals(ref, removals.count, report.read, terms.max_removals)
        return removals.keys

    def _take_away(self, transaction: Transaction, layout: TypeLayout, keys: pa.Table) -> int:
        if not keys.num_rows:
            return 0
        rows = transaction.current(layout.schema, keys)
        transaction.remove(layout, rows)
        return int(rows.num_rows)

    def _record(self, reports: Mapping[TypeRef, TypeReport], started: float) -> dict[str, str]:
        """What the commit says of the run that made it."""
        total = TypeReport()
        for report in reports.values():
            total = total.plus(report)
        return {
            "pipeline": application_id(self.pipeline.session),
            **total.as_metadata(),
            "duration_s": f"{time.monotonic() - started:.3f}",
        }

    def by_type(self) -> dict[TypeRef, list[SparkLoad]]:
        found: dict[TypeRef, list[SparkLoad]] = {}
        for load in self.pipeline._loads:
            found.setdefault(load.declaration.ref, []).append(load)
        return found

    def _task(
        self, catalog: Catalog, layout: TypeLayout, loads: Sequence[SparkLoad], staging: Staging | None
    ) -> StageTask:
        declaration = loads[0].declaration
        return StageTask(
            location=self.engine.location,
            head=catalog.head,
            known=layout.ref in catalog.layouts,
            layout=replace(layout, schema=declaration.schema),
            staging=staging,
            quarantine=self.quarantine.of(layout.ref),
            on_invalid=self.pipeline.on_invalid,
            on_duplicate=loads[0].terms.on_duplicate,
            on_conflict=self.pipeline.on_conflict,
            on_tie=loads[0].terms.on_tie,
            kept=loads[0].terms.kept_columns(loads[0].unfilled),
            checks=checks_of(declaration),
            sync=self._sync(catalog, loads),
        )

    def _sync(self, catalog: Catalog, loads: Sequence[SparkLoad]) -> SyncTask | None:
        schema, terms = loads[0].declaration.schema, loads[0].terms
        if terms.mode != "sync" or schema.ref not in catalog.layouts:
            return None
        return SyncTask(schema, catalog.head, terms.max_removals, self.engine.count_stored(schema.ref, catalog))

    def _stage(self, catalog: Catalog, loads: Sequence[SparkLoad], task: StageTask) -> _Staged:
        """Run one type's job. The digest of all parts stands for the content of the file they make up."""
        with explain_failures(f"loading {task.layout.ref}"):
            staged = stage_rows(_together(loads), task, self.engine.count_stored(task.layout.ref, catalog))
        parts = parts_of(staged.messages)
        counts = {name: sum(row[name] or 0 for row in staged.messages) for name in COUNTS}
        return _Staged(parts, TypeReport(**{**counts, "removed": 0}, files=len(parts)), staged.removals)


class _Staged(NamedTuple):
    """What a type's job has done: parts for the commit, the counts, and what is to go."""

    parts: list[DataFile]
    report: TypeReport
    removals: Removals


def _together(loads: Sequence[SparkLoad]) -> DataFrame:
    """The rows of all loads of one type."""
    return reduce(lambda rows, more: rows.unionByName(more), (load.rows for load in loads))


def _order_name(kind: DataType) -> str:
    """Text travels with the number it may be, as a pair."""
    return "string" if isinstance(kind, StructType) else kind.simpleString()


def application_id(spark: SparkSession) -> str:
    return str(spark.conf.get("spark.app.id", ""))
