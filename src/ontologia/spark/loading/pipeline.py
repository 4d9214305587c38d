"""`Pipeline`: sources into types, in one atomic commit.

Executors map, check and compare rows and write parts; the driver holds the write lease and publishes once. A run
that fails or is killed leaves nothing visible, and what it staged is vacuumed.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain
from typing import Any, NamedTuple, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, NumericType, StructType

from ontologia.config import OntologiaConfig
from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog, TypeLayout, user_metadata
from ontologia.engines.dispatch import open_engine
from ontologia.engines.staging import Staging
from ontologia.engines.transaction import Transaction
from ontologia.errors import ValidationError
from ontologia.files.data_files import DataFile
from ontologia.model import Declaration, TypeRef, TypeSchema
from ontologia.objects import Location
from ontologia.runtime.intake.checks import checks_of
from ontologia.runtime.intake.comparing import COUNTS, Missing, Mode, OnConflict, OnDuplicate, OnInvalid, OnTie
from ontologia.runtime.intake.loads import NAME, LoadTerms, check_choices, load_terms, names_in, unquote
from ontologia.runtime.intake.quarantine import Quarantine
from ontologia.runtime.intake.reports import PipelineReport, TypeReport, by_type_name
from ontologia.runtime.intake.rows import ORDER
from ontologia.runtime.intake.syncing import check_removals, check_sync
from ontologia.runtime.loading.local import LocalPipeline
from ontologia.runtime.loading.sources import OnlySpark
from ontologia.spark.failures import explain_failures, stoppable
from ontologia.spark.loading.mapping import map_identity, map_rows
from ontologia.spark.loading.removals import Removal, Removals, SyncTask, find_named
from ontologia.spark.loading.staging import StageTask, patient, stage_rows
from ontologia.spark.reading.rows import check_reach
from ontologia.spark.sources import opened
from ontologia.spark.workers import parts_of

"""A name in an expression of Spark, quoted or not."""


@dataclass(frozen=True, slots=True)
class _Load:
    declaration: Declaration
    rows: DataFrame
    terms: LoadTerms
    order: DataType | None
    """The type of what `order_by` says."""
    unfilled: tuple[str, ...]
    """The fields that the source has no column for."""
    ignored: tuple[str, ...]


@dataclass(slots=True)
class Pipeline:
    """Loads from any number of sources, committed together. Without a session they run in process, if they are plain.

    >>> Pipeline(spark, "s3://bucket/onto").load(
    ...     "customers.csv", into=Customer, map={"id": "customer_id", "name": "trim(name)"}
    ... ).commit()                                                      # doctest: +SKIP
    """

    spark: SparkSession | None
    target: str | os.PathLike[str] | Location
    config: OntologiaConfig | None = None
    on_invalid: OnInvalid = "abort"
    on_conflict: OnConflict = "upsert"
    _loads: list[_Load] = field(default_factory=list)
    _removals: list[Removal] = field(default_factory=list)
    _local: LocalPipeline | None = None

    def __post_init__(self) -> None:
        check_choices({"on_invalid": self.on_invalid, "on_conflict": self.on_conflict})
        if self.spark is None:
            self._local = LocalPipeline(self.target, self.config, self.on_invalid, self.on_conflict)

    @property
    def session(self) -> SparkSession:
        if self.spark is None:
            raise ValidationError("this pipeline has no session: make it with one, as in Pipeline(spark_session(), …)")
        return self.spark

    def load(
        self,
        source: Any,
        *,
        into: type[Any],
        map: Mapping[str, Any] | None = None,
        key: Any = None,
        left: Any = None,
        right: Any = None,
        instance_key: Any = None,
        format: str | None = None,
        options: Mapping[str, str] | None = None,
        order_by: Any = None,
        on_duplicate: OnDuplicate | None = None,
        on_tie: OnTie = "error",
        mode: Mode = "upsert",
        max_removals: int | None = None,
        missing: Missing = "default",
    ) -> Self:
        """Add a source: a DataFrame of Spark, pandas or polars, an Arrow table, files, or a `jdbc:` address.

        `map` gives a Spark expression per field.

        `key`, `left`, `right` and `instance_key` are short for mapping the identity. Rows of one identity are an
        error, unless `order_by` says which is the last: an expression, or several, of which the later ones count
        where the earlier ones are equal. Rows that differ and are equal in all of them are an error, too; with
        `on_tie="greatest"` the row with the greatest values is kept, field by field, and counted as a tie.

        With `mode="sync"` the type becomes what its source is: what the source no longer has is removed, at most
        `max_removals` rows of it, in the same commit.

        A field that the source has no column for gets its default; with `missing="keep"`, a stored row keeps its value.
        """
        if self._local is not None:
            told = {"map": map, "key": key, "left": left, "right": right, "instance_key": instance_key}
            told |= {"format": format, "options": options, "order_by": order_by}
            told |= {"mode": mode, "max_removals": max_removals, "missing": missing}
            try:
                self._local.load(source, into=into, on_duplicate=on_duplicate, on_tie=on_tie, **told)
            except OnlySpark as reason:
                raise ValidationError(f"this load needs a session of Spark, because {reason}") from None
            return self
        identity = {"key": key, "left": left, "right": right, "instance_key": instance_key}
        how: dict[str, Any] = {"order_by": order_by, "on_duplicate": on_duplicate, "on_tie": on_tie}
        terms = load_terms(into, map, identity, **how, mode=mode, max_removals=max_removals, missing=missing)
        with stoppable():
            frame = opened(self.session, source, format, options, as_text=_find_structured(terms, order_by))
            rows = map_rows(frame, terms.declaration, terms.expressions, order_by=order_by)
        order = None if order_by is None else rows.schema[ORDER].dataType
        unfilled, ignored = terms.fields_without(frame.columns), terms.columns_without(frame.columns, order_by)
        load = _Load(terms.declaration, rows, terms, order, unfilled, ignored)
        self._check_alike(load)
        self._loads.append(load)
        return self

    def remove(
        self,
        source: Any,
        *,
        of: type[Any],
        key: Any = None,
        left: Any = None,
        right: Any = None,
        instance_key: Any = None,
        format: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Self:
        """Remove what a source names, in the commit of the run: rows with the identity of a type, from any source that
        `load` takes. What is not there is no mistake. Relations that end at a removed entity stay, and dangle.

        >>> Pipeline(spark, "s3://bucket/onto").remove(gone, of=Customer, key="customer_id").commit()  # doctest: +SKIP
        """
        identity = {"key": key, "left": left, "right": right, "instance_key": instance_key}
        terms = load_terms(of, None, identity, order_by=None, on_duplicate=None, on_tie="error")
        with stoppable():
            frame = opened(self.session, source, format, options)
            keys = map_identity(frame, terms.declaration, terms.expressions)
        self._removals.append(Removal(terms.declaration, keys))
        return self

    def _check_alike(self, load: _Load) -> None:
        """Refuse a load whose rows cannot be put in order with those of another: a type's loads are one job."""
        ref = load.declaration.ref
        for other in self._loads:
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

    def commit(self, *, meta: Mapping[str, str] | None = None, dry_run: bool = False) -> PipelineReport:
        """Run all loads and publish them as one commit."""
        if self._local is not None:
            return self._local.commit(meta=meta, dry_run=dry_run)
        if not self._loads and not self._removals:
            raise ValidationError("nothing to commit: add a source with load() first")
        started = time.monotonic()
        metadata = user_metadata(meta)
        with open_engine(patient(Location.of(self.target, self.config)), make_file=False) as engine:
            check_reach(self.session, engine)
            self._check_removals(engine)
            engine.catalog().check(self._schemas())
            name = f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{secrets.token_hex(4)}"
            run = _Run(self, engine, Quarantine(engine.staging_area, name))
            if dry_run:
                reports, commit_id = run.preview(engine.catalog()), None
            else:
                if not engine.exists:  # a load that is refused must not make one
                    run.preview(engine.catalog())
                try:
                    reports, commit_id = engine.transact(lambda tx: run.publish(tx, metadata, started))
                except BaseException:
                    run.quarantine.clear()
                    raise
                engine.tidy("load")
        rejected, loads = any(report.rejected for report in reports.values()), run.by_type()
        return PipelineReport(
            commit_id,
            by_type_name(reports),
            time.monotonic() - started,
            dry_run,
            application_id(self.session),
            run.quarantine.uri if rejected and not dry_run else None,
            by_type_name({r: _each_once(it.terms.defaulted(it.unfilled) for it in its) for r, its in loads.items()}),
            by_type_name({r: _each_once(it.ignored for it in its) for r, its in loads.items()}),
        )

    def _schemas(self) -> dict[TypeRef, TypeSchema]:
        declared = [*(load.declaration for load in self._loads), *(gone.declaration for gone in self._removals)]
        return {declaration.ref: declaration.schema for declaration in declared}

    def _check_removals(self, engine: Engine) -> None:
        """Refuse what removes rows where they cannot be, and a type that is loaded and removed from at once."""
        loaded = {load.declaration.ref for load in self._loads}
        removing = {load.declaration.ref for load in self._loads if load.terms.mode == "sync"}
        removed = {removal.declaration.ref for removal in self._removals}
        for ref in sorted(loaded & removed):
            raise ValidationError(f"{ref} is loaded and removed from in one run: make two of it")
        for ref in sorted(removing | removed):
            check_sync(ref, engine.capabilities, self.on_conflict if ref in removing else "upsert", 0)


