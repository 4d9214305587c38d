"""From the names in a query to cells: which frames it reads, at which version, and which cells it can leave out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlglot import exp
from sqlglot.expressions import Expr
from sqlglot.optimizer.scope import traverse_scope

from ontologia.apiary.conditions import conjunction
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.pruning import Pruned, prune_cells
from ontologia.apiary.registry import RegistryState
from ontologia.apiary.sql.columns import columns_meant
from ontologia.apiary.sql.statements import DIALECT
from ontologia.apiary.state import FrameSnapshot
from ontologia.apiary.types import FrameSchema
from ontologia.errors import UnknownNameError, UnsupportedStatementError, ValidationError

_GENERATORS = ("GenerateSeries", "Unnest", "ExplodingGenerateSeries", "Explode")
_REACHING_OUT = ("reflect", "java_method", "try_reflect", "from_protobuf", "to_protobuf")
_INNER = ("", "INNER", "CROSS")


@dataclass(frozen=True)
class Reference:
    """One place where a query names a frame, the view that stands for it, and what the query says of its rows alone."""

    view: str
    name: FrameName
    snapshot: FrameSnapshot
    pruned: Pruned
    where: Expr | None = None

    @property
    def keys(self) -> list[str]:
        """The storage keys of the cells to scan."""
        return [f"{self.name.folder}/{cell.path}" for cell in self.pruned.scanned]


@dataclass(frozen=True)
class PlannedQuery:
    """A query whose tables are views over cells."""

    tree: Expr
    references: Sequence[Reference]

    def sql(self, dialect: str = DIALECT) -> str:
        return self.tree.sql(dialect=dialect)

    def columns(self, schema: FrameSchema) -> list[str]:
        """The columns of a frame that the query may mean."""
        return columns_meant(self.tree, schema)


def plan_query(node: Node, tree: Expr, hive: str | None, box: str | None, pins: ExitStack) -> PlannedQuery:
    """Resolve every name, prune every frame, and put a view in each place. Versions are pinned by `pins`."""
    tree = tree.copy()
    _refuse_functions(tree)
    state = node.registry.state(fresh=False)
    snapshots: dict[tuple[FrameName, int | None], FrameSnapshot] = {}
    references: list[tuple[Any, Reference]] = []
    for table, select in _tables(tree):
        name = _resolve(node, state, table, hive, box)
        version = _version(table)
        if (name, version) not in snapshots:  # one statement sees one version of a frame
            snapshots[name, version] = pins.enter_context(node.reading(name, version))
        snapshot = snapshots[name, version]
        where = None if select is None else _where_of(select, table, snapshot)
        view = f"frame_{uuid4().hex}"
        references.append((table, Reference(view, name, snapshot, prune_cells(snapshot, where), where)))
    if not references and not tree.find(exp.Table, exp.Unnest, exp.Values):
        raise ValidationError("a query needs a frame to read from, as in SELECT * FROM hive.box.frame")
    for table, reference in references:
        _replace(table, reference)
    for column in tree.find_all(exp.Column):
        column.set("db", None)
        column.set("catalog", None)
    return PlannedQuery(tree, [reference for _, reference in references])


def _tables(tree: Expr) -> list[tuple[Any, Any]]:
    """The tables that are not names of the query's own, each with the SELECT whose FROM it stands in."""
    found: dict[int, tuple[Any, Any]] = {}
    own: set[int] = set()
    for scope in traverse_scope(tree):
        for _, (node, source) in scope.selected_sources.items():
            if isinstance(source, exp.Table):
                found[id(source)] = (source, scope.expression)
            elif isinstance(node, exp.Table):
                own.add(id(node))
    for table in tree.find_all(exp.Table):
        if id(table) not in found and id(table) not in own and not _is_generator(table):
            found[id(table)] = (table, None)
    return [pair for pair in found.values() if not _is_generator(pair[0])]


def _is_generator(table: Any) -> bool:
    return type(table.this).__name__ in _GENERATORS


def _refuse_functions(tree: Expr) -> None:
    """Nothing is read but frames: no table functions, which would read files, no names of files, and no functions of
    Spark that call Java or open files."""
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier | exp.Dot) and not _is_generator(table):
            raise UnsupportedStatementError(
                f"{table.this.sql(dialect=DIALECT)[:60]} cannot be read from: SQL over frames reads frames, by their "
                "names hive.box.frame"
            )
    for function in tree.find_all(exp.Anonymous):
        if function.name.lower() in _REACHING_OUT:
            raise UnsupportedStatementError(
                f"{function.name} runs code of Spark's own machine: it cannot be called here"
            )


