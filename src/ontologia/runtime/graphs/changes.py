"""A transaction on a graph in typed objects: collected in order, validated together, committed as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ontologia.engines.catalog import SchemaVersion
from ontologia.engines.object_rows import identity_of, table_of, transpose
from ontologia.engines.omnigraph.edges import take_over_ids
from ontologia.engines.omnigraph.engine import GraphEngine, catalog_of
from ontologia.engines.omnigraph.types import SCHEMA_VERSION, GraphType, edge_id, version_note, versions_of
from ontologia.errors import ConcurrentWriteError, GraphValidationError, ValidationError
from ontologia.model import SUPERSEDED_BY, Declaration, Declared, Entity, Relation, TypeRef, encode_json, key_text
from ontologia.model.values import field_texts
from ontologia.omnigraph.conflicts import rows_by_id, same_row
from ontologia.omnigraph.graph import Graph
from ontologia.omnigraph.lookups import find_repeated
from ontologia.omnigraph.manifest import CommitRecord, GraphManifest, Table
from ontologia.omnigraph.mutation import Checks, TableChange, plan_mutation
from ontologia.omnigraph.phases import GraphWrite
from ontologia.omnigraph.snapshots import StoredSnapshot, same_place
from ontologia.query.builder import QueryRoot
from ontologia.runtime.intake.checks import RowCheck, checks_of, instance_column
from ontologia.runtime.rows import identity_from_key, snapshot_of, structured_checks

T = TypeVar("T", bound=Declared)


class PendingRows:
    """What a transaction did to one type so far: the last word on each id."""

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration
        self.type = GraphType(declaration.schema)
        self.objects: dict[str, Declared] = {}
        self.tables: list[pa.Table] = []  #: in bulk, as an engine is handed rows
        self.deleted: dict[str, None] = {}
        self.new: set[str] = set()
        self._checks = structured_checks(declaration)

    def write(self, obj: Declared, *, new: bool) -> None:
        taken, name = snapshot_of(obj, self._checks), id_of(obj)
        if new and (name in self.objects or name in self.new):
            raise GraphValidationError("the transaction was refused", [f"{self.type.key} {name!r} is inserted twice"])
        if new and name not in self.deleted:
            self.new.add(name)
        self.deleted.pop(name, None)
        self.objects[name] = taken

    def get(self, name: str) -> Declared | None:
        """The object that is to be written under an id, as a copy: changing it declares nothing."""
        found = self.objects.get(name)
        return None if found is None else snapshot_of(found, self._checks)

    def write_rows(self, rows: pa.Table) -> None:
        """Write rows in bulk; what was deleted before is written again."""
        if self.deleted:
            for name in self.type.ids_of(rows):
                self.deleted.pop(name, None)
        self.tables.append(rows)

    def delete(self, name: str) -> None:
        self.objects.pop(name, None)
        self.new.discard(name)
        for place, rows in enumerate(self.tables):
            ids = pa.array(self.type.ids_of(rows), pa.string())
            self.tables[place] = rows.filter(pc.not_equal(ids, name))
        self.deleted[name] = None

    @property
    def ids(self) -> set[str]:
        """Every id that is written or deleted."""
        return {*self.objects, *self.deleted, *(name for rows in self.tables for name in self.type.ids_of(rows))}

    def rows(self) -> pa.Table | None:
        """All rows that are written, each id once, as an engine is handed them."""
        parts = list(self.tables)
        if self.objects:
            parts.append(rows_of_objects(self.declaration, list(self.objects.values())))
        return pa.concat_tables(parts) if parts else None


def rows_of_objects(declaration: Declaration, objects: Sequence[Declared]) -> pa.Table:
    """Objects of one class as an engine is handed rows."""
    identities = transpose([identity_of(obj) for obj in objects], len(declaration.ref.identity))
    columns = [[obj.__dict__[name] for obj in objects] for name in declaration.schema.names]
    return table_of(declaration, identities, columns)


def id_of(obj: Declared) -> str:
    return _id(obj.__declaration__, identity_of(obj))


def id_from_key(declaration: Declaration, key: Any) -> str:
    """An id from what a caller calls a key: a value, or for a relation its ends and instance key."""
    return _id(declaration, identity_from_key(declaration, key))


def _id(declaration: Declaration, identity: tuple[str, ...]) -> str:
    if declaration.ref.kind == "entity":
        return identity[0]
    return edge_id(identity if declaration.instance_key else identity[:2])


class GraphTransaction:
    """`with graph.transaction() as tx`: one atomic commit over all touched types, and a view that has its changes."""

    def __init__(
        self,
        graph: Graph,
        branch: str = "main",
        *,
        actor: str | None = None,
        message: str | None = None,
        if_commit: str | None = None,
    ) -> None:
        graph.check_writable()
        self._graph = graph
        self.branch = branch
        self._actor = actor
        self._message = message
        self._if_commit = if_commit
        self._pending: dict[TypeRef, PendingRows] = {}
        self._cascade = False
        self._base: GraphManifest | None = None  #: the state that is read, from the first read on
        self._read: dict[TypeRef, set[str]] = {}
        self.commit: CommitRecord | None = None
        """The commit, once the block was left; None when nothing changed."""
        if branch != "main":
            graph.check_branch(branch)

    # --- changes ---

    def upsert(self, objects: Declared | Iterable[Declared]) -> None:
        """Write objects, whether they exist or not."""
        self._write(objects, new=False)

    def insert(self, objects: Declared | Iterable[Declared]) -> None:
        """Write objects that must not exist yet."""
        self._write(objects, new=True)

    def delete(self, cls: type[Declared], keys: Any, *, cascade: bool = False) -> None:
        """Delete by key, or keys. A node with edges goes only with `cascade`, which takes the edges along."""
        pending = self._of(cls)
        several = isinstance(keys, (list, set, frozenset)) or not isinstance(keys, (str, bytes, tuple, Iterable))
        for key in keys if several and isinstance(keys, Iterable) else [keys]:
            pending.delete(id_from_key(pending.declaration, key))
        self._cascade |= cascade

    def upsert_arrow(self, cls: type[Declared], table: pa.Table) -> None:
        """Write rows in bulk: one column per field by name, `left_key` and `right_key` for relations."""
        pending = self._of(cls)
        pending.write_rows(rows_of_table(pending.declaration, table))

    def _write(self, objects: Declared | Iterable[Declared], *, new: bool) -> None:
        given = [objects] if isinstance(objects, Declared) else objects
        if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
            raise TypeError(f"a transaction takes entities and relations, not {objects!r}")
        for obj in given:
            if not isinstance(obj, Declared):
                raise TypeError(f"a transaction takes entities and relations, not {obj!r}")
            self._of(type(obj)).write(obj, new=new)

    def _of(self, cls: type[Declared]) -> PendingRows:
        declaration = getattr(cls, "__declaration__", None)
        if not isinstance(cls, type) or declaration is None or cls in (Entity, Relation):
            raise TypeError(f"{cls!r} is not a class derived from Entity or Relation")
        return self._pending.setdefault(declaration.ref, PendingRows(declaration))

    # --- reading what will be ---

    def query(self) -> QueryRoot:
        """A query that sees this transaction's changes on top of the branch as it was at the first read.

        A row that was read and is then written must be the same when the transaction ends.
        """
        if self._base is None:
            self._base = self._graph.manifest(self.branch)
        return QueryRoot(_Overlaid(self._graph, self._base, self._pending, self._note_read))

    def _note_read(self, ref: TypeRef, ids: Iterable[str]) -> None:
        self._read.setdefault(ref, set()).update(ids)

    def get(self, cls: type[T], key: Any) -> T | None:
        """One object by key, as this transaction has it."""
        pending = self._of(cls)
        name = id_from_key(pending.declaration, key)
        if (written := pending.get(name)) is not None:
            return written  # type: ignore[return-value]
        if name in pending.deleted:
            return None
        root = self.query()
        self._note_read(pending.declaration.ref, [name])
        field = pending.declaration.expression
        if issubclass(cls, Entity):
            return root.entities(cls).where(field(pending.declaration.primary_key or "") == key).first()
        ends = field("left_key") == key[0], field("right_key") == key[1]
        found = root.relations(cls).where(*ends).collect()  # type: ignore[type-var]
        return next((obj for obj in found if id_of(obj) == name), None)

    # --- the end ---

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.commit = self._commit()

    def _commit(self) -> CommitRecord | None:
        if not any(it.objects or it.tables or it.deleted for it in self._pending.values()):
            return None
        return self._graph.write(self.branch, "Mutation", self._plan, actor=self._actor, if_commit=self._if_commit)

    def _plan(self, manifest: GraphManifest) -> GraphWrite | None:
        catalog_of(manifest).check({ref: it.declaration.schema for ref, it in self._pending.items()})
        self._check_read(manifest)
        details = {} if self._message is None else {"message": self._message}
        changes = [change_of(manifest, pending) for pending in self._pending.values()]
        for change, pending in zip(changes, self._pending.values(), strict=True):
            take_over_ids(self._graph, manifest, pending.type, change)
        return plan_mutation(self._graph, manifest, changes, Checks(cascade=self._cascade), details)

    def _check_read(self, manifest: GraphManifest) -> None:
        """Refuse to write rows that this transaction read and another changed since."""
        if self._base is None or self._base.identity == manifest.identity:
            return
        states = StoredSnapshot(self._graph, self._base), StoredSnapshot(self._graph, manifest)
        changed = []
        for ref, pending in self._pending.items():
            key, ids = pending.type.key, sorted(pending.ids & self._read.get(ref, set()))
            if ids and not same_place(*(state.manifest.pins.get(key) for state in states)):
                before, now = (rows_by_id(state, key, ids) for state in states)
                changed += [f"{key} {name!r}" for name in ids if not same_row(before.get(name), now.get(name))]
        if changed:
            more = f" and {len(changed) - 20:,} more" if len(changed) > 20 else ""
            raise ConcurrentWriteError(
                f"{', '.join(changed[:20])}{more}: read in this transaction, and changed by another commit on branch "
                f"{self.branch} before it ended; nothing was written, read again and retry"
            )


def change_of(manifest: GraphManifest, pending: PendingRows) -> TableChange:
    """What a transaction does to a table; a type that the graph does not know yet is registered with it."""
    layout = catalog_of(manifest).layouts.get(pending.type.ref)
    # Indexes are no part of a schema's meaning; a vector's length is of its column, and the graph's counts.
    type = pending.type if layout is None else GraphType(layout.schema)
    rows = pending.rows()
    found = None if rows is None else type.to_graph(rows)
    _check_unique(pending, found)
    change = TableChange(type.key, found, list(pending.deleted), frozenset(pending.new))
    return register(manifest, type, change)


def register(manifest: GraphManifest, type: GraphType, change: TableChange) -> TableChange:
    """A change that also says which version of the schema its rows have."""
    if type.key in manifest.pins:
        current = next(version for version in versions_of(manifest, type.key) if version.is_current)
        change.notes = {SCHEMA_VERSION: current.schema_version_id}
        known = manifest.tables[type.key]
        if known.derived and (change.rows is not None or change.deleted):
            change.table = Table(known.key, known.path, known.notes)  # from now on it is noted with the table
        return change
    earlier = versions_of(manifest, type.key) if type.key in manifest.tables else []
    number = max((version.schema_version_id for version in earlier), default=0) + 1
    version = SchemaVersion(type.ref, number, type.schema, datetime.now(UTC).isoformat())
    change.table = type.table([version_note(it) for it in [*earlier, version]])
    change.schema = type.arrow
    change.notes = {SCHEMA_VERSION: number}
    change.replace_all = False
    return change


def _check_unique(pending: PendingRows, rows: pa.Table | None) -> None:
    if rows is not None and pending.tables:
        twice = [f"{pending.type.key} {name!r} comes {count} times" for name, count in find_repeated(rows.column("id"))]
        if twice:
            raise GraphValidationError("the transaction was refused", twice)


def rows_of_table(declaration: Declaration, table: pa.Table) -> pa.Table:
    """Rows of a caller's table as an engine is handed them: checked for columns, types and missing values."""
    schema = declaration.schema
    ends = ["left_key", "right_key"] if schema.ref.kind == "relation" else []
    keyed = [schema.instance_key] if schema.instance_key else []
    names = [*ends, *keyed, *schema.names]
    missing = [name for name in names if name not in table.column_names and _is_required(declaration, name)]
    unknown = [name for name in table.column_names if name not in names]
    if missing or unknown:
        problem = f"lacks {', '.join(missing)}" if missing else f"has unknown columns {', '.join(unknown)}"
        raise ValidationError(f"a table of {schema.ref.name} {problem}; its fields are {', '.join(names)}")
    arrays: dict[str, Any] = {}
    for column in schema.columns:
        arrays[column.physical] = _column(declaration, column, table)
    if schema.ref.kind == "entity":  # the key as text comes with the checks
        arrays["entity_key"] = pa.nulls(table.num_rows, pa.string())
    else:
        arrays |= {name: table.column(name).cast(pa.string()) for name in ends}
        empty = pa.array([""] * table.num_rows, pa.string())
        arrays["instance_key"] = table.column(keyed[0]).cast(pa.string()) if keyed else empty
    return _checked(declaration, pa.table(arrays))


