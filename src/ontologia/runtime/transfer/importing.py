"""Into a store: read and check every file first, then write all of it as one commit (RFC 0004 §8)."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ontologia.engines.base import Catalog, Engine, Transaction, TypeLayout, user_metadata
from ontologia.errors import ImportConflictError, ValidationError
from ontologia.model import TypeRef, TypeSchema, is_unicode
from ontologia.query.plan import Plan
from ontologia.runtime.delta import INSERT, delta
from ontologia.runtime.store import Store
from ontologia.runtime.transfer.conflicts import OnConflict, Precondition, Rules
from ontologia.runtime.transfer.exporting import HEADER, Progress
from ontologia.runtime.transfer.records import RecordReader, lines
from ontologia.runtime.transfer.staging import StagedType

if TYPE_CHECKING:
    import pyarrow as pa

_parse = json.JSONDecoder().decode
SUFFIXES = (".jsonl", ".parquet")


@dataclass(slots=True)
class TypeImport:
    """What an import does to one type. `repeated` counts rows that a later row of the same identity replaced."""

    ref: TypeRef
    rows: int = 0
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    skipped: int = 0
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did, or would do. `refused` says why a dry run's import would fail."""

    applied: bool
    head: int
    types: list[TypeImport] = field(default_factory=list)
    commit_id: int | None = None
    refused: str | None = None

    @property
    def rows(self) -> int:
        return sum(item.rows for item in self.types)