def _each_once(names: Iterable[Sequence[str]]) -> tuple[str, ...]:
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
class _Run:
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

    def _removals(self, loads: Sequence[_Load], report: TypeReport, removals: Removals) -> pa.Table:
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

    def by_type(self) -> dict[TypeRef, list[_Load]]:
        found: dict[TypeRef, list[_Load]] = {}
        for load in self.pipeline._loads:
            found.setdefault(load.declaration.ref, []).append(load)
        return found

    def _task(self, catalog: Catalog, layout: TypeLayout, loads: Sequence[_Load], staging: Staging | None) -> StageTask:
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

    def _sync(self, catalog: Catalog, loads: Sequence[_Load]) -> SyncTask | None:
        schema, terms = loads[0].declaration.schema, loads[0].terms
        if terms.mode != "sync" or schema.ref not in catalog.layouts:
            return None
        return SyncTask(schema, catalog.head, terms.max_removals, self.engine.count_stored(schema.ref, catalog))

    def _stage(self, catalog: Catalog, loads: Sequence[_Load], task: StageTask) -> _Staged:
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


def _together(loads: Sequence[_Load]) -> DataFrame:
    """The rows of all loads of one type."""
    return reduce(lambda rows, more: rows.unionByName(more), (load.rows for load in loads))


def _order_name(kind: DataType) -> str:
    """Text travels with the number it may be, as a pair."""
    return "string" if isinstance(kind, StructType) else kind.simpleString()


def application_id(spark: SparkSession) -> str:
    return str(spark.conf.get("spark.app.id", ""))