def _resolve(node: Node, state: RegistryState, table: Any, hive: str | None, box: str | None) -> FrameName:
    parts = [part.name for part in table.parts]
    given = ".".join(parts)
    if len(parts) > 3:
        raise ValidationError(f"{given!r} has {len(parts)} parts: a frame is named hive.box.frame")
    if len(parts) < 3 and hive is None:
        raise UnknownNameError(
            f"{given!r} is not a frame yet: name it hive.box.frame, or say USE HIVE and USE BOX before"
        )
    if len(parts) == 1 and box is None:
        raise UnknownNameError(f"{given!r} is not a frame yet: name it hive.box.frame, or say USE BOX before")
    defaults = [hive or "", box or ""][: 3 - len(parts)]
    name = FrameName(*defaults, *parts)
    if state.has(name):
        return name
    fresh = node.registry.state()
    return name if fresh.has(name) else _in_any_case(fresh, name)


def _in_any_case(state: RegistryState, name: FrameName) -> FrameName:
    """SQL does not care about case; names in the registry do, so only one that is alone is taken."""
    found = [there for there in state.frame_names() if str(there).casefold() == str(name).casefold()]
    if len(found) != 1:
        state.frame(name)  # says what there is
    return found[0]


def _version(table: Any) -> int | None:
    """`FOR VERSION AS OF 3` or `AT (VERSION => 3)`."""
    said = table.args.get("version") or table.args.get("when")
    if said is None:
        return None
    number = said.expression
    kind = str(said.args.get("kind") if table.args.get("when") else said.this).upper()
    if kind != "VERSION" or number is None or not number.is_int:
        raise ValidationError(f"a version is named by its number, as in FOR VERSION AS OF 3: not {said.sql()!r}")
    return int(number.this)


def _replace(table: Any, reference: Reference) -> None:
    alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(table.name, quoted=True))
    kept = {key: table.args.get(key) for key in ("sample", "pivots", "joins", "laterals") if table.args.get(key)}
    table.replace(exp.Table(this=exp.to_identifier(reference.view, quoted=True), alias=alias, **kept))


# --- conditions --------------------------------------------------------------------------------------------------


def _where_of(select: Any, table: Any, snapshot: FrameSnapshot) -> Expr | None:
    """The part of a SELECT's WHERE that is about one of its tables alone, with declared column names."""
    if not isinstance(select, exp.Select) or select.args.get("where") is None or not _may_prune(select, table):
        return None
    alone = not (select.args.get("joins") or select.args.get("laterals"))
    alias = (table.alias or table.name).casefold()
    folded = {name.casefold(): name for name in snapshot.schema.names}
    parts = []
    for part in (
        select.args["where"].this.flatten()
        if isinstance(select.args["where"].this, exp.And)
        else [select.args["where"].this]
    ):
        columns = list(part.find_all(exp.Column))
        mine = all(
            column.name.casefold() in folded and (column.table.casefold() == alias if column.table else alone)
            for column in columns
        )
        if columns and mine and part.find(exp.Query) is None:
            parts.append(_declare_columns(part.copy(), folded))
    return conjunction(parts)


def _declare_columns(tree: Expr, folded: dict[str, str]) -> Expr:
    def named(node: Expr) -> Expr:
        return exp.column(folded[node.name.casefold()], quoted=True) if isinstance(node, exp.Column) else node

    return tree.transform(named)


def _may_prune(select: Any, table: Any) -> bool:
    """Rows of an outer join's optional side are missed, not filtered, and those of a positional one are counted:
    leaving some out would change the answer. Columns that an alias renames are not those of the frame."""
    if select.args.get("sample"):  # is taken of all rows, before WHERE
        return False
    joins = select.args.get("joins") or []
    if any(join.side in ("RIGHT", "FULL") or join.method == "POSITIONAL" for join in joins):
        return False
    own = table.parent
    if isinstance(own, exp.Join):
        if own not in joins or own.side or own.kind not in _INNER or own.method == "ASOF":
            return False
    elif own is not select.args.get("from_"):  # between brackets, with joins of its own
        return False
    return not any(table.args.get(name) for name in ("joins", "pivots", "sample")) and not table.alias_column_names
