"""`onto query entities|relations|traverse`: questions by type name, with or without classes at hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontologia.cli import filters
from ontologia.cli.diagnostics import tell
from ontologia.cli.exits import UsageError
from ontologia.cli.options import (
    AcrossVersions,
    AsOf,
    HistorySince,
    Models,
    OnBranch,
    QueryEngine,
    UpgraderModules,
    commit_of,
    number,
)
from ontologia.cli.output import Face, count_noun
from ontologia.cli.run import Run, command, group
from ontologia.model import Kind, TypeRef, TypeSchema, parse_texts
from ontologia.model.values import plain

if TYPE_CHECKING:
    from ontologia.query.plan import Hop, Order, Plan, Window
    from ontologia.query.query import QuerySource
    from ontologia.runtime.store import Store

MOST_ON_TERMINAL = 100
TypeName = Annotated[str, typer.Argument(metavar="TYPE", help="The stored name of the type.", show_default=False)]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="PATH OP JSON",
        help="As '$.tier' eq '\"Gold\"'. Paths: $.f $.a.b $.left.f $.right.f. Operators: "
        "eq ne gt gte lt lte in is_null. Many filters must all pass.",
    ),
]
WithHistory = Annotated[bool, typer.Option("--with-history", help="Every version, oldest first.")]
OrderBy = Annotated[
    list[str] | None, typer.Option("--order-by", metavar="FIELD[:desc]", help="Sort by a field; may be repeated.")
]
Limit = Annotated[int | None, number("--limit", help="At most N rows; by default 100 on a terminal, else all.")]
Offset = Annotated[int | None, number("--offset", help="Skip the first N rows.")]


def register(app: typer.Typer) -> None:
    found = group(app, "query", "Ask for entities, relations, or paths between them.")
    gold = "--filter '$.tier' eq '\"Gold\"'"
    command(found, "entities", example=f"onto query entities Customer {gold} --order-by name --limit 10")(entities)
    command(found, "relations", example=f"onto query relations Subscription {gold.replace('$.', '$.left.')}")(relations)
    command(found, "traverse", example=f"onto query traverse Customer --via Subscription {gold}")(traverse)


def entities(
    run: Run,
    type_name: TypeName,
    models: Models = None,
    filter: Filters = None,
    as_of: AsOf = None,
    with_history: WithHistory = False,
    history_since: HistorySince = None,
    order_by: OrderBy = None,
    limit: Limit = None,
    offset: Offset = None,
    engine: QueryEngine = None,
    branch: OnBranch = None,
    across_versions: AcrossVersions = False,
    upgraders: UpgraderModules = None,
) -> None:
    """Entities of one type: the latest state, or any other state or stretch of history."""
    _rows(
        run, "entity", type_name, models, filter, as_of, with_history, history_since, order_by, limit, offset,
        engine, branch, across_versions, upgraders,
    )  # fmt: skip


def relations(
    run: Run,
    type_name: TypeName,
    models: Models = None,
    filter: Filters = None,
    as_of: AsOf = None,
    with_history: WithHistory = False,
    history_since: HistorySince = None,
    order_by: OrderBy = None,
    limit: Limit = None,
    offset: Offset = None,
    engine: QueryEngine = None,
    branch: OnBranch = None,
    across_versions: AcrossVersions = False,
    upgraders: UpgraderModules = None,
) -> None:
    """Relations of one type; filters may look at either end."""
    _rows(
        run, "relation", type_name, models, filter, as_of, with_history, history_since, order_by, limit, offset,
        engine, branch, across_versions, upgraders,
    )  # fmt: skip


def traverse(
    run: Run,
    type_name: TypeName,
    via: Annotated[
        list[str] | None, typer.Option("--via", metavar="RELATION", help="The next step; given once for each step.")
    ] = None,
    models: Models = None,
    filter: Filters = None,
    as_of: AsOf = None,
    with_history: WithHistory = False,
    history_since: HistorySince = None,
    order_by: OrderBy = None,
    limit: Limit = None,
    offset: Offset = None,
    engine: QueryEngine = None,
    branch: OnBranch = None,
    across_versions: AcrossVersions = False,
    upgraders: UpgraderModules = None,
) -> None:
    """Paths from entities of one type over relations. Filters are about where the paths start."""
    if not via:
        raise UsageError("--via is needed: the relation to follow, once for each step")
    with run.store(run.model_names(models), branch=branch) as store, run.output.progress("asking"):
        window = _window(store, as_of, with_history, history_since)
        asked = _Question(store, TypeRef("entity", type_name), _source(run, store, engine))
        plan = asked.plan(filter, window, order_by, _at_most(run, limit), offset)
        hops = asked.hops(via)
        refs = [plan.source, *(ref for hop in hops for ref in (hop.relation, hop.entity))]
        plan = replace(
            plan,
            hops=hops,
            schemas={**plan.schemas, **{ref: asked.schema(ref) for ref in refs}},
            across=run.across(store, across_versions, upgraders),
        )
        parts, diagnostics = asked.parts(plan, refs)
    more = _is_cut(run, limit, parts[0])
    parts = [records[:MOST_ON_TERMINAL] for records in parts] if more else parts
    paths = [
        {
            "source": source,
            "steps": [
                {"relation": rest[2 * number], "entity": rest[2 * number + 1]} for number in range(len(rest) // 2)
            ],
        }
        for source, *rest in zip(*parts, strict=True)
    ]
    facts = {"type": type_name, "via": via, "count": len(paths), "paths": paths, "diagnostics": diagnostics}

    def draw(face: Face) -> None:
        names = [type_name, *(name for hop in hops for name in (hop.relation.name, hop.entity.name))]
        rows = [[_name_record(part) for part in path] for path in zip(*parts, strict=True)]
        face.table(names, rows)
        face.line(count_noun(len(paths), "path"), "dim")

    _finish(run, facts, draw, more=more)


def _name_record(record: dict[str, Any]) -> str:
    identity = [record[key] for key in ("key", "left_key", "right_key", "instance_key") if record.get(key)]
    shown = "/".join(identity) if "key" in record else record.get("instance_key") or ""
    fields = {name: value for name, value in record["fields"].items() if value != record.get("key")}
    text = ", ".join(f"{name}={json.dumps(plain(value), ensure_ascii=False)}" for name, value in fields.items())
    return f"{shown} ({text})" if text else shown


def _rows(
    run: Run,
    kind: Kind,
    type_name: str,
    models: list[str] | None,
    filter: list[str] | None,
    as_of: int | datetime | None,
    with_history: bool,
    history_since: int | None,
    order_by: list[str] | None,
    limit: int | None,
    offset: int | None,
    engine: str | None,
    branch: str | None,
    across_versions: bool,
    upgraders: list[str] | None,
) -> None:
    with run.store(run.model_names(models), branch=branch) as store, run.output.progress("asking"):
        window = _window(store, as_of, with_history, history_since)
        asked = _Question(store, TypeRef(kind, type_name), _source(run, store, engine))
        plan = asked.plan(filter, window, order_by, _at_most(run, limit), offset)
        plan = replace(plan, across=run.across(store, across_versions, upgraders))
        (records,), diagnostics = asked.parts(plan, [plan.source])
    more = _is_cut(run, limit, records)
    records = records[:MOST_ON_TERMINAL] if more else records
    facts = {"kind": kind, "type": type_name, "count": len(records), "rows": records, "diagnostics": diagnostics}

    def draw(face: Face) -> None:
        keys = [] if kind == "entity" else ["left_key", "right_key"]
        if kind == "relation" and plan.schema.instance_key is not None:
            keys.append("instance_key")
        if not window.deduplicated:
            keys.insert(0, "commit_id")
        names = [column.name for column in plan.schema.columns]
        rows = [[*(row[key] for key in keys), *(row["fields"][name] for name in names)] for row in records]
        if any("removed" in row for row in records):
            names.append("")
            rows = [[*row, "removed" if "removed" in it else ""] for row, it in zip(rows, records, strict=True)]
        face.table([*keys, *names], rows)
        face.line(count_noun(len(records), "row"), "dim")

    _finish(run, facts, draw, more=more)


def _at_most(run: Run, limit: int | None) -> int | None:
    """How many rows to ask for. On a terminal one more than are shown, to know whether there are any."""
    return MOST_ON_TERMINAL + 1 if limit is None and run.output.on_terminal else limit


def _is_cut(run: Run, limit: int | None, rows: Sequence[Any]) -> bool:
    return limit is None and run.output.on_terminal and len(rows) > MOST_ON_TERMINAL


def _finish(run: Run, facts: dict[str, Any], draw: Any, *, more: bool) -> None:
    run.output.show(facts, draw)
    if more:
        run.output.warn(f"only the first {MOST_ON_TERMINAL} are shown, and there are more: say how many with --limit N")
    tell(run.output, facts["diagnostics"])


def _window(store: Store, as_of: int | datetime | None, with_history: bool, history_since: int | None) -> Window:
    from ontologia.query.plan import Window

    if sum((as_of is not None, with_history, history_since is not None)) > 1:
        raise UsageError("--as-of, --with-history and --history-since exclude each other")
    if as_of is not None:
        return Window("as_of", commit_of(store, as_of))
    if history_since is not None:
        return Window("since", history_since)
    return Window("history") if with_history else Window()


def _source(run: Run, store: Store, engine: str | None) -> QuerySource:
    """Who answers: the store's own engine, or Spark."""
    if engine != "spark":
        return store.engine
    session = run.spark()
    from ontologia.spark.reading.queries import SparkSource

    return SparkSource(session, store.engine)


