"""A query as plain data: what is asked, of which types, in which window of time.

A plan knows no storage and no SQL. Its `shape` leaves out the values, so that plans which differ only in values share
one compiled statement.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ontologia.errors import ValidationError
from ontologia.model import Combination, Condition, Declaration, FieldExpr, Negation, Predicate, TypeRef, TypeSchema
from ontologia.model.upgraders import Upgraders
from ontologia.query.aggregates import Aggregate, AggregateCondition, count
from ontologia.query.numbers import value_kind

MOST_PARAMETERS = 256
"""How many values of a list are parameters of their own."""

Mode = Literal["latest", "as_of", "history", "since"]


@dataclass(frozen=True, slots=True)
class Window:
    """The part of history that is read (RFC 0004 §4.3). `commit` bounds `as_of` from above and `since` from below."""

    mode: Mode = "latest"
    commit: int | None = None

    @property
    def deduplicated(self) -> bool:
        """One row per identity, or every version of it."""
        return self.mode in ("latest", "as_of")


LATEST = Window()


def check_commit(name: str, commit: int) -> int:
    """The commit that an argument names, if it can be one."""
    if commit < 0:
        raise ValidationError(f"{name} is a commit id, zero or more, not {commit}")
    return commit


@dataclass(frozen=True, slots=True)
class Order:
    operand: FieldExpr[Any]
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a traversal: over a relation to the entity at its other end."""

    relation: TypeRef
    entity: TypeRef
    forward: bool
    where: tuple[Predicate, ...] = ()

    @property
    def shape(self) -> Hashable:
        """Equal for hops that differ in the values of their filters alone."""
        return (self.relation, self.entity, self.forward, tuple(map(shape_of, self.where)))


@dataclass(frozen=True, slots=True)
class Search:
    """The rows that suit best: nearest to a vector, or with the words of a text. `most` bounds how many."""

    field: str
    vector: tuple[float, ...] | None = None
    text: str | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Across:
    """Rows of earlier schema versions are read, too: with these upgraders, and classes that check what they make."""

    declarations: Mapping[TypeRef, Declaration] = field(default_factory=dict)
    upgraders: Upgraders = field(default_factory=dict)

    def knowing(self, *declarations: Declaration) -> Across:
        """With these classes, too."""
        return replace(self, declarations={**self.declarations, **{item.ref: item for item in declarations}})