def import_data(
    store: Store,
    path: str | os.PathLike[str],
    *,
    dry_run: bool = True,
    on_conflict: OnConflict = "abort",
    precondition: str | Precondition | None = None,
    meta: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Import an exported folder, or one file of it, as one commit; with `dry_run`, only say what would happen.

    Rows are checked with the declared classes, else with the stored schemas, else with those of the export. A commit
    of any size takes bounded memory: `max_batch_size` is for sessions, not for this.
    """
    parsed = Precondition.parse(precondition) if isinstance(precondition, str) else precondition
    rules = Rules(on_conflict, parsed)
    metadata = {"kind": "import", **user_metadata(meta)}
    source = Path(path)
    engine = store.repository
    catalog = engine.catalog()
    catalog.check(store.schemas)
    with tempfile.TemporaryDirectory(prefix="ontologia-import-") as folder:
        staged = _stage(_files(source), _Readers(store, catalog, source), Path(folder), progress)
        work = _Import(rules, staged, progress)
        if dry_run:
            return work.preview(engine)
        return engine.transact(lambda transaction: work.apply(transaction, metadata))


# --- reading ---


def _files(source: Path) -> list[Path]:
    if source.is_dir():
        found = sorted(path for path in source.rglob("*") if path.suffix in SUFFIXES and path.is_file())
        if not found:
            raise ValidationError(f"{source}: no .jsonl or .parquet files there")
        return found
    if not source.exists():
        raise ValidationError(f"{source}: there is no such file or folder")
    if source.suffix not in SUFFIXES:
        raise ValidationError(f"{source}: an import reads .jsonl and .parquet files, or a folder of them")
    return [source]


class _Readers:
    """Who checks the records of which type."""

    def __init__(self, store: Store, catalog: Catalog, source: Path) -> None:
        self._declarations = store._declarations
        self._catalog = catalog
        self._exported = _exported_schemas(source)
        self._found: dict[TypeRef, RecordReader] = {}

    def of(self, ref: TypeRef) -> RecordReader:
        if ref not in self._found:
            if ref in self._catalog.dropped:
                raise ValidationError(f"{ref} was dropped from this store; it takes no new rows")
            self._found[ref] = self._make(ref)
        return self._found[ref]

    def _make(self, ref: TypeRef) -> RecordReader:
        declaration = self._declarations.get(ref)
        if declaration is not None:
            return RecordReader(declaration.schema, declaration)
        layout = self._catalog.layouts.get(ref)
        schema = layout.schema if layout is not None else self._exported.get(ref)
        if schema is None:
            raise ValidationError(f"{ref} is not in this store, and no declared class says what it is: give its models")
        return RecordReader(schema)


def _exported_schemas(source: Path) -> dict[TypeRef, TypeSchema]:
    header = source / HEADER if source.is_dir() else source.parent.parent / HEADER
    if not header.is_file():
        return {}
    try:
        content = json.loads(header.read_text(encoding="utf-8"))
        schemas = [TypeSchema.from_json(item["schema"]) for item in content["types"]]
    except (ValueError, KeyError, TypeError) as problem:
        raise ValidationError(f"{header} is malformed: {problem!r}") from problem
    return {schema.ref: schema for schema in schemas}


def _stage(
    files: Iterable[Path], readers: _Readers, folder: Path, progress: Progress | None
) -> dict[TypeRef, StagedType]:
    staged: dict[TypeRef, StagedType] = {}
    known: dict[str, TypeRef] = {}
    paths = list(files)
    total, before = sum(path.stat().st_size for path in paths), 0
    for path in paths:
        records = _jsonl if path.suffix == ".jsonl" else _parquet
        earlier = 0
        for place, done, record in records(path, readers):
            ref = known.get(f"{record.get('kind')} {record.get('type')}") or _ref(record, place)
            item = staged.get(ref)
            if item is None:
                known[str(ref)] = ref
                item = staged[ref] = StagedType(readers.of(ref), folder / str(len(staged)))
            try:
                item.add(*item.reader.read(record), done - earlier)
            except ValidationError as problem:
                raise ValidationError(f"{place}: {problem}. Nothing was imported") from None
            earlier = done
            if progress is not None and item.rows % 1_000 == 0:
                progress("reading", min(before + done, total), total)
        before += path.stat().st_size
    for item in staged.values():
        item.seal()
    return dict(sorted(staged.items()))


Record = tuple[str, int, dict[str, Any]]  # where it stands, how far into the file that is, and what it says


def _jsonl(path: Path, readers: _Readers) -> Iterator[Record]:
    done = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            done += len(line)
            if line.isspace():
                continue
            place = f"{path}:{number}"
            try:
                record = _parse(line.decode("utf-8-sig"))
            except (ValueError, RecursionError) as problem:
                raise ValidationError(f"{place}: not JSON: {problem}. Nothing was imported") from None
            if not isinstance(record, dict):
                raise ValidationError(f"{place}: a record is a JSON object. Nothing was imported")
            if b"\\u" in line and not is_unicode(json.dumps(record, ensure_ascii=False)):
                raise ValidationError(f"{place}: half a surrogate pair is no text. Nothing was imported")
            yield place, done, record


def _parquet(path: Path, readers: _Readers) -> Iterator[Record]:
    """A Parquet file's rows as the records they would be in JSON, so that both formats are checked alike."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except pa.ArrowException as problem:
        raise ValidationError(f"{path}: not a Parquet file: {problem}") from None
    with file:
        about = file.schema_arrow.metadata or {}
        kind, name = about.get(b"ontologia.kind", b"").decode(), about.get(b"ontologia.type", b"").decode()
        reader = readers.of(_ref({"kind": kind, "type": name}, str(path)))
        size, rows, number = path.stat().st_size, max(file.metadata.num_rows, 1), 0
        for batch in file.iter_batches(batch_size=10_000):
            table = pa.Table.from_batches([batch])
            _check_columns(path, reader, table)
            for line in lines(reader.schema, table, with_metadata=False):
                number += 1
                yield f"{path} row {number}", size * number // rows, json.loads(line)


def _check_columns(path: Path, reader: RecordReader, table: pa.Table) -> None:
    for wanted in reader.arrow_schema:
        if wanted.name not in table.column_names:
            raise ValidationError(f"{path}: there is no column {wanted.name}, which {reader.ref} needs")
        found = table.schema.field(wanted.name).type
        if found != wanted.type:
            raise ValidationError(f"{path}: column {wanted.name} is {found}, and {reader.ref} needs {wanted.type}")


def _ref(record: Mapping[str, Any], place: str) -> TypeRef:
    kind, name = record.get("kind"), record.get("type")
    if kind not in ("entity", "relation") or not isinstance(name, str) or not name:
        raise ValidationError(
            f"{place}: a record says its kind (entity or relation) and its type. Nothing was imported"
        )
    return TypeRef(kind, name)


# --- writing ---


class _Import:
    """The same steps for a preview and for a commit."""

    def __init__(self, rules: Rules, staged: Mapping[TypeRef, StagedType], progress: Progress | None) -> None:
        self.rules = rules
        self.staged = staged
        self.progress = progress
        self.total = sum(item.rows for item in staged.values())
        self.done = 0

    def preview(self, engine: Engine) -> ImportReport:
        catalog = engine.catalog()

        def current(schema: TypeSchema, keys: pa.Table) -> pa.Table:
            return engine.table(Plan(schema.ref, {schema.ref: schema}, keyed=True, stored=True), keys)

        refusals = [self.rules.about_head(catalog.head)]
        done = [self._type(item, catalog, current, lambda rows: None, refusals.append) for item in self.staged.values()]
        return ImportReport(False, catalog.head, done, refused=next(filter(None, refusals), None))

    def apply(self, transaction: Transaction, metadata: Mapping[str, str]) -> ImportReport:
        catalog = transaction.catalog
        catalog.check({ref: item.schema for ref, item in self.staged.items()})
        _refuse(self.rules.about_head(catalog.head))
        done = []
        self.done = 0  # a lost race starts all over
        for item in self.staged.values():
            append = _Appending(transaction, item.schema)
            done.append(self._type(item, catalog, transaction.current, append, _refuse))
        if not any(item.inserted or item.updated for item in done):
            return ImportReport(True, catalog.head, done)
        return ImportReport(True, catalog.head, done, commit_id=transaction.publish(metadata))

    def _type(
        self,
        item: StagedType,
        catalog: Catalog,
        current: Callable[[TypeSchema, pa.Table], pa.Table],
        append: Callable[[pa.Table], None],
        refuse: Callable[[str | None], None],
    ) -> TypeImport:
        import pyarrow.compute as pc

        schema, ref = item.schema, item.schema.ref
        found = TypeImport(ref, rows=item.rows)
        seen = 0
        for rows in item.tables():
            seen += rows.num_rows
            self.done += rows.num_rows
            stored = current(schema, rows.select(list(ref.identity))) if ref in catalog.layouts else None
            refuse(self.rules.about_rows(ref, rows, stored))
            changes = delta(rows, stored, ref.identity)
            is_new = pc.equal(changes.column("operation"), INSERT)
            inserted = pc.sum(is_new).as_py() or 0
            found.inserted += inserted
            found.unchanged += rows.num_rows - changes.num_rows
            if self.rules.on_conflict == "skip":
                found.skipped += changes.num_rows - inserted
                changes = changes.filter(is_new)
            else:
                found.updated += changes.num_rows - inserted
            append(changes.drop_columns(["operation"]))
            if self.progress is not None:
                self.progress("writing", self.done, self.total)
        found.repeated = item.rows - seen
        return found


class _Appending:
    """Adds rows of one type to a transaction; a type that is new becomes known with its first row."""

    def __init__(self, transaction: Transaction, schema: TypeSchema) -> None:
        self._transaction = transaction
        self._schema = schema
        self._layout: TypeLayout | None = transaction.catalog.layouts.get(schema.ref)
        self._checked_indexes = False

    def __call__(self, rows: pa.Table) -> None:
        if rows.num_rows == 0:
            return
        if self._layout is None:
            self._layout = self._transaction.activate(self._schema)
        elif not self._checked_indexes and not set(self._schema.indexed) <= set(self._layout.schema.indexed):
            self._transaction.record(self._schema, self._layout.schema_version_id)
            self._transaction.ensure_indexes(self._layout, self._schema)
        self._checked_indexes = True
        self._transaction.append(self._layout, rows)


def _refuse(reason: str | None) -> None:
    if reason is not None:
        raise ImportConflictError(f"{reason}. Nothing was imported")