class _Question:
    """A plan made from names. A declared class says what a type is; else the store does."""

    def __init__(self, store: Store, ref: TypeRef, source: QuerySource) -> None:
        self._store = store
        self._source = source
        self._ref = ref
        self._catalog = store.engine.catalog()
        self.schema(ref)

    def schema(self, ref: TypeRef) -> TypeSchema:
        declared = self._store.schemas.get(ref)
        if declared is not None:
            return declared
        if ref in self._catalog.dropped:  # it reads as empty, and still is what it was last (RFC 0009 §9)
            versions = self._store.engine.schema_versions(ref)
            if versions:
                return versions[-1].schema
        return self._catalog.find_type(ref.name, ref.kind).schema

    def plan(
        self,
        given: list[str] | None,
        window: Window,
        order_by: list[str] | None,
        limit: int | None,
        offset: int | None,
    ) -> Plan:
        from ontologia.query.plan import Plan

        where = tuple(filters.predicate(self.schema, self._ref, *filters.parts(text)) for text in given or ())
        operands = [condition.operand for predicate in where for condition in predicate.conditions()]
        refs = {self._ref, *(operand.owner for operand in operands)}
        return Plan(
            self._ref,
            {ref: self.schema(ref) for ref in sorted(refs)},
            window,
            where,
            tuple(self._order(text) for text in order_by or ()),
            limit,
            offset,
            stored=True,
        )

    def _order(self, text: str) -> Order:
        from ontologia.query.plan import Order

        name, _, direction = text.partition(":")
        if direction not in ("", "asc", "desc"):
            raise UsageError(f"--order-by {text!r}: write FIELD, FIELD:asc or FIELD:desc")
        try:
            place = filters.field(self.schema, self._ref, name if name.startswith("$.") else f"$.{name}")
        except ValueError as problem:
            raise UsageError(f"--order-by {text!r}: {problem}") from None
        if place.side is not None:
            raise UsageError(f"--order-by {text!r}: sort by a field of {self._ref.name} itself")
        return Order(place, direction == "desc")

    def hops(self, via: Sequence[str]) -> tuple[Hop, ...]:
        from ontologia.query.plan import Hop

        here, found = self._ref.name, []
        for name in via:
            relation = TypeRef("relation", name)
            schema = self.schema(relation)
            if here not in (schema.left, schema.right):
                raise UsageError(f"--via {name} does not touch {here}: it joins {schema.left} and {schema.right}")
            forward = here == schema.left
            here = str(schema.right if forward else schema.left)
            found.append(Hop(relation, TypeRef("entity", here), forward))
        return tuple(found)

    def parts(self, plan: Plan, refs: Sequence[TypeRef]) -> tuple[list[list[dict[str, Any]]], list[dict[str, Any]]]:
        """The records of each of these types, side by side, in the shape that an export has."""
        fetched = self._source.fetch(plan)
        found, start = [], 0
        for ref in refs:
            schema = plan.schemas[ref]
            end = start + 1 + len(ref.identity) + len(schema.columns)
            removed = fetched.columns[end] if plan.shows_removals else None
            found.append(records_of(schema, fetched.columns[start:end], removed))
            start = end
        return found, list(fetched.diagnostics)


def records_of(
    schema: TypeSchema, columns: Sequence[Sequence[Any]], removed: Sequence[bool] | None = None
) -> list[dict[str, Any]]:
    """Rows in the shape that an export has; of versions, those that are removals say so."""
    commits, *rest = columns
    width = len(schema.ref.identity)
    keys = ["key"] if schema.ref.kind == "entity" else list(schema.ref.identity)
    fields = [
        parse_texts(values) if column.scalar is None else values
        for column, values in zip(schema.columns, rest[width:], strict=True)
    ]
    names = [column.name for column in schema.columns]
    values = zip(*fields, strict=True) if fields else ((),) * len(commits)
    found = [
        {**dict(zip(keys, identity, strict=True)), "commit_id": commit, "fields": dict(zip(names, row, strict=True))}
        for commit, identity, row in zip(commits, zip(*rest[:width], strict=True), values, strict=True)
    ]
    for record, is_removal in zip(found, removed or (), strict=False):
        if is_removal:
            record["removed"] = True
    return found
