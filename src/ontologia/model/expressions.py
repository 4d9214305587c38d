"""What a field says when it is compared: predicates as plain data.

`Customer.age >= 30` builds a tree and touches no storage. The tree lives in the model, because class attributes
make it; the query layer gives it its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar

from ontologia.errors import ValidationError
from ontologia.model.columns import Column
from ontologia.model.schema import TypeRef, TypeSchema
from ontologia.model.typespec import ITEM, TypeSpec, spec_at
from ontologia.model.values import abridge, is_unicode, to_utc

T = TypeVar("T")
Side = Literal["left", "right"]

COMPARABLE: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int, float),
    "float": (int, float),
    "bool": (bool,),
    "datetime": (datetime,),
    "date": (date,),
    "bytes": (bytes,),
}


class Predicate:
    """A condition on rows. Combine with `&`, `|` and `~`; it has no truth value of its own."""

    __slots__ = ()

    def __and__(self, other: Predicate) -> Predicate:
        return Combination("and", (self, _predicate(other)))

    def __or__(self, other: Predicate) -> Predicate:
        return Combination("or", (self, _predicate(other)))

    def __invert__(self) -> Predicate:
        return Negation(self)

    def __bool__(self) -> NoReturn:
        raise TypeError("a filter has no truth value: combine filters with & | ~, not with and, or, not")

    def conditions(self) -> Iterator[Condition]:
        """Every comparison in the tree, left to right."""
        raise TypeError(f"{type(self).__name__} is not a filter")


@dataclass(frozen=True, slots=True, eq=False)
class Condition(Predicate):
    """One comparison: an operand, an operator, and the value on its right (None where it takes none)."""

    operand: FieldExpr[Any]
    op: str
    value: Any = None

    def conditions(self) -> Iterator[Condition]:
        yield self


@dataclass(frozen=True, slots=True, eq=False)
class Combination(Predicate):
    op: Literal["and", "or"]
    parts: tuple[Predicate, ...]

    def conditions(self) -> Iterator[Condition]:
        for part in self.parts:
            yield from part.conditions()


@dataclass(frozen=True, slots=True, eq=False)
class Negation(Predicate):
    part: Predicate

    def conditions(self) -> Iterator[Condition]:
        return self.part.conditions()


@dataclass(frozen=True, slots=True, eq=False)
class FieldExpr(Generic[T]):
    """A field of a type, or a place inside a structured one, seen from a query.

    `side` is set by `left(...)` and `right(...)`; `steps` lead into JSON; `item_path` means "some list item has".
    """

    owner: TypeRef
    name: str
    column: Column | None
    steps: tuple[str, ...] = ()
    item_path: tuple[str, ...] | None = None
    side: Side | None = None

    # --- comparisons ---

    def __eq__(self, other: object) -> Predicate:  # type: ignore[override]
        return self._compare("eq", other)

    def __ne__(self, other: object) -> Predicate:  # type: ignore[override]
        return self._compare("ne", other)

    def __lt__(self, other: Any) -> Predicate:
        return self._compare("lt", other)

    def __le__(self, other: Any) -> Predicate:
        return self._compare("le", other)

    def __gt__(self, other: Any) -> Predicate:
        return self._compare("gt", other)

    def __ge__(self, other: Any) -> Predicate:
        return self._compare("ge", other)

    def __hash__(self) -> int:
        return hash((self.owner, self.name, self.steps, self.item_path, self.side))

    def startswith(self, text: str) -> Predicate:
        return self._match("startswith", text)

    def endswith(self, text: str) -> Predicate:
        return self._match("endswith", text)

    def contains(self, value: Any) -> Predicate:
        """Text that has this in it; for a list, that some item is this."""
        declared = self.declared
        if self.scalar is not None or (declared is not None and declared["kind"] == "primitive"):
            return self._match("contains", value)
        return self._compare("contains", value)

    def in_(self, values: Iterable[Any]) -> Predicate:
        """The value is one of these; an empty collection matches nothing."""
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise TypeError(f"{self}.in_() takes a collection of values, not {values!r}")
        return Condition(self, "in", tuple(self._check(value) for value in values))

    def is_null(self) -> Predicate:
        return Condition(self, "is_null")

    def is_not_null(self) -> Predicate:
        return Condition(self, "is_not_null")

    def is_true(self) -> Predicate:
        return self._truth("is_true")

    def is_false(self) -> Predicate:
        return self._truth("is_false")

    # --- places inside a structured field ---

    def path(self, dotted: str) -> FieldExpr[Any]:
        """A place inside a structured field: `Customer.address.path("city.name")`."""
        return self._inside(tuple(dotted.split(".")))

    def __getitem__(self, segment: str) -> FieldExpr[Any]:
        return self._inside((segment,))

    def any_path(self, dotted: str) -> FieldExpr[Any]:
        """True for a list when some item has it: `Order.lines.any_path("sku") == "a1"`."""
        if self.side is not None:
            raise ValueError(f"{self}: any_path is not available on an endpoint")
        segments = tuple(dotted.split(".")) if dotted else ()
        self._check_structured(segments)
        return replace(self, item_path=segments)._check_declared()

    def _inside(self, segments: tuple[str, ...]) -> FieldExpr[Any]:
        self._check_structured(segments)
        if self.item_path is not None:
            return replace(self, item_path=(*self.item_path, *segments))._check_declared()
        return replace(self, steps=(*self.steps, *segments))._check_declared()

    def _check_structured(self, segments: tuple[str, ...]) -> None:
        for segment in segments:
            if not isinstance(segment, str) or not segment.isidentifier():
                raise ValueError(f"{self}: {segment!r} is not an identifier, so it cannot be a path segment")
        if self.column is None or self.column.storage == "scalar":
            raise ValueError(f"{self} holds a single value: there is no path into it")

    def _check_declared(self) -> Self:
        """Refuse a step into a `TypedDict` that does not declare it: no value has it, and most likely it is a typo."""
        steps = self._all_steps
        for place, step in enumerate(steps):
            inside = None if self.column is None else spec_at(self.column.spec, steps[:place])
            if inside is not None and inside["kind"] == "typed_dict" and step not in (ITEM, *inside["fields"]):
                raise ValueError(f"{self}: {inside['name']} has no {step!r}; it has {', '.join(inside['fields'])}")
        return self

    # --- checks ---

    def _compare(self, op: str, value: Any) -> Predicate:
        if value is None:
            raise TypeError(f"compare {self} with .is_null() or .is_not_null(), not with None")
        if value is True or value is False:
            raise TypeError(f"compare {self} with .is_true() or .is_false(), not with {value}")
        return Condition(self, op, self._check(value))

    def _match(self, op: str, text: str) -> Predicate:
        if not isinstance(text, str):
            raise TypeError(f"{self}.{op}() takes text, not {text!r}")
        if self.scalar not in (None, "str"):
            raise TypeError(f"{self} is {self.scalar}, and {op}() is for text")
        self._unicode(text)
        return Condition(self, op, text)

    def _truth(self, op: str) -> Predicate:
        if self.scalar not in (None, "bool"):
            raise TypeError(f"{self} is {self.scalar}, and {op}() is for bool")
        return Condition(self, op)

    @property
    def scalar(self) -> str | None:
        """The scalar this place is declared to hold; None inside JSON."""
        if self.column is None:
            return "str"
        return self.column.scalar

    @property
    def declared(self) -> TypeSpec | None:
        """What is declared of this place; None where several things may be there, or anything."""
        if self.column is None:
            return None
        return spec_at(self.column.spec, self._all_steps)

    @property
    def _all_steps(self) -> tuple[str, ...]:
        """The way from the field to this place; `ITEM` is any item of a list."""
        return self.steps if self.item_path is None else (*self.steps, ITEM, *self.item_path)

    @property
    def counted_as(self) -> str:
        """The scalar that `sum`, `min` and `max` give. Inside JSON: the declared one, else a float of the numbers."""
        if self.scalar is not None:
            return self.scalar
        declared = self.declared
        name = None if declared is None else declared.get("name")
        return name if name in ("int", "str", "datetime", "date") else "float"

    def _check(self, value: Any) -> Any:
        if isinstance(value, FieldExpr):
            raise TypeError(f"{self} can be compared with values, not with another field")
        allowed = COMPARABLE.get(self.scalar or "", (str, int, float, datetime, date, bytes))
        wrong = not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed)
        wrong = wrong or (self.scalar == "date" and isinstance(value, datetime))
        if wrong:
            expected = self.scalar or "a scalar"
            raise TypeError(f"{self} is {expected}: it cannot be compared with {abridge(value)}")
        if isinstance(value, str):
            self._unicode(value)
        return to_utc(value) if isinstance(value, datetime) else value

    def _unicode(self, text: str) -> None:
        if not is_unicode(text):
            raise ValueError(f"{self}: {text!r} has a lone surrogate, which no stored text has")

    def __str__(self) -> str:
        text = f"{self.owner.name}.{self.name}" + "".join(f".{step}" for step in self.steps)
        if self.item_path is not None:
            text += f".any_path({'.'.join(self.item_path)!r})"
        return f"{self.side}({text})" if self.side else text

    def __repr__(self) -> str:
        return f"<field {self}>"

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self} is a field, not a value: compare it to build a filter")


def field_at(schema: TypeSchema, path: str) -> FieldExpr[Any]:
    """A field by its name, or a place inside it: `address.city`; identity by the names that all types share."""
    name, *steps = path.split(".")
    column = schema.by_name.get(name)
    if column is None and (name in schema.ref.identity or name == schema.instance_key):
        return FieldExpr(schema.ref, name, None)
    if column is None:
        raise ValidationError(f"{schema.ref} has no field {name!r}; it has {', '.join(schema.by_name)}")
    whole: FieldExpr[Any] = FieldExpr(schema.ref, name, column)
    return whole.path(".".join(steps)) if steps else whole


def _predicate(value: Any) -> Predicate:
    if not isinstance(value, Predicate):
        raise TypeError(f"a filter is needed here, not {value!r}")
    return value
