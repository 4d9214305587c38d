"""`Pipeline`: sources into types, in one atomic commit.

Executors map, check and compare rows and write parts; the driver holds the write lease and publishes once. A run
that fails or is killed leaves nothing visible, and what it staged is vacuumed.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from ontologia.config import OntologiaConfig
from ontologia.engines.base import Engine, Transaction
from ontologia.engines.catalog import Catalog, TypeLayout, user_metadata
from ontologia.engines.dispatch import open_engine
from ontologia.engines.staging import Staging
from ontologia.errors import ValidationError
from ontologia.files.data_files import DataFile
from ontologia.model import Declaration, TypeRef
from ontologia.objects import Location
from ontologia.runtime.intake.checks import checks_of
from ontologia.runtime.intake.comparing import COUNTS, Mode, OnConflict, OnDuplicate, OnInvalid, OnTie
from ontologia.runtime.intake.loads import check_choices, load_terms
from ontologia.runtime.intake.quarantine import Quarantine
from ontologia.runtime.intake.reports import PipelineReport, TypeReport, named
from ontologia.runtime.intake.rows import ORDER
from ontologia.runtime.loading.local import LocalPipeline
from ontologia.runtime.loading.sources import OnlySpark
from ontologia.spark.failures import explained, stoppable
from ontologia.spark.loading.mapping import mapped
from ontologia.spark.loading.staging import StageTask, patient, staged
from ontologia.spark.reading.rows import check_reach
from ontologia.spark.sources import opened
from ontologia.spark.workers import parts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


@dataclass(frozen=True, slots=True)
class _Load:
    declaration: Declaration
    rows: DataFrame
    on_duplicate: OnDuplicate
    on_tie: OnTie
    order: DataType | None
    """The type of what `order_by` says."""


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
    ) -> Self:
        """Add a source: a DataFrame of Spark, pandas or polars, an Arrow table, files, or a `jdbc:` address.

        `map` gives a Spark expression per field.

        `key`, `left`, `right` and `instance_key` are short for mapping the identity. Rows of one identity are an
        error, unless `order_by` says which is the last: an expression, or several, of which the later ones count
        where the earlier ones are equal. Rows that differ and are equal in all of them are an error, too; with
        `on_tie="greatest"` the row with the greatest values is kept, field by field, and counted as a tie.

        With `mode="sync"` the type becomes what its source is: what the source no longer has is removed, at most
        `max_removals` rows of it.
        """
        if self._local is not None:
            told = {"map": map, "key": key, "left": left, "right": right, "instance_key": instance_key}
            told |= {"format": format, "options": options, "order_by": order_by}
            told |= {"mode": mode, "max_removals": max_removals}
            try:
                self._local.load(source, into=into, on_duplicate=on_duplicate, on_tie=on_tie, **told)
            except OnlySpark as reason:
                raise ValidationError(f"this load needs a session of Spark, because {reason}") from None
            return self
        identity = {"key": key, "left": left, "right": right, "instance_key": instance_key}
        rules: dict[str, Any] = {"on_duplicate": on_duplicate, "on_tie": on_tie}
        rules |= {"mode": mode, "max_removals": max_removals}
        terms = load_terms(into, map, identity, order_by=order_by, **rules)
        if terms.mode == "sync":
            raise ValidationError("mode='sync' is for loads in process: make the pipeline without a session")
        with stoppable():
            frame = opened(self.session, source, format, options)
            rows = mapped(frame, terms.declaration, terms.expressions, order_by=order_by)
        order = None if order_by is None else rows.schema[ORDER].dataType
        load = _Load(terms.declaration, rows, terms.on_duplicate, terms.on_tie, order)
        self._check_alike(load)
        self._loads.append(load)
        return self

    def _check_alike(self, load: _Load) -> None:
        """Refuse a load whose rows cannot be put in order with those of another: a type's loads are one job."""
        from pyspark.sql.types import NumericType

        ref = load.declaration.ref
        for other in self._loads:
            if other.declaration.ref != ref:
                continue
            rules = [(one.order is None, one.on_duplicate, one.on_tie) for one in (other, load)]
            if rules[0] != rules[1]:
                raise ValidationError(
                    f"{ref} is loaded from several sources: give all of them order_by, on_duplicate and on_tie, or none"
                )
            kinds = (other.order, load.order)
            if other.order != load.order and not all(isinstance(kind, NumericType) for kind in kinds):
                shown = " and ".join(_order_name(kind) for kind in kinds if kind is not None)
                raise ValidationError(f"{ref} is ordered by {shown}: make them of one type")

    def commit(self, *, meta: Mapping[str, str] | None = None, dry_run: bool = False) -> PipelineReport:
        """Run all loads and publish them as one commit."""
        if self._local is not None:
            return self._local.commit(meta=meta, dry_run=dry_run)
        if not self._loads:
            raise ValidationError("nothing to commit: add a source with load() first")
        started = time.monotonic()
        metadata = user_metadata(meta)
        with open_engine(patient(Location.of(self.target, self.config))) as engine:
            check_reach(self.session, engine)
            schemas = {load.declaration.ref: load.declaration.schema for load in self._loads}
            engine.catalog().check(schemas)
            name = f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{secrets.token_hex(4)}"
            run = _Run(self, engine, Quarantine(engine.staging_area, name))
            if dry_run:
                reports, commit_id = run.preview(engine.catalog()), None
            else:
                try:
                    reports, commit_id = engine.transact(lambda tx: run.publish(tx, metadata, started))
                except BaseException:
                    run.quarantine.clear()
                    raise
                engine.tidy("load")
        rejected = any(report.rejected for report in reports.values())
        return PipelineReport(
            commit_id,
            named(reports),
            time.monotonic() - started,
            dry_run,
            application_id(self.session),
            run.quarantine.uri if rejected and not dry_run else None,
        )


