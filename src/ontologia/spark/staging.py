"""What an executor does with its share of a load: check, deduplicate, compare with the store, write one part.

Shares are ranges of keys, in order, so that all rows of one identity meet in one task, the comparison reads one range
of the store, and every part comes out sorted.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ontologia.config import OntologiaConfig
from ontologia.engines.base import Catalog, TypeLayout
from ontologia.engines.parquet.commit import ROW_GROUP_ROWS, RowFile
from ontologia.engines.parquet.repository import S3Repository
from ontologia.engines.rowwise import RowwiseRepository
from ontologia.errors import ValidationError
from ontologia.model import TypeRef, TypeSchema, encode_json
from ontologia.objects import open_objects
from ontologia.query.plan import Plan, Window
from ontologia.runtime.delta import INSERT, UPDATE, delta, identity_key
from ontologia.spark.mapping import ORDER, REASON, SOURCE
from ontologia.spark.quarantine import Rejected, set_aside
from ontologia.spark.reading import uri_of
from ontologia.spark.source import repository_at
from ontologia.spark.splits import first_key

if TYPE_CHECKING:
    import pyarrow as pa

OnInvalid = Literal["abort", "quarantine"]
OnDuplicate = Literal["error", "last"]
OnConflict = Literal["abort", "skip", "upsert"]
COUNTS = ("read", "inserted", "updated", "unchanged", "rejected")
PATIENT = OntologiaConfig(lock_timeout_ms=60_000, s3_lock_timeout_ms=60_000)
"""A job that has to start again costs more than a wait, also for the lease of a writer that died to run out."""
MESSAGE = "path string, size bigint, rows bigint, digest string, error string, " + ", ".join(
    f"{name} bigint" for name in COUNTS
)


@dataclass(frozen=True, slots=True)
class StageTask:
    """Everything a task needs to know; small, and pickled to every executor."""

    target: str
    head: int
    known: bool
    layout: TypeLayout
    commit_id: int
    document: bool
    staging: str
    folder: str
    quarantine: str
    on_invalid: OnInvalid
    on_duplicate: OnDuplicate
    on_conflict: OnConflict
    dry_run: bool
    validators: Mapping[str, Any] = field(default_factory=dict)

    @property
    def schema(self) -> TypeSchema:
        return self.layout.schema


def staging_of(repository: RowwiseRepository) -> str:
    """Where executors write: the store itself, or for a file a folder beside it."""
    if isinstance(repository, S3Repository):
        return repository.objects.uri
    return f"file://{uri_of(repository)}.staging"


def stage(task: StageTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run one share and report on it in one row. A row that stops the run is reported too, not raised."""
    import pyarrow as pa

    share = _Share(task)
    try:
        for table in identity_chunks(batches, task.schema.ref.identity):
            share.take(table)
        message = share.finish()
    except ValidationError as problem:
        message = {"error": str(problem), **share.counts}
    names = ["path", "size", "rows", "digest", "error", *COUNTS]
    types = [pa.string(), pa.int64(), pa.int64(), pa.string(), pa.string(), *[pa.int64()] * len(COUNTS)]
    yield pa.RecordBatch.from_pylist([message], schema=pa.schema(list(zip(names, types, strict=True))))


class _Share:
    def __init__(self, task: StageTask) -> None:
        self.task = task
        self.counts = dict.fromkeys(COUNTS, 0)
        self.file: RowFile | None = None
        self.groups = RowGroups(self._write)
        self.rejected: list[Rejected] = []

    def take(self, table: pa.Table) -> None:
        import pyarrow.compute as pc

        self.counts["read"] += table.num_rows
        self._reject(table.filter(pc.is_valid(table.column(REASON))))
        wanted = self._validated(table.filter(pc.is_null(table.column(REASON))))
        wanted = one_each(wanted, self.task.schema.ref, self.task.on_duplicate).drop_columns([REASON, SOURCE, ORDER])
        changed = delta(wanted, self._current(wanted), self.task.schema.ref.identity)
        self._append(resolved(changed, self.task.schema.ref, self.task.on_conflict), wanted.num_rows)

    def _append(self, changed: pa.Table, wanted: int) -> None:
        tally(self.counts, changed, wanted)
        if not self.task.dry_run:
            self.groups.add(changed.drop_columns(["operation"]))

    def _write(self, rows: pa.Table) -> None:
        if self.file is None:
            self.file = RowFile(self.task.layout, self.task.commit_id, document=self.task.document)
        self.file.add(rows)

    def _current(self, wanted: pa.Table) -> pa.Table | None:
        """What the store has of these identities: one read of their range."""
        if not self.task.known or not wanted.num_rows:
            return None
        repository = repository_at(self.task.target)
        return stored_range(repository, self.task.schema, wanted, Window("as_of", self.task.head))

    def _validated(self, table: pa.Table) -> pa.Table:
        """Check what Spark's types cannot say: structured fields and the constraints of annotations."""
        import pyarrow as pa

        if not self.task.validators or not table.num_rows:
            return table
        reasons: list[str | None] = [None] * table.num_rows
        for column in self.task.schema.columns:
            validator = self.task.validators.get(column.physical)
            if validator is None:
                continue
            place = table.schema.get_field_index(column.physical)
            given = table.column(place).to_pylist()
            values, problems = checked_values(column.name, validator, given, column.scalar is None)
            table = table.set_column(place, column.physical, pa.array(values, column.arrow_type))
            reasons = [first or second for first, second in zip(reasons, problems, strict=True)]
        if not any(reasons):
            return table
        flagged = table.set_column(table.schema.get_field_index(REASON), REASON, pa.array(reasons, pa.string()))
        bad = pa.array([reason is not None for reason in reasons])
        self._reject(flagged.filter(bad))
        return table.filter(pa.array([reason is None for reason in reasons]))

    def _reject(self, invalid: pa.Table) -> None:
        if not invalid.num_rows:
            return
        self.counts["rejected"] += invalid.num_rows
        rows = invalid.select([REASON, SOURCE]).to_pylist()
        if self.task.on_invalid == "abort":
            raise ValidationError(f"{self.task.layout.ref}: {rows[0][REASON]}. The source row is {rows[0][SOURCE]}")
        self.rejected += [Rejected(row[REASON], row[SOURCE]) for row in rows]

    def finish(self) -> dict[str, Any]:
        objects = open_objects(self.task.staging)
        if self.rejected and not self.task.dry_run:
            set_aside(objects, self.task.quarantine, self.rejected)
        self.groups.finish()
        if self.file is None:
            return dict(self.counts)
        body = self.file.finish()
        path = f"{self.task.folder}part-{uuid.uuid4().hex}.parquet"
        objects.put(path, body)
        digest = hashlib.sha256(body).hexdigest()
        return {"path": path, "size": len(body), "rows": self.file.count, "digest": digest, **self.counts}


