"""`Omnigraph`: a versioned graph of typed objects, with branches, merges, diffs, search and care."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ontologia.config import OntologiaConfig
from ontologia.engines.catalog import Catalog
from ontologia.engines.nesting import check_outside
from ontologia.engines.omnigraph.edges import find_edges, has_foreign_ids
from ontologia.engines.omnigraph.engine import GraphEngine, catalog_of
from ontologia.engines.omnigraph.types import GraphType, key_of
from ontologia.errors import OntologiaError, ValidationError
from ontologia.model import Declaration, Declared, Entity, TypeRef
from ontologia.model.upgraders import Upgraders, registered_upgraders
from ontologia.objects import Location
from ontologia.omnigraph import branches, cleanup, history, maintenance, merge
from ontologia.omnigraph.branches import Branch
from ontologia.omnigraph.commits import RecoveryRecord
from ontologia.omnigraph.conflicts import Strategy
from ontologia.omnigraph.datasets import storage_options
from ontologia.omnigraph.graph import Graph, OpenMode
from ontologia.omnigraph.manifest import CommitRecord, GraphManifest
from ontologia.omnigraph.mutation import Checks, TableChange, plan_mutation
from ontologia.omnigraph.names import EMPTY
from ontologia.omnigraph.phases import GraphWrite
from ontologia.omnigraph.schema_files import STATE
from ontologia.omnigraph.snapshots import StoredSnapshot, resolve, tags_of
from ontologia.query.builder import QueryRoot
from ontologia.runtime.graphs import loading
from ontologia.runtime.graphs import schema as graph_schema
from ontologia.runtime.graphs.changes import GraphTransaction, id_from_key, register
from ontologia.runtime.graphs.files import declare_stored, write_lines
from ontologia.runtime.graphs.schema import SchemaPlan

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T", bound=Declared)


class GraphSnapshot:
    """A consistent view over all types at one commit. It stays as it is, whatever is written afterwards."""

    def __init__(self, graph: Graph, manifest: GraphManifest) -> None:
        self._graph = graph
        self._manifest = manifest
        self.branch = manifest.branch
        self.version = manifest.version
        self.commit = manifest.head

    def __repr__(self) -> str:
        return "\n".join([self._heading, *(f"  {name}: {rows:,} rows" for name, rows in self._sizes)])

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{rows:,}</td></tr>" for name, rows in self._sizes)
        return f"<div>{escape(self._heading)}<table><tr><th>type</th><th>rows</th></tr>{rows}</table></div>"

    @property
    def _heading(self) -> str:
        commit = "no commit" if self.commit is None else f"commit {self.commit.graph_commit_id}"
        return f"Graph {self._graph.objects.uri}, branch {self.branch}, {commit}"

    @property
    def _sizes(self) -> list[tuple[str, int]]:
        return [(key, pin.rows) for key, pin in sorted(self._manifest.pins.items())]

    @cached_property
    def _engine(self) -> GraphEngine:
        return GraphEngine(self._graph, branch=self.branch, commit=self.version - EMPTY)

    @cached_property
    def _catalog(self) -> Catalog:
        return catalog_of(self._manifest)

    def query(self) -> QueryRoot:
        """The query builder, on this state."""
        return QueryRoot(self._engine)

    def get(self, cls: type[T], key: Any) -> T | None:
        """One object by key: a look into the index of ids, where there is one."""
        declaration = cls.__declaration__
        type = GraphType(declaration.schema)
        if type.key not in self._manifest.pins:
            return None
        self._catalog.check({declaration.ref: declaration.schema})
        ids = [id_from_key(declaration, key)]
        if has_foreign_ids(self._manifest, type):
            stored = find_edges(self._graph, self._manifest, type, [tuple(json.loads(ids[0]))])
            ids = [id for found in stored.values() for id in found]
        rows = StoredSnapshot(self._graph, self._manifest).rows_of(type.key, ids)
        if not rows.num_rows:
            return None
        found = type.from_graph(rows).to_pylist()[0]
        values = {column.name: found[column.physical] for column in type.schema.columns}
        for column in type.schema.columns:
            if column.scalar is None and values[column.name] is not None:
                values[column.name] = declaration.json_decoder(column.name)(values[column.name])
        if declaration.ref.kind == "relation":
            values |= {"left_key": found["left_key"], "right_key": found["right_key"]}
            if declaration.instance_key:
                values[declaration.instance_key] = found["instance_key"]
        return cls(**values)

    def to_arrow(self, cls: type[Declared], columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of a type as Lance has them: ids, then fields."""
        return StoredSnapshot(self._graph, self._manifest).read(key_of(cls.__declaration__.ref), columns)

    def count(self, cls: type[Declared]) -> int:
        """How many rows a type has, from the catalog alone."""
        pin = self._manifest.pins.get(key_of(cls.__declaration__.ref))
        return 0 if pin is None else pin.rows


