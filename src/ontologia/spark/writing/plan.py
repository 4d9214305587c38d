"""What a write has to do, agreed on the driver from its options and the DataFrame's columns."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast, get_args

from pyspark.sql.types import StructType

from ontologia.engines.base import Engine
from ontologia.engines.dispatch import open_engine
from ontologia.errors import ValidationError
from ontologia.model import Declaration, TypeSchema
from ontologia.objects import Location
from ontologia.runtime.intake.comparing import Missing, Mode, OnConflict, OnDuplicate, OnInvalid, OnTie
from ontologia.runtime.intake.quarantine import Quarantine
from ontologia.runtime.intake.rows import Intake, fit_columns
from ontologia.spark.options import number
from ontologia.spark.reading.across import declaration_named
from ontologia.spark.reading.rows import existing, resolve
from ontologia.spark.types import arrow_schema_of

WRITE_OPTIONS = (
    *("path", "type", "kind", "models", "onConflict", "onInvalid"),
    *("orderBy", "onTie", "maxRemovals", "missing", "branch", "settings"),
)
META = "meta."
DEFAULTED = "defaulted"
"""What a commit says of the fields that no column filled."""
_log = logging.getLogger(__name__)
STAGING = "staging/"
"""Where rows wait in a store before they are compared; a vacuum clears it."""


@dataclass(frozen=True, slots=True)
class WritePlan:
    """A write, agreed on the driver: into which type of which store, how, and where rows are staged."""

    location: Location
    staging: Location
    intake: Intake
    on_conflict: OnConflict
    on_invalid: OnInvalid
    on_tie: OnTie
    mode: Mode = "upsert"
    max_removals: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    missing: Missing = "default"

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns of fields that no column fills, and that keep what is stored."""
        names = self.intake.defaults if self.missing == "keep" else ()
        return tuple(self.schema.by_name[name].physical for name in names)

    @property
    def schema(self) -> TypeSchema:
        return self.intake.schema

    @property
    def is_ordered(self) -> bool:
        """Whether rows say which of several of one identity is the last."""
        return self.intake.order_by is not None

    @property
    def on_duplicate(self) -> OnDuplicate:
        return "last" if self.is_ordered else "error"

    @property
    def folder(self) -> str:
        return f"{STAGING}{self.run}/"

    @property
    def quarantine(self) -> Quarantine:
        return Quarantine(self.staging, self.run, self.schema.ref)

    def check_in_reach(self) -> None:
        """Refuse, in a task, a file that only the driver's machine has: to open it here would make another."""
        if "://" not in self.location.uri and not os.path.exists(self.location.uri):
            raise ValidationError(
                f"a task does not find {self.location.uri}: executors on other machines cannot write beside a local "
                "file. Write into object storage, or run with master local[*]"
            )


def plan_write(options: Mapping[str, str], given: StructType, *, overwrite: bool) -> WritePlan:
    """Settle a write from its options and the DataFrame's columns. What is wrong with either is said here."""
    uri = options.get("path")
    if not uri:
        raise ValidationError('say where the store is: .save("s3://bucket/prefix")')
    declaration = _find_declaration(options)
    location = Location.from_text(uri, options.get("settings"), options.get("branch"))
    with open_engine(existing(location) if declaration is None else location) as engine:
        schema = _schema(engine, options, declaration)
        if overwrite and not engine.capabilities.removals:
            raise ValidationError('a store keeps its history: write with .mode("append"), which updates what differs')
        location, staging = engine.location, engine.staging_area
        known = schema.ref in engine.catalog().layouts
    mode: Mode = "sync" if overwrite else "upsert"
    limit = None if "maxRemovals" not in options else number("maxRemovals", options["maxRemovals"])
    if limit is not None and (not overwrite or limit < 0):
        raise ValidationError(f"maxRemovals is a number of rows from 0 on, for .mode('overwrite'), not {limit}")
    intake = fit_columns(arrow_schema_of(given), schema, declaration, options.get("orderBy"))
    missing = cast("Missing", _choice("missing", options, "default", get_args(Missing)))
    metadata = {name[len(META) :]: text for name, text in options.items() if name.lower().startswith(META)}
    if intake.defaults and missing == "default":
        names = ", ".join(intake.defaults)
        metadata[DEFAULTED] = names
        if known and "missing" not in options:
            _log.warning(
                "%s: no column fills %s, so every row gets the default, also where the store has another value. Keep "
                "what is stored with .option('missing', 'keep'), or say that it is meant with .option('missing', "
                "'default')",
                schema.ref,
                names,
            )
    return WritePlan(
        location,
        staging,
        intake,
        cast("OnConflict", _choice("onConflict", options, "upsert", get_args(OnConflict))),
        cast("OnInvalid", _choice("onInvalid", options, "abort", get_args(OnInvalid))),
        cast("OnTie", _choice("onTie", options, "error", get_args(OnTie))),
        mode,
        limit,
        metadata,
        missing=missing,
    )


def _schema(engine: Engine, options: Mapping[str, str], declaration: Declaration | None) -> TypeSchema:
    if declaration is not None:
        engine.catalog().check({declaration.ref: declaration.schema})
        return declaration.schema
    if "type" not in options:
        raise ValidationError('say which type: .option("type", "Customer")')
    return resolve(engine, options["type"], options.get("kind"))[1]


def _find_declaration(options: Mapping[str, str]) -> Declaration | None:
    """The class of `models="module:Class"`, which may declare a type that the store does not have yet."""
    named = options.get("models")
    if named is None:
        return None
    declaration = declaration_named(named)
    wanted = (options.get("type", declaration.ref.name), options.get("kind", declaration.ref.kind))
    if wanted != (declaration.ref.name, declaration.ref.kind):
        raise ValidationError(
            f"models={named!r} is {declaration.ref}, and the options ask for {' '.join(wanted[::-1])}"
        )
    return declaration


def _choice(name: str, options: Mapping[str, str], default: str, allowed: Sequence[str]) -> str:
    given = options.get(name, default)
    if given not in allowed:
        raise ValidationError(f"the option {name} is one of {', '.join(allowed)}, not {given!r}")
    return given