@dataclass(frozen=True)
class Plan:
    """The whole question. `aggregates` makes it a question about numbers, `hops` one about paths.

    `keyed` limits it to identities handed over beside the plan; `stored` names the columns as storage does, and `only`
    those of them that are wanted; `unordered` saves the sorting where the asker does not care. `search` limits it to
    rows that an index of the engine finds, before all else; it changes the rows, not the statement. With `across`,
    every type is read in all its schema versions, as rows of the one in force.
    """

    source: TypeRef
    schemas: Mapping[TypeRef, TypeSchema]
    window: Window = LATEST
    where: tuple[Predicate, ...] = ()
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int | None = None
    groups: tuple[FieldExpr[Any], ...] = ()
    aggregates: tuple[tuple[str, Aggregate], ...] = ()
    having: tuple[AggregateCondition, ...] = ()
    hops: tuple[Hop, ...] = ()
    ends_only: bool = False
    keyed: bool = False
    stored: bool = False
    only: tuple[str, ...] | None = None
    unordered: bool = False
    search: Search | None = None
    across: Across | None = None

    @classmethod
    def of(cls, schema: TypeSchema, window: Window = LATEST, where: tuple[Predicate, ...] = (), **more: Any) -> Plan:
        """A question about one type."""
        return cls(schema.ref, {schema.ref: schema}, window, where, **more)

    @classmethod
    def counting(cls, schema: TypeSchema, window: Window = LATEST, **more: Any) -> Plan:
        """How many rows of a type there are; the answer is the one value of the one column."""
        return cls.of(schema, window, aggregates=(("rows", count()),), **more)

    def change(self, **values: Any) -> Plan:
        """A copy with other values; several times faster than `dataclasses.replace`, as a key lookup can tell."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, **values)
        return copy

    @property
    def schema(self) -> TypeSchema:
        return self.schemas[self.source]

    def conditions(self) -> Iterator[Condition]:
        """Every comparison of the plan, in the one order that parameters follow."""
        for predicate in self.where:
            yield from predicate.conditions()
        for hop in self.hops:
            for predicate in hop.where:
                yield from predicate.conditions()
        for _, aggregate in self.aggregates:
            if aggregate.where is not None:
                yield from aggregate.where.conditions()

    @property
    def shows_removals(self) -> bool:
        """Whether removals are among its rows: where rows are versions of one type. A path leads over none."""
        return not (self.window.deduplicated or self.hops)

    @property
    def takes_all(self) -> bool:
        """Whether it asks for all rows as they are, in the order of their identity."""
        asked = (self.where, self.order, self.limit, self.offset, self.aggregates, self.hops, self.search, self.only)
        return (
            self.window.deduplicated
            and not any(item not in (None, ()) for item in asked)
            and not (self.keyed or self.unordered)
        )

    @property
    def counts_all(self) -> bool:
        """Whether it asks for nothing but how many rows there are."""
        asked = [(aggregate.function, aggregate.where) for _, aggregate in self.aggregates]
        return asked == [("count", None)] and not (
            self.where or self.groups or self.having or self.hops or self.keyed or self.search
        )

    @property
    def sought_key(self) -> str | None:
        """The key, if it asks for nothing but the one entity of a state that has it, and the key is text."""
        if len(self.where) != 1 or self.source.kind != "entity" or not self.window.deduplicated:
            return None
        (condition,) = self.where
        if not isinstance(condition, Condition) or condition.op != "eq" or not isinstance(condition.value, str):
            return None
        operand, key = condition.operand, self.schema.primary_key
        if operand.name != key or operand.owner != self.source or operand.steps or operand.side or operand.item_path:
            return None
        plain = self.schema.by_name[key].scalar == "str" and self.limit != 0 and not self.offset
        asked = (
            self.aggregates,
            self.hops,
            self.search,
            self.only,
            self.keyed,
            self.stored,
            self.ends_only,
            self.across,
        )
        return condition.value if plain and not any(item not in (None, (), False) for item in asked) else None

    @property
    def shape(self) -> Hashable:
        """Equal for plans that compile to the same statement. Every question asks for it, most of them a short one."""
        return (
            self.source,
            self.window.mode,
            tuple(map(shape_of, self.where)),
            tuple((place_of(order.operand), order.descending) for order in self.order) if self.order else (),
            self.limit is None,
            self.offset is None,
            tuple(map(place_of, self.groups)) if self.groups else (),
            tuple((name, aggregate.shape) for name, aggregate in self.aggregates) if self.aggregates else (),
            tuple(condition.shape for condition in self.having) if self.having else (),
            tuple(hop.shape for hop in self.hops) if self.hops else (),
            (self.ends_only, self.keyed, self.stored, self.only, self.unordered, self.across is None),
            tuple([(ref, schema.fingerprint) for ref, schema in self.schemas.items()]),
        )


def group_names(groups: Sequence[FieldExpr[Any]]) -> list[str]:
    """What groups are called in a result: as their fields, dotted for a place inside, and after their side
    (`left.tier`) where an endpoint's field would have the name of another group."""
    names = [".".join((group.name, *group.steps)) for group in groups]
    return [
        f"{group.side}.{name}" if group.side and names.count(name) > 1 else name
        for group, name in zip(groups, names, strict=True)
    ]


def pad(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """A list of values at the next power of two, the last one repeated, so that few shapes serve all lengths."""
    size = 1
    while size < len(values):
        size *= 2
    return values + values[-1:] * (size - len(values))


def is_long_list(values: tuple[Any, ...]) -> bool:
    """Whether values are better one parameter than one each."""
    return len(values) > MOST_PARAMETERS and not has_zero_byte(values)


def has_zero_byte(values: tuple[Any, ...]) -> bool:
    """Whether a text among values has a zero byte: SQLite cuts it off there when it takes a list apart."""
    return any(isinstance(value, str) and "\0" in value for value in values)


def place_of(operand: FieldExpr[Any]) -> Hashable:
    """Where a question looks, for the shape of its statement."""
    return (operand.owner, operand.name, operand.steps, operand.item_path, operand.side)


def shape_of(predicate: Predicate) -> Hashable:
    """A filter without its values: those of one shape share a statement."""
    if isinstance(predicate, Condition):
        key = place_of(predicate.operand)
        if predicate.op == "in":
            kinds = tuple(map(value_kind, pad(predicate.value)))
            alike = (kinds[0], len(kinds)) if len(set(kinds)) == 1 else kinds
            return (key, "in", alike, is_long_list(predicate.value), has_zero_byte(predicate.value))
        return (key, predicate.op, value_kind(predicate.value), predicate.value == "")
    if isinstance(predicate, Combination):
        return (predicate.op, *map(shape_of, predicate.parts))
    if isinstance(predicate, Negation):
        return ("not", shape_of(predicate.part))
    raise TypeError(f"{predicate!r} is not a filter")
