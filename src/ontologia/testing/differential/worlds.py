"""Random models and histories, drawn towards what breaks storage: names like SQL, values at the limits of types."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, timezone
from math import inf, nan
from random import Random
from typing import Any, Literal, NotRequired

import typing_extensions
from typing_extensions import TypedDict

from ontologia.model import Declared, Entity, Field, Relation

TYPE_NAMES = (
    *("select", "Order", "order", "order-line", "order/item", "true", "Größe", "数", "it's", '5" disk', "a b", "A*"),
    *("AB", "semi;colon", "back`tick", "a.b", "100%", "x--", "{brace}", "[A]", "$1", ":p0", "?", "sqlite_x", "commits"),
    *("entity", "__", "..", "Tab\tle", "a%2Fb"),
)
FIELD_NAMES = (
    *(
        "select",
        "order",
        "Order",
        "group",
        "true",
        "False",
        "null",
        "value",
        "Value",
        "index",
        "commit_id",
        "entity_key",
    ),
    *(
        "schema_version_id",
        "fields_json",
        "superseded_by",
        "rowid",
        "operation",
        "document",
        "item",
        "s",
        "t",
        "c0",
        "k0",
    ),
    *(
        "größe",
        "имя",
        'quo"te',
        "apo'strophe",
        "back`tick",
        "back\\slash",
        "a b",
        "a.b",
        "semi;colon",
        "x--",
        "$p0",
        ":p0",
    ),
    *("?", "true?", "%", "new\nline", "[0]", "x) FROM (SELECT 1", "💡"),
)
TEXTS = (
    *(
        "",
        "a",
        "A",
        "ab",
        "b",
        "a%",
        "_",
        "%",
        "O'Hara",
        '"',
        '\\"',
        "\\",
        "💡",
        "é",
        "e\u0301",
        "NaN",
        "null",
        "true",
        "1",
    ),
    *(" ", "\n", "a\x00b", "a\x00", "\x00", "\\u0000", "a\\u0000b", "[1]", '{"a":1}', "\ufeff", "\U0010ffff", "\u2028"),
)
ZERO_BYTES = ("a\x00b", "a\x00", "\x00", "ab\x00\x00")
INTS = (0, 1, -1, 2, 10, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 10**18, 10**18 + 1, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, 1.5, -1.5, 0.1, 2.0**53, 1e18, nan, inf, -inf, 5e-324, 1.7976931348623157e308)
INSTANTS = (
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2024, 2, 29, 12, tzinfo=UTC),
    datetime(2024, 2, 29, 17, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))),
)
DATES = (date.min, date.max, date(1969, 12, 31), date(2024, 2, 29))
BYTES = (b"", b"\x00", b"a", b"\xff\x00", b"'")
STEPS = ("a", "city", "geo", "tags", "true", "größe", "nothing")
MEMBERS = ("a", "true", "größe", "a b", 'q"', "a.b", "", "$", "x\x00y", "\\")

Make = Callable[[Random], Any]


class Geo(TypedDict):
    """The inner structure."""

    a: float


class Place(TypedDict):
    """A structure whose parts may be missing."""

    city: str
    a: NotRequired[int | None]
    geo: NotRequired[Geo]
    tags: NotRequired[list[str]]


@dataclass(frozen=True)
class Kind:
    """A type of field and a way to make values for it; `scalar` is None where the value is kept as JSON."""

    annotation: Any
    make: Make = field(repr=False)
    scalar: str | None = None


@dataclass(frozen=True)
class Subject:
    """A type under test: what it is called, its fields, and the class that declares it."""

    name: str
    cls: Any = field(repr=False)
    kinds: Mapping[str, Kind] = field(repr=False)
    key: str | None = None
    ends: tuple[Subject, Subject] | None = field(default=None, repr=False)
    instance_key: str | None = None


@dataclass(frozen=True)
class World:
    """A model, and what is committed to it, one list of objects after the other."""

    entities: list[Subject]
    relations: list[Subject]
    commits: list[list[Declared]] = field(repr=False)
    removed: list[list[Declared]] = field(default_factory=list, repr=False)
    """What goes with each commit, after all else in it; nothing at all where it is empty."""

    @property
    def subjects(self) -> list[Subject]:
        return [*self.entities, *self.relations]


def make_text(rng: Random) -> str:
    if rng.random() < 0.9:
        return rng.choice(ZERO_BYTES if rng.random() < 0.2 else TEXTS)
    return "".join(chr(rng.choice((rng.randrange(1, 0xD800), rng.randrange(128)))) for _ in range(rng.randrange(4)))


def make_int(rng: Random) -> int:
    return rng.choice((rng.choice(INTS), rng.randrange(-3, 4), rng.randrange(-(2**63), 2**63)))


def make_float(rng: Random) -> float:
    return rng.choice((rng.choice(FLOATS), rng.randrange(-8, 9) / 4, float(rng.choice(INTS))))


def make_json(rng: Random, depth: int = 2) -> Any:
    """Whatever JSON can say. Floats are those that every engine writes alike."""
    if depth and rng.random() < 0.5:
        if rng.random() < 0.5:
            return [make_json(rng, depth - 1) for _ in range(rng.randrange(4))]
        return {rng.choice((*MEMBERS, *STEPS)): make_json(rng, depth - 1) for _ in range(rng.randrange(4))}
    wide = rng.choice((2**64, 10**30, -(2**63) - 1)) if rng.random() < 0.1 else make_int(rng)
    return rng.choice((None, True, False, wide, rng.choice((0.5, -1.5, 2.5e-7, 1e300)), make_text(rng)))


def make_place(rng: Random) -> dict[str, Any]:
    place: dict[str, Any] = {"city": make_text(rng)}
    if rng.random() < 0.6:
        place["a"] = None if rng.random() < 0.3 else make_int(rng)
    if rng.random() < 0.6:
        place["geo"] = {"a": make_float(rng)}
    if rng.random() < 0.6:
        place["tags"] = some(make_text)(rng)
    return place


def some(make: Make) -> Make:
    return lambda rng: [make(rng) for _ in range(rng.randrange(4))]


def maybe(make: Make) -> Make:
    return lambda rng: None if rng.random() < 0.3 else make(rng)


def mapped(make: Make) -> Make:
    return lambda rng: {rng.choice((*MEMBERS, *STEPS)): make(rng) for _ in range(rng.randrange(4))}


PLAIN = [
    Kind(str, make_text, "str"),
    Kind(int, make_int, "int"),
    Kind(float, make_float, "float"),
    Kind(bool, lambda rng: rng.random() < 0.5, "bool"),
    Kind(datetime, lambda rng: rng.choice(INSTANTS), "datetime"),
    Kind(date, lambda rng: rng.choice(DATES), "date"),
    Kind(bytes, lambda rng: rng.choice(BYTES), "bytes"),
    Kind(Literal["a", "b", "a\x00b"], lambda rng: rng.choice(("a", "b", "a\x00b")), "str"),
]
KINDS = [
    *PLAIN,
    *(Kind(kind.annotation | None, maybe(kind.make), kind.scalar) for kind in PLAIN[:-1]),
    Kind(list[str], some(make_text)),
    Kind(list[int] | None, maybe(some(make_int))),
    Kind(list[float], some(make_float)),
    Kind(list[datetime], some(lambda rng: rng.choice(INSTANTS))),
    Kind(tuple[int, str], lambda rng: (make_int(rng), make_text(rng))),
    Kind(list[tuple[int, ...]], some(lambda rng: tuple(some(make_int)(rng)))),
    Kind(dict[str, int], mapped(make_int)),
    Kind(dict[str, str | None], mapped(maybe(make_text))),
    Kind(dict[str, bytes], mapped(lambda rng: rng.choice(BYTES))),
    Kind(dict[str, object], mapped(make_json)),
    Kind(Place, make_place),
    Kind(Place | None, maybe(make_place)),
    Kind(list[Place], some(make_place)),
    Kind(int | str | None, lambda rng: rng.choice((None, make_int(rng), make_text(rng)))),
    Kind(Any, make_json),
]
KEYS = [
    Kind(str, lambda rng: rng.choice(("a", "b", "A", "", "ключ", "a'b", "1", "a\x00b")), "str"),
    Kind(int, lambda rng: rng.choice((0, 1, 2, 10, -1, 2**63 - 1)), "int"),
    Kind(date, lambda rng: rng.choice(DATES), "date"),
    Kind(datetime, lambda rng: rng.choice(INSTANTS), "datetime"),
]


def make_world(rng: Random) -> World:
    """Up to three entity types, up to two relation types between them, and up to six commits."""
    names = rng.sample(TYPE_NAMES, 5)
    entities = [_entity(rng, name) for name in names[: rng.randrange(1, 4)]]
    relations = [_relation(rng, name, entities) for name in names[3 : 3 + rng.randrange(3)]]
    subjects = [*entities, *relations]
    commits = []
    for _ in range(rng.randrange(1, 7)):
        commits.append([_row(rng, rng.choice(subjects)) for _ in range(rng.randrange(1, 9))])
    return World(entities, relations, commits)


def with_removals(rng: Random, world: World) -> World:
    """The same history, in which things that were written go again: at once, later, or to come back."""
    written: list[Declared] = []
    removed: list[list[Declared]] = []
    for objects in world.commits:
        removed.append([rng.choice(written) for _ in range(rng.randrange(4))] if written else [])
        written += objects
    return replace(world, removed=removed)


def _fields(rng: Random, most: int, taken: tuple[str, ...] = ()) -> dict[str, Kind]:
    names = rng.sample([name for name in FIELD_NAMES if name not in taken], rng.randrange(most + 1))
    return {name: rng.choice(KINDS) for name in names}


def _entity(rng: Random, name: str) -> Subject:
    key = rng.choice(("id", "true", "entity_key", "größe", "a b"))
    kinds = {key: rng.choice(KEYS), **_fields(rng, 5, (key,))}
    body: dict[str, Any] = {
        "__annotations__": _annotate(kinds),
        key: Field(primary_key=True),
        **{field: Field(index=True) for field, kind in kinds.items() if field != key and rng.random() < 0.3},
    }
    return Subject(name, type("RandomEntity", (Entity,), body, name=name), kinds, key)


def _annotate(kinds: Mapping[str, Kind]) -> dict[str, Any]:
    declared: Any = Field
    return {name: declared[kind.annotation] for name, kind in kinds.items()}


def _relation(rng: Random, name: str, entities: list[Subject]) -> Subject:
    ends = rng.choice(entities), rng.choice(entities)
    kinds = _fields(rng, 3)
    instance_key = rng.choice((None, "slot", "quo\"te's"))
    kinds.pop(instance_key or "", None)
    body: dict[str, Any] = {"__annotations__": _annotate(kinds)}
    if instance_key is not None:
        body["__annotations__"] |= {instance_key: Field[str]}
        body[instance_key] = Field(instance_key=True)
    base: Any = Relation
    bases = (base[ends[0].cls, ends[1].cls],)
    cls = types.new_class("RandomRelation", bases, {"name": name}, lambda namespace: namespace.update(body))
    return Subject(name, cls, kinds, None, ends, instance_key)


def _row(rng: Random, subject: Subject) -> Declared:
    values = {name: kind.make(rng) for name, kind in subject.kinds.items()}
    if subject.ends is not None:
        for side, end in zip(("left_key", "right_key"), subject.ends, strict=True):
            values[side] = "nobody" if rng.random() < 0.2 else end.kinds[end.key or ""].make(rng)
        if subject.instance_key is not None:
            values[subject.instance_key] = rng.choice(("x", "y'"))
    made: Declared = subject.cls(**values)
    return made


def declared_at(annotation: Any, steps: Sequence[str]) -> Any:
    """The annotation of a place inside a value, without `None`; None where it does not say."""

    def only(found: Any) -> Any:
        while typing.get_origin(found) in (typing.NotRequired, typing.Required, typing_extensions.NotRequired):
            (found,) = typing.get_args(found)
        if typing.get_origin(found) in (typing.Union, types.UnionType):
            members = [member for member in typing.get_args(found) if member is not type(None)]
            return only(members[0]) if len(members) == 1 else None
        return found

    found = only(annotation)
    for step in steps:
        if typing_extensions.is_typeddict(found):
            found = only(typing.get_type_hints(found, include_extras=True).get(step))
        elif typing.get_origin(found) is dict:
            found = only(typing.get_args(found)[1])
        else:
            return None
    return found
