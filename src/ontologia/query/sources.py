"""Where the rows of a statement come from: every type it names under an alias, joined as the plan says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from ontologia.model import Column, Combination, Condition, FieldExpr, Predicate, TypeRef
from ontologia.query.dialects import Dialect, Node, Place
from ontologia.query.plan import Plan
from ontologia.query.stored_rows import StoredRows

KEYS = "touched_keys"  # the table of identities an engine supplies for a plan that is `keyed`
SELECTIVE = ("eq", "in", "gt", "ge", "lt", "le")


class Sources:
    """The types of a statement by their aliases, and which columns of each it uses.

    `s` is the type that is asked about, `r0` and `e0` are the relation and the entity of the first hop.
    """

    def __init__(self, plan: Plan, stored_rows: Mapping[TypeRef, StoredRows], dialect: Dialect) -> None:
        self.plan = plan
        self.stored_rows = stored_rows
        self.dialect = dialect
        self.used: dict[str, dict[str, Column]] = {}
        self.refs: dict[str, TypeRef] = {}

    # --- columns ---

    def enter(self, alias: str, ref: TypeRef) -> None:
        self.refs[alias] = ref
        self.used[alias] = {}

    def plain(self, alias: str, name: str) -> exp.Column:
        return exp.column(name, table=alias, quoted=True)

    def stored(self, alias: str, column: Column) -> exp.Column:
        self.used[alias][column.physical] = column
        return self.plain(alias, self.stored_rows[self.refs[alias]].name_of(column))

    def is_primary_key(self, operand: FieldExpr[Any], alias: str) -> bool:
        return operand.name == self.plan.schemas[self.refs[alias]].primary_key

    def is_indexed(self, operand: FieldExpr[Any], alias: str) -> bool:
        return any(column.name == operand.name for column in self.plan.schemas[self.refs[alias]].indexed)

    def scalar(self, operand: FieldExpr[Any], alias: str) -> Node:
        """The column of a scalar field. Keys are read from the identity, which has an order and an index."""
        if operand.column is None:
            named = operand.name in self.refs[alias].identity
            return self.plain(alias, operand.name if named else "instance_key")
        if operand.scalar == "str" and self.is_primary_key(operand, alias):
            return self.plain(alias, "entity_key")
        return self.stored(alias, operand.column)

    def place(self, operand: FieldExpr[Any], alias: str) -> Place:
        assert operand.column is not None
        return self.dialect.place(self.stored(alias, operand.column), operand.steps)

    # --- rows ---

    def select_from(self, select: exp.Select) -> exp.Select:
        """Put the rows under a selection. Last, when it is known which columns are used."""
        select = (
            self._from_keys(select)
            if self.plan.keyed
            else select.from_(self.rows("s", probe=self._probes()), copy=False)
        )
        for number, hop in enumerate(self.plan.hops):
            near, far = ("left_key", "right_key") if hop.forward else ("right_key", "left_key")
            before = "s" if number == 0 else f"e{number - 1}"
            on_near = exp.EQ(this=self.plain(f"r{number}", near), expression=self.plain(before, "entity_key"))
            on_far = exp.EQ(this=self.plain(f"e{number}", "entity_key"), expression=self.plain(f"r{number}", far))
            select = select.join(self.rows(f"r{number}", probe=True), on=on_near, join_type="inner", copy=False)
            select = select.join(self.rows(f"e{number}", probe=True), on=on_far, join_type="inner", copy=False)
        for side in ("left", "right"):
            alias = f"at_{side}"
            if alias in self.refs:  # grouped by one of its fields; an end that does not exist has none
                end = exp.EQ(this=self.plain(alias, "entity_key"), expression=self.plain("s", f"{side}_key"))
                select = select.join(self.rows(alias, probe=False), on=end, join_type="left", copy=False)
        return select

    def _from_keys(self, select: exp.Select) -> exp.Select:
        """The rows of the identities in `KEYS`. These come first: they are few beside what is stored."""
        identity = self.plan.source.identity
        on: list[Node] = [exp.EQ(this=self.plain("s", name), expression=self.plain("k", name)) for name in identity]
        rows = self.rows("s", probe=True)
        stored, columns = self.stored_rows[self.plan.source], list(self.used["s"].values())
        of_keys = stored.rows_of_keys("k", self.plan.window, columns)
        if of_keys is not None:
            rows = of_keys[0].subquery("s", copy=False)
            on.append(of_keys[1])
        return select.from_(exp.to_table(KEYS, alias="k"), copy=False).join(
            rows, on=exp.and_(*on), join_type=self.dialect.in_turn, copy=False
        )

    def rows(self, alias: str, *, probe: bool) -> exp.Subquery:
        columns = list(self.used[alias].values())
        stored = self.stored_rows[self.refs[alias]]
        removals = alias == "s" and self.plan.shows_removals
        return stored.rows(self.plan.window, columns, probe=probe, removals=removals).subquery(alias, copy=False)

    def _probes(self) -> bool:
        """Whether to look for a newer version row by row: after a filter, or when rows are wanted in key order."""
        plan = self.plan
        if plan.keyed or any(self._selective(predicate) for predicate in plan.where):
            return True
        return not plan.aggregates and not plan.hops and (bool(plan.where) or not plan.order)

    def _selective(self, predicate: Predicate) -> bool:
        """Whether a filter finds few rows by key or index, so that deduplication should follow it."""
        if isinstance(predicate, Combination):
            test = any if predicate.op == "and" else all
            return test(self._selective(part) for part in predicate.parts)
        if not isinstance(predicate, Condition) or predicate.op not in SELECTIVE or predicate.operand.side:
            return False
        operand = predicate.operand
        if operand.column is None or operand.name == self.plan.schema.primary_key:
            return True
        return not operand.steps and self.is_indexed(operand, "s")