@dataclass(slots=True)
class _Run:
    """One run of a pipeline against an open engine."""

    pipeline: Pipeline
    engine: Engine
    quarantine: Quarantine

    def preview(self, catalog: Catalog) -> dict[TypeRef, TypeReport]:
        reports = {}
        for ref, loads in self._by_type().items():
            layout = catalog.layouts.get(ref) or TypeLayout(ref, loads[0].declaration.schema, 1, catalog.head + 1)
            _, reports[ref] = self._staged(catalog, loads, self._task(catalog, layout, loads, None))
        return reports

    def publish(
        self, transaction: Transaction, metadata: Mapping[str, str], started: float
    ) -> tuple[dict[TypeRef, TypeReport], int | None]:
        self.quarantine.clear()  # of an attempt that lost a race
        catalog = transaction.catalog
        catalog.check({load.declaration.ref: load.declaration.schema for load in self.pipeline._loads})
        reports: dict[TypeRef, TypeReport] = {}
        for ref, loads in self._by_type().items():
            layout = transaction.layout_for(loads[0].declaration.schema)
            task = self._task(catalog, layout, loads, transaction.staging(layout))
            parts, reports[ref] = self._staged(catalog, loads, task)
            transaction.adopt(layout, parts)
        if not any(report.inserted or report.updated for report in reports.values()):
            return reports, None
        return reports, transaction.publish({**metadata, **self._record(reports, started)})

    def _record(self, reports: Mapping[TypeRef, TypeReport], started: float) -> dict[str, str]:
        """What the commit says of the run that made it."""
        total = TypeReport()
        for report in reports.values():
            total = total.plus(report)
        return {
            "pipeline": application_id(self.pipeline.session),
            "rows_read": str(total.read),
            "rows_inserted": str(total.inserted),
            "rows_updated": str(total.updated),
            "rows_rejected": str(total.rejected),
            "duration_s": f"{time.monotonic() - started:.3f}",
        }

    def _by_type(self) -> dict[TypeRef, list[_Load]]:
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
            on_duplicate=loads[0].on_duplicate,
            on_conflict=self.pipeline.on_conflict,
            on_tie=loads[0].on_tie,
            checks=checks_of(declaration),
        )

    def _staged(self, catalog: Catalog, loads: Sequence[_Load], task: StageTask) -> tuple[list[DataFile], TypeReport]:
        """Run one type's job. The digest of all parts stands for the content of the file they make up."""
        rows = loads[0].rows
        for load in loads[1:]:
            rows = rows.unionByName(load.rows)
        with explained(f"loading {task.layout.ref}"):
            messages = staged(rows, task, self.engine.count_stored(task.layout.ref, catalog))
        failed = next((row.error for row in messages if row.error is not None), None)
        if failed is not None:
            raise ValidationError(failed)
        parts = parts_of(messages)
        counts = {name: sum(row[name] or 0 for row in messages) for name in COUNTS}
        return parts, TypeReport(**counts, files=len(parts))


def _order_name(kind: DataType) -> str:
    """Text travels with the number it may be, as a pair."""
    from pyspark.sql.types import StructType

    return "string" if isinstance(kind, StructType) else kind.simpleString()


def application_id(spark: SparkSession) -> str:
    return str(spark.conf.get("spark.app.id", ""))
