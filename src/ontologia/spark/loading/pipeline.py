"""`Pipeline`: sources into types, in one atomic commit.

Executors map, check and compare rows and write parts; the driver holds the write lease and publishes once. A run
that fails or is killed leaves nothing visible, and what it staged is vacuumed. Without a session the work is done in
process, and PySpark need not be installed.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from ontologia.config import OntologiaConfig
from ontologia.engines.base import Engine
from ontologia.engines.catalog import user_metadata
from ontologia.engines.dispatch import open_engine
from ontologia.errors import ValidationError
from ontologia.extras import need
from ontologia.model import TypeRef, TypeSchema
from ontologia.objects import Location
from ontologia.runtime.intake.comparing import Missing, Mode, OnConflict, OnDuplicate, OnInvalid, OnTie
from ontologia.runtime.intake.loads import check_choices, load_terms
from ontologia.runtime.intake.quarantine import Quarantine
from ontologia.runtime.intake.reports import PipelineReport, by_type_name
from ontologia.runtime.intake.syncing import check_sync
from ontologia.runtime.loading.local import LocalPipeline
from ontologia.runtime.loading.sources import OnlySpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ontologia.spark.loading.removals import Removal
    from ontologia.spark.loading.runs import SparkLoad


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
    _loads: list[SparkLoad] = field(default_factory=list)
    _removals: list[Removal] = field(default_factory=list)
    _local: LocalPipeline | None = None

    def __post_init__(self) -> None:
        check_choices({"on_invalid": self.on_invalid, "on_conflict": self.on_conflict})
        if self.spark is not None:
            need("pyspark", "a pipeline on Spark")
        else:
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
        from ontologia.spark.loading.runs import check_alike, open_load

        identity = {"key": key, "left": left, "right": right, "instance_key": instance_key}
        how: dict[str, Any] = {"order_by": order_by, "on_duplicate": on_duplicate, "on_tie": on_tie}
        terms = load_terms(into, map, identity, **how, mode=mode, max_removals=max_removals, missing=missing)
        load = open_load(self.session, terms, source, format, options, order_by)
        check_alike(load, self._loads)
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
        from ontologia.spark.loading.runs import open_removal

        identity = {"key": key, "left": left, "right": right, "instance_key": instance_key}
        terms = load_terms(of, None, identity, order_by=None, on_duplicate=None, on_tie="error")
        self._removals.append(open_removal(self.session, terms, source, format, options))
        return self

    def commit(self, *, meta: Mapping[str, str] | None = None, dry_run: bool = False) -> PipelineReport:
        """Run all loads and publish them as one commit."""
        if self._local is not None:
            return self._local.commit(meta=meta, dry_run=dry_run)
        if not self._loads and not self._removals:
            raise ValidationError("nothing to commit: add a source with load() first")
        from ontologia.spark.loading.runs import Run, application_id, each_once
        from ontologia.spark.loading.staging import patient
        from ontologia.spark.reading.rows import check_reach

        started = time.monotonic()
        metadata = user_metadata(meta)
        with open_engine(patient(Location.of(self.target, self.config)), make_file=False) as engine:
            check_reach(self.session, engine)
            self._check_removals(engine)
            engine.catalog().check(self._schemas())
            name = f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}-{secrets.token_hex(4)}"
            run = Run(self, engine, Quarantine(engine.staging_area, name))
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
            by_type_name({r: each_once(it.terms.defaulted(it.unfilled) for it in its) for r, its in loads.items()}),
            by_type_name({r: each_once(it.ignored for it in its) for r, its in loads.items()}),
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
