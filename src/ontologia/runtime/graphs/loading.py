"""Loads: rows of any number come in, are checked together and become one commit. Memory does not grow with them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ontologia.engines.omnigraph.edges import take_over_ids
from ontologia.engines.omnigraph.engine import catalog_of
from ontologia.engines.omnigraph.types import GraphType
from ontologia.errors import GraphValidationError, ValidationError
from ontologia.files.row_spools import RowSpool
from ontologia.model import Declaration, Declared, TypeRef
from ontologia.omnigraph.graph import Graph
from ontologia.omnigraph.lookups import find_repeated, last_places
from ontologia.omnigraph.manifest import CommitRecord, GraphManifest
from ontologia.omnigraph.mutation import Checks, TableChange, plan_mutation
from ontologia.omnigraph.phases import GraphWrite
from ontologia.runtime.graphs.changes import register, rows_of_objects, rows_of_table
from ontologia.runtime.graphs.files import read_lines

MODES = ("overwrite", "append", "merge")
OBJECTS_AT_ONCE = 10_000
ROWS_AT_ONCE = 131_072


class LoadedRows:
    """The rows of one type in a load, in the columns of its table."""

    def __init__(self, declaration: Declaration, type: GraphType) -> None:
        self.declaration = declaration
        self.type = type
        self._spool = RowSpool(type.arrow)
        self._objects: list[Declared] = []

    def add(self, obj: Declared) -> None:
        self._objects.append(obj)
        if len(self._objects) >= OBJECTS_AT_ONCE:
            self._flush()

    def add_rows(self, rows: pa.Table) -> None:
        self._spool.add(self.type.to_graph(rows))

    def _flush(self) -> None:
        if self._objects:
            self.add_rows(rows_of_objects(self.declaration, self._objects))
            self._objects = []

    def table(self, *, last_wins: bool) -> pa.Table:
        """All rows, each id once: the last of them, or none and an error that names those that come again."""
        self._flush()
        rows = self._spool.table()
        twice = find_repeated(rows.column("id"))
        if not twice:
            return rows
        if not last_wins:
            problems = [f"{self.type.key} {name!r} comes {count} times" for name, count in twice]
            raise GraphValidationError("the load was refused", problems)
        return RowSpool(rows.schema).extend(_keep_last(rows)).table()


def _keep_last(rows: pa.Table) -> Iterator[pa.Table]:
    """The last row of each id, some at a time: taking them all at once would hold them all."""
    wanted = np.zeros(rows.num_rows, bool)
    wanted[last_places(rows.column("id"))] = True
    for start in range(0, rows.num_rows, ROWS_AT_ONCE):
        yield rows.slice(start, ROWS_AT_ONCE).filter(pa.array(wanted[start : start + ROWS_AT_ONCE]))


def load(
    graph: Graph,
    declarations: Mapping[TypeRef, Declaration],
    source: Any,
    mode: str,
    *,
    branch: str,
    cls: type[Declared] | None,
    actor: str | None,
) -> CommitRecord | None:
    """A file of JSON lines, or Arrow rows of one class, as one commit."""
    if mode not in MODES:
        raise ValidationError(f"mode is {', '.join(MODES)}, not {mode!r}")
    is_file = isinstance(source, (str, os.PathLike))
    if not is_file and cls is None:
        raise ValidationError("a table is loaded as a type: load(table, type=Person)")
    layouts = catalog_of(graph.manifest(branch)).layouts
    loaded: dict[TypeRef, LoadedRows] = {}

    def rows_of(declaration: Declaration) -> LoadedRows:
        ref = declaration.ref
        if ref not in loaded:
            schema = layouts[ref].schema if ref in layouts else declaration.schema
            loaded[ref] = LoadedRows(declaration, GraphType(schema))
        return loaded[ref]

    if is_file:
        types = {(ref.kind, ref.name): declaration for ref, declaration in declarations.items()}
        for obj in read_lines(Path(source), types):
            rows_of(obj.__declaration__).add(obj)
    else:
        assert cls is not None
        for part in _parts(source):
            rows_of(cls.__declaration__).add_rows(rows_of_table(cls.__declaration__, part))
        rows_of(cls.__declaration__)  # an empty table is a load, too
    tables = {ref: rows.table(last_wins=is_file and mode != "append") for ref, rows in loaded.items()}

    def prepare(manifest: GraphManifest) -> GraphWrite | None:
        catalog_of(manifest).check({ref: rows.declaration.schema for ref, rows in loaded.items()})
        changes = [_change(manifest, rows.type, tables[ref], mode) for ref, rows in loaded.items()]
        for change, rows in zip(changes, loaded.values(), strict=True):
            take_over_ids(graph, manifest, rows.type, change)
        return plan_mutation(graph, manifest, changes, Checks(), {})

    return graph.write(branch, "Load", prepare, actor=actor)


def _parts(source: pa.Table | pa.RecordBatchReader) -> Iterable[pa.Table]:
    if isinstance(source, pa.Table):
        return (source.slice(start, ROWS_AT_ONCE) for start in range(0, source.num_rows, ROWS_AT_ONCE))
    if isinstance(source, pa.RecordBatchReader):
        return (pa.Table.from_batches([batch]) for batch in source)
    raise ValidationError(f"a load takes a file of JSON lines, an Arrow table or a RecordBatchReader, not {source!r}")


def _change(manifest: GraphManifest, type: GraphType, rows: pa.Table, mode: str) -> TableChange:
    change = TableChange(type.key, rows, all_new=mode == "append", replace_all=mode == "overwrite")
    return register(manifest, type, change)
