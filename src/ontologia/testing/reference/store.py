"""A store in plain Python: what every engine must do, with nothing but lists and dicts.

`ReferenceStore` takes commits, migrations and drops like a store, and answers the same plans as an engine, so that one
query runs on both:

    build = lambda query: query.entities(Customer).where(Customer.age > 30).collect()
    assert make_plain(build(session.query())) == make_plain(build(reference.query()))

It is slow and simple on purpose. Where an engine and this file disagree, one of them is wrong about RFC 0004 §4.3 or
RFC 0009 §2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import pyarrow as pa

from ontologia.engines.changes import INSERT, REMOVE, UPDATE, change_entry
from ontologia.engines.object_rows import identity_of
from ontologia.errors import HistoryForgottenError, ValidationError
from ontologia.model import Declaration, Declared, FieldExpr, Origin, Predicate, TypeRef, TypeSchema, encode_json
from ontologia.query.aggregates import Aggregate
from ontologia.query.builder import QueryRoot
from ontologia.query.plan import LATEST, Plan, Window
from ontologia.query.query import Fetched, Made, Make, T
from ontologia.query.results import HISTORY_FORGOTTEN, StoredTable
from ontologia.testing.reference.answers import (
    Joined,
    columns_of,
    group_key,
    keep_ends,
    numbers_of,
    output_fields,
    sort_paths,
    sum_floats,
)
from ontologia.testing.reference.filters import (
    Nobody,
    Version,
    compare,
    parse_json,
    passes,
    rank,
)

Row = dict[str, Any]
Change = tuple[TypeRef, tuple[str, ...], str]
Identity = tuple[TypeRef, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Layout:
    """The current schema version of a type and the commit it is read from."""

    schema: TypeSchema
    version: int
    activation: int


@dataclass(slots=True)
class ReferenceStore:
    """Commits, windows and answers of a store, from first principles."""

    head: int = 0
    rows: dict[TypeRef, list[Version]] = field(default_factory=dict)
    layouts: dict[TypeRef, Layout] = field(default_factory=dict)
    dropped: set[TypeRef] = field(default_factory=set)
    changes: dict[int, list[Change]] = field(default_factory=dict)
    carried: dict[TypeRef, list[Version]] = field(default_factory=dict)
    """Rows of earlier versions, as they would be had every migration carried all of history over, and not the state."""
    begun: dict[TypeRef, int] = field(default_factory=dict)
    """The commit that first wrote rows of a type, under whatever name."""
    ended: dict[TypeRef, int] = field(default_factory=dict)
    """The commit that dropped a type, or gave it another name."""
    base: int = 0
    """The commit at which history begins."""

    # --- what happens to a store ---

    def commit(self, objects: Iterable[Declared], removed: Iterable[Identity] = ()) -> int | None:
        """The delta rule: the last word on an identity wins, and what is unchanged writes nothing.

        `removed` are identities that shall not be there; what is not there needs no removal.
        """
        wanted: dict[TypeRef, dict[tuple[str, ...], Declared]] = {}
        for obj in objects:
            wanted.setdefault(obj.__declaration__.ref, {})[identity_of(obj)] = obj
        changed: list[Declared] = []
        for ref, by_identity in wanted.items():
            if ref in self.dropped:
                raise ValidationError(f"{ref} was dropped")
            latest = {row.identity: row for row in self.window(ref, Window())}
            for identity, obj in by_identity.items():
                known = latest.get(identity)
                if known is None or not _is_unchanged(known.values, values_of(obj), obj.__declaration__.schema):
                    changed.append(obj)
        gone = [row for ref, identity in removed for row in self.window(ref, Window()) if row.identity == identity]
        if not changed and not gone:
            return None
        self.head += 1
        for row in gone:
            self.rows[row.ref].append(replace(row, commit_id=self.head, removed=True))
            self.changes.setdefault(self.head, []).append((row.ref, row.identity, REMOVE))
        for obj in changed:
            declaration = obj.__declaration__
            self.layouts.setdefault(declaration.ref, Layout(declaration.schema, 1, self.head))
            self.begun.setdefault(declaration.ref, self.head)
            self._append(obj)
        return self.head

    def migrate(
        self,
        declarations: Iterable[Declaration],
        upgraders: Mapping[tuple[str, int], Callable[[Row], Row]] | None = None,
    ) -> int | None:
        """Rewrite the latest state of every type that differs, in one commit (RFC 0009 §6)."""
        steps = upgraders or {}
        outdated = [
            declaration
            for declaration in sorted(declarations, key=lambda item: item.ref)
            if (old := self._stored_as(declaration)) is not None
            and (old != declaration.ref or self.layouts[old].schema.fingerprint != declaration.schema.fingerprint)
        ]
        if not outdated:
            return None
        self.head += 1
        for declaration in outdated:
            self._rewrite(declaration, steps)
        return self.head

    def _stored_as(self, declaration: Declaration) -> TypeRef | None:
        """The type whose rows become those of a class: of its name, or of the one it had before."""
        names = (declaration.ref.name, declaration.schema.earlier.type)
        refs = (TypeRef(declaration.ref.kind, name) for name in names if name is not None)
        return next((ref for ref in refs if ref in self.layouts), None)

    def _rewrite(self, declaration: Declaration, steps: Mapping[tuple[str, int], Callable[[Row], Row]]) -> None:
        old_ref = self._stored_as(declaration)
        assert old_ref is not None
        ref, old = declaration.ref, self.layouts.pop(old_ref)
        target = old.version + 1
        while (old_ref.name, target) in steps:
            target += 1

        def upgraded(row: Version) -> Declared:
            values = _prepare_upgrade(row, old.schema)
            for number in range(old.version, target):
                values = steps.get((old_ref.name, number), dict)(values)
            return _rebuild(declaration, _under_new_names(values, old.schema, declaration.schema))

        stored = [row for row in self.rows.get(old_ref, ()) if row.schema_version_id == old.version]
        latest = [row for row in _newest(stored) if not row.removed]
        before = [*self.carried.pop(old_ref, ()), *stored]
        self.carried[ref] = [replace(row, ref=ref, values=values_of(upgraded(row))) for row in before]
        self.begun[ref] = self.begun[old_ref]
        if ref != old_ref:
            self._finish(old_ref)
        self.layouts[ref] = Layout(declaration.schema, target if ref == old_ref else 1, self.head)
        for row in latest:
            self._append(upgraded(row))

    def drop(self, refs: Iterable[TypeRef], *, purge: bool = False) -> int:
        """Types that read as empty from now on; `purge` forgets their history too."""
        self.head += 1
        for ref in refs:
            del self.layouts[ref]
            self._finish(ref)
            if purge:
                self.rows.pop(ref, None)
                for entries in self.changes.values():
                    entries[:] = [entry for entry in entries if entry[0] != ref]
        return self.head

    def _finish(self, ref: TypeRef) -> None:
        self.dropped.add(ref)
        self.ended[ref] = self.head

    def superseded(self, base: int) -> int:
        """How many versions a state at a commit does not need any more, nor any later one."""
        return sum(len(rows) - len(self._left_of(ref, rows, base)) for ref, rows in self.rows.items())

    def forget(self, base: int) -> int | None:
        """Of each identity the version in force at a commit stays, and all later ones; None where that was so."""
        if base == self.base:
            return None
        self.base = base
        self.head += 1
        self.rows = {ref: self._left_of(ref, rows, base) for ref, rows in self.rows.items()}
        self.carried = {
            ref: self._left_of(ref, rows, base)
            for ref, rows in self.carried.items()
            if ref in self.layouts and self.layouts[ref].activation > base
        }
        return self.head

    def _left_of(self, ref: TypeRef, rows: Sequence[Version], base: int) -> list[Version]:
        if self.ended.get(ref, base + 1) <= base:
            return []
        in_force = {row.identity: row for row in _newest(row for row in rows if row.commit_id <= base)}
        return [row for row in rows if row.commit_id > base or (row is in_force[row.identity] and not row.removed)]

    def _append(self, obj: Declared) -> None:
        ref, identity = obj.__declaration__.ref, identity_of(obj)
        history = self.rows.setdefault(ref, [])
        before = [row for row in history if row.identity == identity]
        operation = UPDATE if before and not before[-1].removed else INSERT
        history.append(Version(ref, identity, self.head, self.layouts[ref].version, values_of(obj)))
        self.changes.setdefault(self.head, []).append((ref, identity, operation))

    def list_commit_changes(self, commit_id: int) -> list[dict[str, Any]]:
        """What a commit wrote, by type and identity."""
        if 0 < commit_id <= self.base:
            raise HistoryForgottenError(
                f"what commit {commit_id} changed was given up: history begins with the state at commit {self.base}"
            )
        return [change_entry(*change) for change in sorted(self.changes.get(commit_id, []))]

    # --- windows of time ---

    def window(self, ref: TypeRef, window: Window, *, across: bool = False) -> list[Version]:
        """The rows of a window, of the current schema version or `across` all that there were: one per identity where
        that is asked for, unless it was removed; else all versions, removals among them."""
        if ref not in self.layouts:
            return []
        version = self.layouts[ref].version
        rows = [row for row in self.rows.get(ref, ()) if row.schema_version_id == version]
        if across:
            rows = [*self.carried.get(ref, ()), *rows]
        if window.mode == "since":
            return [row for row in rows if row.commit_id > (window.commit or 0)]
        if window.mode == "history":
            return rows
        if window.mode == "as_of":
            rows = [row for row in rows if row.commit_id <= (window.commit or 0)]
        return [row for row in _newest(rows) if not row.removed]

    def _window(self, ref: TypeRef, plan: Plan) -> list[Version]:
        return self.window(ref, plan.window, across=plan.across is not None)

    def there(self, ref: TypeRef, plan: Plan) -> list[Version]:
        """The rows of a window that say that something is there: what paths lead over, and ends are found among."""
        return [row for row in self._window(ref, plan) if not row.removed]

    # --- answers ---

    def query(self) -> QueryRoot:
        """Start a query, as on a session."""
        return QueryRoot(self)

    def origin(self, window: Window) -> Origin:
        return Origin(f"reference {id(self)}", past=window != LATEST)

    def made_of(self, plan: Plan, make: Make[T]) -> Made[T]:
        return self.fetch(plan).made(make)

    def fetch(self, plan: Plan, keys: pa.Table | None = None) -> Fetched:
        if plan.window.mode == "as_of" and (plan.window.commit or 0) < self.base:
            raise HistoryForgottenError(
                f"the state at commit {plan.window.commit or 0} was given up: history begins at commit {self.base}"
            )
        rows = self._group(plan) if plan.aggregates else self._project(plan, keys)
        columns = list(zip(*rows, strict=True)) if rows else [() for _ in output_fields(plan)]
        return Fetched(columns, self._diagnostics(plan))

    def table(self, plan: Plan, keys: pa.Table | None = None) -> pa.Table:
        schema = pa.schema(output_fields(plan))
        columns = self.fetch(plan, keys).columns
        return pa.Table.from_arrays([pa.array(v, f.type) for v, f in zip(columns, schema, strict=True)], schema=schema)

    def snapshot(self) -> AbstractContextManager[None]:
        return nullcontext()  # nobody else writes to it

    def explain(self, plan: Plan) -> str:
        return f"the reference model reads {plan.source}"

    def as_stored(self, plan: Plan) -> list[StoredTable]:
        raise NotImplementedError("the model remembers what rows became, and not what they were")

    def _diagnostics(self, plan: Plan) -> list[dict[str, Any]]:
        """RFC 0009 §2.3; and that rows are left out, where there are any in the window."""
        window, commit = plan.window, plan.window.commit or 0
        found: list[dict[str, Any]] = []
        for ref in () if plan.across is not None else plan.schemas:
            if ref not in self.layouts or window.mode == "latest":
                continue
            activation = self.layouts[ref].activation
            before = activation > commit + 1 if window.mode == "since" else True
            if window.mode == "as_of" and commit < activation:
                reason = "commit_before_activation"
            elif window.mode != "as_of" and ref in self.carried and before:
                reason = "history_before_activation"
            else:
                continue
            said = {"reason": reason, "activation_commit_id": activation}
            found.append(said if ref == plan.source else {**said, "type": str(ref)})
        if window.mode == "as_of" and commit > self.head:
            found.append({"reason": "commit_after_head", "commit_id": commit, "head_commit_id": self.head})
        for ref in (ref for ref in plan.schemas if ref in self.dropped):
            found.append({"reason": "type_dropped"} | ({} if ref == plan.source else {"type": str(ref)}))
        reaches_back = window.mode == "history" or (window.mode == "since" and commit < self.base)
        if reaches_back and any(ref in self.layouts and self.begun[ref] <= self.base for ref in plan.schemas):
            found.append({"reason": HISTORY_FORGOTTEN, "base_commit_id": self.base})
        return found

    def _passes(self, plan: Plan, predicates: Sequence[Predicate], row: Version) -> bool:
        return all(passes(predicate, row, lambda ref: self.there(ref, plan)) for predicate in predicates)

    def find(self, plan: Plan, keys: pa.Table | None = None) -> list[Version]:
        """The rows of the queried type that pass its filters, in no particular order."""
        rows = (self._window if plan.shows_removals else self.there)(plan.source, plan)
        if keys is not None:
            wanted = set(zip(*(keys.column(name).to_pylist() for name in plan.source.identity), strict=True))
            rows = [row for row in rows if row.identity in wanted]
        return [row for row in rows if self._passes(plan, plan.where, row)]

    def _project(self, plan: Plan, keys: pa.Table | None) -> list[tuple[Any, ...]]:
        joined: list[Joined] = [(row,) for row in self.find(plan, keys)]
        for number in range(len(plan.hops)):
            joined = self._follow(plan, number, joined)
        joined = keep_ends(plan, joined) if plan.ends_only else sort_paths(plan, joined)
        start = plan.offset or 0
        stop = None if plan.limit is None else start + plan.limit
        return [columns_of(plan, row) for row in joined[start:stop]]

    def _follow(self, plan: Plan, number: int, joined: list[Joined]) -> list[Joined]:
        hop = plan.hops[number]
        about_relation: list[Predicate] = []
        about_entity: list[Predicate] = []
        for predicate in hop.where:
            owners = {condition.operand.owner for condition in predicate.conditions()}
            (about_relation if owners == {hop.relation} else about_entity).append(predicate)
        near, far = (0, 1) if hop.forward else (1, 0)
        relations = [r for r in self.there(hop.relation, plan) if self._passes(plan, about_relation, r)]
        entities = [e for e in self.there(hop.entity, plan) if self._passes(plan, about_entity, e)]
        return [
            (*path, relation, entity)
            for path in joined
            for relation in relations
            if relation.identity[near] == path[-1].identity[0]
            for entity in entities
            if entity.identity[0] == relation.identity[far]
        ]

    # --- aggregation ---

    def _group(self, plan: Plan) -> list[tuple[Any, ...]]:
        rows = self.find(plan)
        if not plan.groups:
            return [tuple(self._aggregate(plan, aggregate, rows) for _, aggregate in plan.aggregates)]

        def of(row: Version, group: FieldExpr[Any]) -> Any:
            return group_key(row if group.side is None else self._end(plan, row, group), group)

        def key(row: Version) -> list[Any]:
            return [rank(of(row, group)) for group in plan.groups]

        found = []
        for _, members in groupby(sorted(rows, key=key), key=key):
            group = list(members)
            tests = ((self._aggregate(plan, test.aggregate, group), test) for test in plan.having)
            if all(value is not None and compare(test.op, value, test.value) for value, test in tests):
                numbers = (self._aggregate(plan, aggregate, group) for _, aggregate in plan.aggregates)
                found.append((*(of(group[0], operand) for operand in plan.groups), *numbers))
        return found

    def _end(self, plan: Plan, row: Version, operand: FieldExpr[Any]) -> Version:
        key = row.identity[0 if operand.side == "left" else 1]
        ends = (end for end in self.there(operand.owner, plan) if end.identity[0] == key)
        return next(ends, Nobody(operand.owner))

    def _aggregate(self, plan: Plan, aggregate: Aggregate, rows: Sequence[Version]) -> Any:
        if aggregate.function == "count":
            return len(rows)
        if aggregate.where is not None:
            return sum(self._passes(plan, [aggregate.where], row) for row in rows)
        assert aggregate.operand is not None
        values = numbers_of(aggregate.operand, rows, lengths=aggregate.function == "avg_len")
        if not values:
            return None
        match aggregate.function:
            case "min":
                return min(values, key=rank)
            case "max":
                return max(values, key=rank)
            case "sum":
                return sum(values) if aggregate.operand.counted_as == "int" else sum_floats(values)
        return sum_floats([value / len(values) for value in values])


def _newest(rows: Iterable[Version]) -> list[Version]:
    """Of each identity the row of the last commit."""
    return list({row.identity: row for row in sorted(rows, key=lambda row: row.commit_id)}.values())


def values_of(obj: Declared) -> dict[str, Any]:
    """The stored fields of an object, structured ones as JSON has them."""
    columns = obj.__declaration__.schema.columns
    return {c.name: parse_json(obj.__dict__[c.name]) if c.scalar is None else obj.__dict__[c.name] for c in columns}


def _is_unchanged(old: Mapping[str, Any], new: Mapping[str, Any], schema: TypeSchema) -> bool:
    for column in schema.columns:
        before, after = old[column.name], new[column.name]
        same = encode_json(before) == encode_json(after) if column.scalar is None else rank(before) == rank(after)
        if not same:
            return False
    return True


def _prepare_upgrade(row: Version, schema: TypeSchema) -> Row:
    """A row as an upgrader sees it."""
    values = dict(row.values)
    if row.ref.kind == "relation":
        values |= {"left_key": row.identity[0], "right_key": row.identity[1]}
        if schema.instance_key is not None:
            values[schema.instance_key] = row.identity[2]
    return values


def _under_new_names(values: Row, stored: TypeSchema, code: TypeSchema) -> Row:
    """Values under the names that a class has for what the store has under another."""
    there = {*stored.names, stored.instance_key}
    names = {old: new for new, old in code.earlier.fields.items() if old in there and new not in there}
    return {names.get(name, name): value for name, value in values.items() if names.get(name) not in values}


def _rebuild(declaration: Declaration, values: Row) -> Declared:
    """The object of an upgraded row: fields that are gone left out, new ones that may be null filled with it."""
    nullable = {c.name for c in declaration.schema.columns if c.nullable and declaration.options[c.name].required}
    kept = declaration.options.keys() | {"left_key", "right_key"}
    return declaration.cls(**(dict.fromkeys(nullable) | {name: v for name, v in values.items() if name in kept}))