class Omnigraph:
    """A graph at a path, `file://` or `s3://`.

    >>> graph = Omnigraph.init("file:///data/people", types=[Person, Knows])        # doctest: +SKIP
    >>> with graph.transaction(message="two people") as tx:                          # doctest: +SKIP
    ...     tx.upsert([Person(name="ann"), Person(name="bob")])
    ...     tx.upsert(Knows(left_key="ann", right_key="bob"))
    >>> graph.create_branch("review")                                                # doctest: +SKIP
    """

    def __init__(self, graph: Graph, types: Iterable[type[Declared]] | None = None, actor: str | None = None) -> None:
        self._graph = graph
        self._actor = actor
        self._engines: dict[str, GraphEngine] = {}  #: by branch: they keep compiled statements
        self.declarations: dict[TypeRef, Declaration] = {}
        for cls in types or ():
            declaration = getattr(cls, "__declaration__", None)
            if declaration is None:
                raise TypeError(f"{cls!r} is not a class derived from Entity or Relation")
            self.declarations[declaration.ref] = declaration

    def __repr__(self) -> str:
        try:
            return repr(self.snapshot())
        except OntologiaError as problem:
            return f"Graph {self._graph.objects.uri}: {problem}"

    def _repr_html_(self) -> str:
        try:
            return self.snapshot()._repr_html_()
        except OntologiaError:
            return f"<div>{escape(repr(self))}</div>"

    @classmethod
    def init(
        cls,
        uri: str | os.PathLike[str],
        types: Iterable[type[Declared]] = (),
        *,
        actor: str | None = None,
        config: OntologiaConfig | None = None,
    ) -> Self:
        """Make a graph in an empty place, with an empty table for every type."""
        objects = Location.of(uri, config).open_objects()
        storage_options(objects)  # where graphs cannot be is said before anything is asked of the place
        found = next(iter(objects.list()), None)
        if found is not None:
            held = "a graph" if objects.exists(STATE) else found.key
            raise ValidationError(f"{objects.uri} holds {held} already: open it, or make a graph in an empty place")
        check_outside(objects)
        graph = cls(Graph.init(objects, config), types, actor)
        if graph.declarations:
            graph._register()
        return graph

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        types: Iterable[type[Declared]] | None = None,
        mode: OpenMode = OpenMode.READ_WRITE,
        actor: str | None = None,
        *,
        config: OntologiaConfig | None = None,
    ) -> Self:
        """Open a graph. Read-write runs migrations, then recovery; read-only writes nothing, ever."""
        return cls(Graph.open(Location.of(uri, config).open_objects(), config, mode=mode), types, actor)

    def _register(self) -> None:
        def prepare(manifest: GraphManifest) -> GraphWrite | None:
            missing = [it for ref, it in self.declarations.items() if key_of(ref) not in manifest.pins]
            types = [GraphType(declaration.schema) for declaration in missing]
            changes = [register(manifest, type, TableChange(type.key)) for type in types]
            return plan_mutation(self._graph, manifest, changes, Checks(), {})

        self._graph.write("main", "SchemaApply", prepare, actor=self._actor)

    @property
    def uri(self) -> str:
        return self._graph.objects.uri

    # --- writing ---

    def transaction(
        self,
        branch: str = "main",
        *,
        actor: str | None = None,
        message: str | None = None,
        if_commit: str | None = None,
    ) -> GraphTransaction:
        """One atomic commit: leave the block to make it, leave it with an exception to forget it.

        With `if_commit`, it is made only if that is still the newest commit of the branch.
        """
        return GraphTransaction(self._graph, branch, actor=actor or self._actor, message=message, if_commit=if_commit)

    def load(
        self,
        source: str | os.PathLike[str] | pa.Table | pa.RecordBatchReader,
        mode: str = "merge",
        *,
        branch: str = "main",
        from_: str | None = None,
        type: type[Declared] | None = None,
        actor: str | None = None,
    ) -> CommitRecord | None:
        """Bulk: a file of JSON lines, or Arrow rows of one `type`, as one commit. Memory does not grow with them.

        `overwrite` replaces all rows of the types that are loaded, `append` takes only new keys, `merge` updates. With
        `from_`, a branch that does not exist is made from there.
        """
        self._graph.check_writable()
        if from_ is not None and branch not in self._graph.branches():
            self.create_branch(branch, from_=from_)
        who = actor or self._actor
        return loading.load(self._graph, self.known_types(branch), source, mode, branch=branch, cls=type, actor=who)

    def known_types(self, branch: str = "main") -> Mapping[TypeRef, Declaration]:
        """The declared types; where no classes were given, those that the graph stores."""
        if self.declarations:
            return self.declarations
        layouts = GraphEngine(self._graph, branch=branch).catalog().layouts
        return declare_stored(layout.schema for layout in layouts.values())

    def export(self, path: str | os.PathLike[str], branch: str = "main") -> int:
        """Write all objects of the declared types (or all, where none are) as lines that `load` takes; how many."""
        return write_lines(self, Path(path), branch)

    # --- branches ---

    def create_branch(self, name: str, from_: str = "main") -> str:
        """Make a branch from a branch, tag or commit. Nothing is copied; tables fork when the branch writes to them."""
        return branches.create_branch(self._graph, name, from_)

    def branches(self) -> list[Branch]:
        """main first, then the others by name."""
        return branches.list_branches(self._graph)

    def delete_branch(self, name: str) -> None:
        """Delete a branch; refused while other branches or tags need it."""
        branches.delete_branch(self._graph, name)

    def merge(
        self,
        source: str,
        into: str = "main",
        *,
        strategy: Strategy = "fail",
        delete_branch: bool = False,
        dry_run: bool = False,
        actor: str | None = None,
        message: str | None = None,
    ) -> merge.MergeReport:
        """Merge three-way, row by row, into one commit with two parents. A conflict fails unless `strategy` decides:
        `ours` keeps the target's value, `theirs` takes the source's."""
        report = merge.merge(
            self._graph,
            source,
            into,
            strategy=strategy,
            dry_run=dry_run,
            actor=actor or self._actor,
            message=message,
        )
        if delete_branch and not dry_run:
            self.delete_branch(source)
        return report

    def tag(self, name: str, commit: str | int | None = None) -> None:
        """Name a commit; what it needs is kept until the tag is deleted."""
        branches.create_tag(self._graph, name, commit)

    def tags(self) -> Mapping[str, tuple[str, int]]:
        """Tags, and the branch and version they stand for."""
        return tags_of(self._graph)

    def delete_tag(self, name: str) -> None:
        branches.delete_tag(self._graph, name)

    # --- history ---

    def commits(self, branch: str = "main") -> list[CommitRecord]:
        """The history of a branch, newest first."""
        return list(self._graph.commits(branch))

    def snapshot(self, reference: str | int | None = None, branch: str = "main") -> GraphSnapshot:
        """The state at a commit, branch, tag or version (of `branch`)."""
        return GraphSnapshot(self._graph, resolve(self._graph, reference, branch))

    def diff(
        self,
        a: str | int,
        b: str | int | None = None,
        *,
        types: Sequence[type[Declared]] | None = None,
        ops: Sequence[str] | None = None,
    ) -> history.ChangeSet:
        """What differs between two states, row by row, before and after; with `"main...review"` alone, what the branch
        `review` changed since its last commit in common with `main`, which is what a merge looks at."""
        keys = None if types is None else [key_of(cls.__declaration__.ref) for cls in types]
        return history.diff(self._graph, *history.resolve_range(self._graph, a, b), keys, ops)

    def changes(
        self, since: str | None = None, *, branch: str = "main", limit: int | None = None
    ) -> history.ChangeFeed:
        """What commits after a cursor changed, oldest first; `limit` counts commits. The feed has the next cursor."""
        return history.changes_since(self._graph, branch, since, limit)

    def query(self, branch: str = "main", commit: str | int | None = None) -> QueryRoot:
        """The query builder on a branch, or on a commit of it."""
        if commit is not None:
            return self.snapshot(commit, branch).query()
        if branch not in self._engines:
            self._engines[branch] = GraphEngine(self._graph, branch=branch)
        return QueryRoot(self._engines[branch])

    # --- schema ---

    def plan_schema(self, types: Iterable[type[Declared]], upgraders: Upgraders | None = None) -> SchemaPlan:
        """What `apply_schema` would do."""
        steps = registered_upgraders() if upgraders is None else upgraders
        return graph_schema.plan_schema(GraphEngine(self._graph), _declarations(types), steps)

    def apply_schema(
        self, types: Iterable[type[Declared]], *, allow_data_loss: bool = False, upgraders: Upgraders | None = None
    ) -> int | None:
        """Add, change, rename and drop types in one commit, which records the migration. None when there is nothing to
        do. Names change where a class says `renamed_from`."""
        self._graph.check_writable()
        steps = registered_upgraders() if upgraders is None else upgraders
        declarations = _declarations(types)
        number = graph_schema.apply_schema(self._graph, declarations, steps, allow_data_loss=allow_data_loss)
        self.declarations = {declaration.ref: declaration for declaration in declarations}
        return number

    # --- care ---

    def optimize(self, branch: str = "main") -> CommitRecord | None:
        """Compact tables and bring indexes up to date, in one commit."""
        return maintenance.optimize(self._graph, branch, self._actor)

    def ensure_indices(self, branch: str = "main") -> CommitRecord | None:
        """Build declared indexes that are missing."""
        return maintenance.ensure_indices(self._graph, branch, self._actor)

    def cleanup(self, keep: int = 10, older_than: str = "7d", *, dry_run: bool = True) -> cleanup.CleanupReport:
        """Forget states beyond the newest `keep` and older than `older_than`, unless a branch or tag needs them."""
        return cleanup.cleanup(self._graph, keep, older_than, dry_run=dry_run)

    def repair(
        self, branch: str | None = None, *, confirm: bool = False, force: bool = False
    ) -> list[maintenance.Drift]:
        """Look on one branch, or on all, for versions that the graph did not make and indexes that cannot be read, and
        settle them with `confirm`."""
        return maintenance.repair(self._graph, branch, confirm=confirm, force=force)

    def recoveries(self) -> list[RecoveryRecord]:
        """The audit trail: every unfinished write that was rolled forward or back."""
        return self._graph.commit_log.recoveries()

    def close(self) -> None:
        """Let go of what queries keep. The graph can still be used, and opens it again."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _declarations(types: Iterable[type[Declared]]) -> list[Declaration]:
    found = [cls.__declaration__ for cls in types]
    entities = {declaration.ref.name for declaration in found if issubclass(declaration.cls, Entity)}
    for declaration in found:
        ends = {declaration.schema.left, declaration.schema.right} - {None}
        missing = sorted(str(name) for name in ends - entities)
        if missing:
            raise ValidationError(f"{declaration.ref} joins {', '.join(missing)}, which is not among the types")
    return found