def _checked(declaration: Declaration, rows: pa.Table) -> pa.Table:
    """Rows with all that the class demands of values and of rows; what is wrong is said by row."""
    problems: dict[int, str] = {}
    columns = {column.physical: column for column in declaration.schema.columns}
    if declaration.instance_key is not None:
        columns["instance_key"] = instance_column(declaration.instance_key)
    for physical, check in checks_of(declaration).items():
        place = rows.column_names.index(physical)
        values, wrong = check.of(columns[physical], rows.column(place))
        rows, problems = rows.set_column(place, physical, values), wrong | problems
    row_check = RowCheck.of(declaration)
    if row_check is not None and not problems:
        rows, problems = row_check.take(rows)
    if problems:
        raise GraphValidationError(
            f"a table of {declaration.ref.name} has rows that are not valid",
            [f"row {row}: {problem}" for row, problem in sorted(problems.items())],
        )
    if declaration.ref.kind == "entity" and declaration.primary_key is not None:
        keys = rows.column(declaration.schema.by_name[declaration.primary_key].physical).to_pylist()
        texts = pa.array([key_text(key) for key in keys], pa.string())
        rows = rows.set_column(rows.column_names.index("entity_key"), "entity_key", texts)
    return rows


def _is_required(declaration: Declaration, name: str) -> bool:
    return name not in declaration.options or declaration.options[name].required


