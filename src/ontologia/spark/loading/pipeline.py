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
from typing import TYPE_CHECKING, Any, Self, get_args

from ontologia.config import OntologiaConfig
from ontologia.engines.base import Catalog, Engine, Transaction, TypeLayout, user_metadata
from ontologia.engines.dispatch import open_engine
from ontologia.engines.staging import Staging
from ontologia.errors import ValidationError
from ontologia.files.data_files import DataFile
from ontologia.model import Declaration, TypeRef
from ontologia.objects import Location
from ontologia.runtime.intake.checks import checks_of
from ontologia.runtime.intake.rows import ORDER
from ontologia.spark.failures import explained
from ontologia.spark.loading.mapping import check_names, mapped
from ontologia.spark.loading.quarantine import Quarantine
from ontologia.spark.loading.staging import (
    COUNTS,
    OnConflict,
    OnDuplicate,
    OnInvalid,
    OnTie,
    StageTask,
    Stored,
    patient,
    staged,
)
from ontologia.spark.reading.rows import check_reach
from ontologia.spark.sources import opened
from ontologia.spark.workers import parts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


CHOICES: dict[str, tuple[str, ...]] = {
    "on_invalid": get_args(OnInvalid),
    "on_conflict": get_args(OnConflict),
    "on_duplicate": get_args(OnDuplicate),
    "on_tie": get_args(OnTie),
}


@dataclass(frozen=True, slots=True)
class TypeReport:
    """What became of the rows for one type."""

    read: int = 0
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    rejected: int = 0
    ties: int = 0
    """Identities of which several rows, with other values, were the last in order."""
    files: int = 0

    def plus(self, other: TypeReport) -> TypeReport:
        return TypeReport(*(getattr(self, name) + getattr(other, name) for name in (*COUNTS, "files")))


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """The outcome of a run. `commit_id` is None when nothing changed, and for a dry run."""

    commit_id: int | None
    types: dict[str, TypeReport]
    seconds: float
    dry_run: bool = False
    application_id: str = ""
    quarantine: str | None = None


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
    """Loads from any number of sources, committed together.

    >>> Pipeline(spark, "s3://bucket/onto").load(
    ...     "customers.csv", into=Customer, map={"id": "customer_id", "name": "trim(name)"}
    ... ).commit()                                                      # doctest: +SKIP
    """

    spark: SparkSession
    target: str | os.PathLike[str] | Location
    config: OntologiaConfig | None = None
    on_invalid: OnInvalid = "abort"
    on_conflict: OnConflict = "upsert"
    _loads: list[_Load] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_choices({"on_invalid": self.on_invalid, "on_conflict": self.on_conflict})

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
        on_tie: OnTie = "greatest",
    ) -> Self:
        """Add a source: a DataFrame of Spark, pandas or polars, an Arrow table, files, or a `jdbc:` address.

        `map` gives a Spark expression per field.

        `key`, `left`, `right` and `instance_key` are short for mapping the identity. Rows of one identity are an
        error, unless `order_by` says which is the last: an expression, or several, of which the later ones count
        where the earlier ones are equal. Where all are equal, the row with the greatest values is kept, field by
        field, and the report counts it as a tie; with `on_tie="error"` that is an error.
        """
        declaration = getattr(into, "__declaration__", None)
        if not isinstance(declaration, Declaration):
            raise TypeError(f"load(into=…) takes an entity or relation class, not {into!r}")
        identity = {"key": key, "left": left, "right": right, "instance_key": instance_key}
        expressions = load_expressions(declaration, {**(map or {})}, **identity)
        on_duplicate = duplicates_of(order_by, on_duplicate)
        rows = mapped(opened(self.spark, source, format, options), declaration, expressions, order_by=order_by)
        check_choices({"on_tie": on_tie})
        order = None if order_by is None else rows.schema[ORDER].dataType
        load = _Load(declaration, rows, on_duplicate, on_tie, order)
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
        if not self._loads:
            raise ValidationError("nothing to commit: add a source with load() first")
        started = time.monotonic()
        metadata = user_metadata(meta)
        with open_engine(patient(Location.of(self.target, self.config))) as engine:
            check_reach(self.spark, engine)
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
            _named(reports),
            time.monotonic() - started,
            dry_run,
            application_id(self.spark),
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
            "pipeline": application_id(self.pipeline.spark),
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
            messages = staged(rows, task, Stored.of(self.engine, task.layout.ref, catalog))
        failed = next((row.error for row in messages if row.error is not None), None)
        if failed is not None:
            raise ValidationError(failed)
        parts = parts_of(messages)
        counts = {name: sum(row[name] or 0 for row in messages) for name in COUNTS}
        return parts, TypeReport(**counts, files=len(parts))


def check_choices(given: Mapping[str, Any], where: str = "") -> None:
    """Refuse what is none of the choices that there are."""
    for name, choice in given.items():
        if choice not in CHOICES[name]:
            raise ValidationError(f"{where}{name} is one of {', '.join(CHOICES[name])}, not {choice!r}")


def load_expressions(declaration: Declaration, map: Mapping[str, Any], **identity: Any) -> dict[str, Any]:
    """What fills which field, as a load says it. All that is wrong with it and can be seen without a source is said."""
    expressions = {**map, **_identity(declaration, **identity)}
    check_names(declaration, expressions)
    return expressions


def duplicates_of(order_by: Any, on_duplicate: OnDuplicate | None) -> OnDuplicate:
    """What becomes of rows of one identity, as a load says it."""
    if on_duplicate is None:
        return "error" if order_by is None else "last"
    check_choices({"on_duplicate": on_duplicate})
    if on_duplicate == "last" and order_by is None:
        raise ValidationError("on_duplicate='last' needs order_by, which says what the last is")
    return on_duplicate


def _identity(declaration: Declaration, **given: Any) -> dict[str, Any]:
    """What fills the parts of an identity. A part that the type does not have is a mistake."""
    is_entity = declaration.ref.kind == "entity"
    parts = {
        "key": declaration.primary_key,
        "left": None if is_entity else "left_key",
        "right": None if is_entity else "right_key",
        "instance_key": declaration.instance_key,
    }
    said = {part: text for part, text in given.items() if text is not None}
    unknown = [part for part in said if parts[part] is None]
    if unknown:
        has = ", ".join(part for part, name in parts.items() if name is not None)
        raise ValidationError(f"{declaration.ref} has no {' and no '.join(unknown)}: its identity is {has}")
    return {parts[part] or "": text for part, text in said.items()}


def _order_name(kind: DataType) -> str:
    """Text travels with the number it may be, as a pair."""
    from pyspark.sql.types import StructType

    return "string" if isinstance(kind, StructType) else kind.simpleString()


def _named(reports: Mapping[TypeRef, TypeReport]) -> dict[str, TypeReport]:
    """Reports by the name of the type, and by its kind as well where a relation is called like an entity."""
    names = [ref.name for ref in reports]
    return {ref.name if names.count(ref.name) == 1 else str(ref): report for ref, report in reports.items()}


def application_id(spark: SparkSession) -> str:
    return str(spark.conf.get("spark.app.id", ""))