class RowGroups:
    """Gathers rows to whole row groups: a chunk in which little changed would make a small one."""

    def __init__(self, write: Callable[[pa.Table], None]) -> None:
        self._write = write
        self._held: list[pa.Table] = []
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._held.append(rows)
            self._rows += rows.num_rows
        if self._rows >= ROW_GROUP_ROWS:
            self.finish()

    def finish(self) -> None:
        import pyarrow as pa

        if self._held:
            self._write(pa.concat_tables(self._held))
            self._held, self._rows = [], 0


def identity_chunks(batches: Iterator[pa.RecordBatch], identity: Sequence[str]) -> Iterator[pa.Table]:
    """Tables of about a row group, never cut between rows of one identity."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows < ROW_GROUP_ROWS:
            continue
        table = pa.Table.from_batches(held)
        keys = identity_key(table, identity)
        cut = table.num_rows - 1
        while cut > 0 and keys[cut - 1].as_py() == keys[cut].as_py():
            cut -= 1
        if cut:
            yield table.slice(0, cut)
        held = table.slice(cut).to_batches()
        rows = table.num_rows - cut
    if held and rows:
        yield pa.Table.from_batches(held)


def stored_range(
    repository: RowwiseRepository, schema: TypeSchema, wanted: pa.Table, window: Window, catalog: Catalog | None = None
) -> pa.Table:
    """The rows of these identities. They come sorted, so the engine need look only between the first and the last."""
    keys = wanted.select(list(schema.ref.identity))
    key, ordered = first_key(schema), keys.column(0)
    between = (key >= ordered[0].as_py(), key <= ordered[-1].as_py())
    schemas = {schema.ref: schema}
    plan = Plan(schema.ref, schemas, window, between, keyed=True, stored=True, unordered=True)
    return repository.table(plan, keys, catalog)


def tally(counts: dict[str, int], changed: pa.Table, wanted: int) -> None:
    """Count what the delta rule found."""
    import pyarrow.compute as pc

    inserted = pc.sum(pc.equal(changed.column("operation"), INSERT)).as_py() or 0
    counts["inserted"] += inserted
    counts["updated"] += changed.num_rows - inserted
    counts["unchanged"] += wanted - changed.num_rows


def resolved(changed: pa.Table, ref: TypeRef, on_conflict: OnConflict) -> pa.Table:
    """What is to be done about rows that the store has already."""
    import pyarrow.compute as pc

    if on_conflict == "upsert":
        return changed
    existing = pc.equal(changed.column("operation"), UPDATE)
    if on_conflict == "skip":
        return changed.filter(pc.invert(existing))
    conflicts = changed.filter(existing)
    if conflicts.num_rows:
        raise ValidationError(f"{ref} {_named(conflicts, ref, 0)} exists with other values")
    return changed


def one_each(table: pa.Table, ref: TypeRef, on_duplicate: OnDuplicate) -> pa.Table:
    """Each identity once: the last in order, or an error, as asked. Rows come sorted by identity and order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if table.num_rows < 2:
        return table
    keys = identity_key(table, ref.identity).combine_chunks()
    again = pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1))
    if not pc.any(again).as_py():
        return table
    if on_duplicate == "error":
        place = pc.index(again, True).as_py()
        raise ValidationError(
            f"{ref} {_named(table, ref, place)} occurs more than once in this load: "
            "clean the source, or keep the last by an order column"
        )
    return table.filter(pa.concat_arrays([pc.invert(again), pa.array([True])]))


def _named(table: pa.Table, ref: TypeRef, row: int) -> str:
    return repr("/".join(str(table.column(name)[row].as_py()) for name in ref.identity))


def checked_values(name: str, validator: Any, values: list[Any], is_json: bool) -> tuple[list[Any], list[str | None]]:
    """Values as the model has them (JSON in its canonical text), and what is wrong with each."""
    import pydantic

    checked: list[Any] = []
    problems: list[str | None] = []
    for value in values:
        problem = None
        if value is not None:
            try:
                valid = validator.validate_json(value) if is_json else validator.validate_python(value)
                value = encode_json(valid) if is_json and valid is not None else valid
            except pydantic.ValidationError as error:
                first = error.errors()[0]
                place = ".".join(map(str, (name, *first["loc"])))
                problem, value = f"{place}: {first['msg']}", None
        checked.append(value)
        problems.append(problem)
    return checked, problems