def _column(declaration: Declaration, column: Any, table: pa.Table) -> Any:
    if column.name not in table.column_names:
        value = declaration.default_of(column.name)
        value = encode_json(value) if column.scalar is None and value is not None else value
        return pa.array([value] * table.num_rows, column.arrow_type)
    found = table.column(column.name)
    if column.scalar is None:
        return pa.array(field_texts(f"{declaration.ref}.{column.name}", found.to_pylist()), pa.string())
    try:
        found = found.cast(column.arrow_type)
    except pa.ArrowInvalid as problem:
        raise ValidationError(f"{declaration.ref.name}.{column.name} is {column.describe()}: {problem}") from problem
    if found.null_count and not column.nullable:
        places = [place for place, value in enumerate(found.to_pylist()) if value is None]
        raise GraphValidationError(
            f"{declaration.ref.name}.{column.name} may not be null", [f"row {place} has none" for place in places]
        )
    return found


class _Overlaid(GraphEngine):
    """A branch with a transaction's changes on top of it, for queries inside the transaction."""

    def __init__(
        self,
        graph: Graph,
        base: GraphManifest,
        pending: Mapping[TypeRef, PendingRows],
        note_read: Callable[[TypeRef, Iterable[str]], None],
    ) -> None:
        super().__init__(graph, branch=base.branch)
        self._base = base
        self._pending = pending
        self._note_read = note_read

    def manifest(self) -> GraphManifest:
        return self._base

    def overlaid(self, type: GraphType, rows: pa.Table | None) -> pa.Table | None:
        if rows is not None:
            self._note_read(type.ref, type.ids_of(rows))
        pending = self._pending.get(type.ref)
        if pending is None:
            return rows
        written = pending.rows()
        if rows is None:
            rows = type.from_graph(type.arrow.empty_table(), pa.array([], pa.int64()))
        covered = set(pending.deleted) | (set() if written is None else set(type.ids_of(written)))
        ids = pa.array(type.ids_of(rows), pa.string())
        kept = rows.filter(pc.invert(pc.is_in(ids, value_set=pa.array(sorted(covered), pa.string()))))
        if written is None:
            return kept
        number = pa.array([self.catalog().head + 1] * written.num_rows, pa.int64())
        mine = type.from_graph(type.to_graph(written), number)
        if SUPERSEDED_BY in rows.column_names:  # among versions
            mine = mine.append_column(SUPERSEDED_BY, pa.nulls(mine.num_rows, pa.int64()))
        return pa.concat_tables([kept, mine.select(rows.column_names).cast(kept.schema)])
