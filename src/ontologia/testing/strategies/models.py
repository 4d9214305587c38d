"""Hypothesis strategies for models, rows and histories, drawn towards what breaks storage.

Fields are named like SQL and like our own columns, values sit at the limits of their types, and a history has few keys,
so that updates, unchanged rows and dangling relations happen all the time. Random queries are in `queries`.

    @given(st.data())
    def test(data):
        model = data.draw(models())
        history = data.draw(histories(model))
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from math import inf, nan
from typing import Any, NotRequired

from hypothesis import strategies as st
from typing_extensions import TypedDict

from ontologia.model import Declared, Entity, Field, Relation

FIELD_NAMES = (
    *("select", "order", "group", "from", "where", "table", "index", "limit", "value", "Value", "VALUE"),
    *("commit_id", "commit_id__2", "schema_version_id", "entity_key", "entity_type", "relation_type", "fields_json"),
    *(
        "rowid",
        "oid",
        "superseded_by",
        "_hidden",
        "document",
        "item",
        "meta",
        "s",
        "t",
        "k",
        "n",
        "c0",
        "true",
        "False",
    ),
    *("größe", "имя", "数"),
)
TYPE_NAMES = (
    "select",
    "Order",
    "order",
    '5" disk',
    "it's",
    "a/b",
    "Gruppe",
    "Größe",
    "sqlite",
    "Table",
    "commits",
    "A",
    "B",
)

TEXTS = (
    "",
    "a",
    "A",
    "ab",
    "b",
    "a%",
    "_",
    "O'Hara",
    '"',
    "\\",
    "💡",
    "e\u0301",
    "é",
    "NaN",
    "null",
    "1",
    " ",
    "\n",
    "a\x00b",
    "\x00",
)
INTS = (0, 1, -1, 2, 10, 2**53 + 1, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, 1.5, -1.5, 0.1, nan, inf, -inf, 5e-324, 1.7976931348623157e308)
INSTANTS = (
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2024, 2, 29, 12, tzinfo=UTC),
    datetime(2024, 2, 29, 17, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    datetime(2024, 2, 29, 12, microsecond=1),
)
DATES = (date.min, date.max, date(1969, 12, 31), date(2024, 2, 29))
BYTES = (b"", b"\x00", b"a", b"\xff\x00", b"\xff")
STEPS = ("a", "city", "zip", "geo", "geo.lat", "größe", "nothing")


class Geo(TypedDict):
    """The inner structure."""

    lat: float


class Where(TypedDict):
    """A structure whose parts may be missing."""

    city: str
    zip: NotRequired[str | None]
    geo: NotRequired[Geo]


@dataclass(frozen=True)
class Kind:
    """A type of field, and values for it."""

    name: str
    annotation: Any
    values: st.SearchStrategy[Any] = field(repr=False)
    scalar: bool = True


def texts() -> st.SearchStrategy[str]:
    return st.sampled_from(TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


def floats(*, finite: bool = False) -> st.SearchStrategy[float]:
    pool = st.sampled_from([number for number in FLOATS if not finite or abs(number) < inf])
    return pool | st.integers(-400, 400).map(lambda number: number / 4)


def json_values() -> st.SearchStrategy[Any]:
    """Whatever JSON can say, with numbers that every JSON parser keeps."""
    leaves = (
        st.none()
        | st.booleans()
        | st.integers(-3, 3)
        | st.sampled_from((2**53, 2**53 + 1, 2**60 + 1))
        | st.sampled_from((0.5, -1e300))
        | texts()
    )
    keys = st.sampled_from(("a", "b", "city", "größe", "", "a b", 'q"'))
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=5
    )


def scalar_kinds() -> list[Kind]:
    plain = [
        Kind("str", str, texts()),
        Kind("int", int, st.sampled_from(INTS) | st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)),
        Kind("float", float, floats()),
        Kind("bool", bool, st.booleans()),
        Kind("datetime", datetime, st.sampled_from(INSTANTS)),
        Kind("date", date, st.sampled_from(DATES) | st.dates()),
        Kind("bytes", bytes, st.sampled_from(BYTES) | st.binary(max_size=3)),
    ]
    optional = [Kind(f"{kind.name} | None", kind.annotation | None, st.none() | kind.values) for kind in plain]
    return plain + optional


def json_kinds() -> list[Kind]:
    where = st.fixed_dictionaries(
        {"city": texts()}, optional={"zip": st.none() | texts(), "geo": st.fixed_dictionaries({"lat": floats()})}
    )
    keys = st.sampled_from(("a", "city", "größe", "a b"))
    whole = st.integers(-2, 2) | st.sampled_from((2**53, 2**53 + 1, 2**63 - 1, -(2**63)))
    return [
        Kind("list[str]", list[str], st.lists(texts(), max_size=3), scalar=False),
        Kind("list[int]", list[int], st.lists(whole, max_size=3), scalar=False),
        Kind("list[float] | None", list[float] | None, st.none() | st.lists(floats(), max_size=3), scalar=False),
        Kind("list[datetime]", list[datetime], st.lists(st.sampled_from(INSTANTS), max_size=2), scalar=False),
        Kind("dict[str, int]", dict[str, int], st.dictionaries(keys, whole, max_size=3), scalar=False),
        Kind(
            "dict[str, bytes]",
            dict[str, bytes],
            st.dictionaries(keys, st.sampled_from(BYTES), max_size=2),
            scalar=False,
        ),
        Kind("Where", Where, where, scalar=False),
        Kind("Where | None", Where | None, st.none() | where, scalar=False),
        Kind("list[Where]", list[Where], st.lists(where, max_size=3), scalar=False),
        Kind("int | str | None", int | str | None, st.none() | st.integers(-2, 2) | texts(), scalar=False),
        Kind("Any", Any, json_values(), scalar=False),
    ]


KEY_KINDS = (
    Kind("str", str, st.sampled_from(("a", "b", "A", "", "ключ", "a'b"))),
    Kind("int", int, st.sampled_from((0, 1, 2, 10, -1, 2**63 - 1))),
    Kind("date", date, st.sampled_from(DATES[:3])),
    Kind("datetime", datetime, st.sampled_from(INSTANTS)),
)


@dataclass(frozen=True)
class RandomType:
    """A declared class and how to fill it. `kinds` has every field that a query may name, keys included."""

    cls: type[Any]
    kinds: Mapping[str, Kind]
    rows: st.SearchStrategy[Declared] = field(repr=False)

    def __repr__(self) -> str:
        ref = self.cls.__declaration__.ref
        return f"{ref}({', '.join(f'{name}: {kind.name}' for name, kind in self.kinds.items())})"


@dataclass(frozen=True)
class RandomModel:
    """Some entities and the relations between them."""

    entities: Sequence[RandomType]
    relations: Sequence[RandomType]

    @property
    def types(self) -> Sequence[RandomType]:
        return (*self.entities, *self.relations)

    @property
    def classes(self) -> tuple[type[Declared], ...]:
        return tuple(item.cls for item in self.types)


def field_sets(*, max_size: int = 5) -> st.SearchStrategy[dict[str, Kind]]:
    kinds = st.sampled_from([*scalar_kinds(), *json_kinds()])
    return st.dictionaries(st.sampled_from(FIELD_NAMES), kinds, max_size=max_size)


@st.composite
def models(draw: st.DrawFn) -> RandomModel:
    """One or two entity types and up to two relation types."""
    names = draw(st.lists(st.sampled_from(TYPE_NAMES), min_size=4, max_size=4, unique=True))
    entities = [_draw_entity(draw, name) for name in names[: draw(st.integers(1, 2))]]
    relations = [_draw_relation(draw, name, entities) for name in names[2 : 2 + draw(st.integers(0, 2))]]
    return RandomModel(entities, relations)


def _draw_entity(draw: st.DrawFn, name: str) -> RandomType:
    fields = draw(field_sets())
    key = draw(st.sampled_from(("id", "key", "_id")))
    kinds = {key: draw(st.sampled_from(KEY_KINDS)), **fields}
    indexed = draw(st.sets(st.sampled_from(sorted(fields)))) if fields else set()
    cls = declare_entity(name, key, {name: kind.annotation for name, kind in kinds.items()}, indexed=indexed)
    values = st.fixed_dictionaries({name: kind.values for name, kind in kinds.items()})
    return RandomType(cls, kinds, values.map(lambda row: cls(**row)))


def _draw_relation(draw: st.DrawFn, name: str, entities: Sequence[RandomType]) -> RandomType:
    left, right = draw(st.sampled_from(entities)), draw(st.sampled_from(entities))
    fields = draw(field_sets(max_size=3))
    instance_key = draw(st.sampled_from((None, "seat")))
    kinds = dict(fields)
    if instance_key is not None:
        kinds[instance_key] = Kind("str", str, st.sampled_from(("1", "2", "ß")))
    cls = declare_relation(
        name, left.cls, right.cls, {name: kind.annotation for name, kind in kinds.items()}, instance_key=instance_key
    )
    return relation_rows(cls, left, right, kinds)


def relation_rows(cls: type[Any], left: RandomType, right: RandomType, kinds: Mapping[str, Kind]) -> RandomType:
    """A relation class and how to fill it, with ends that may not be there."""
    ends = {"left_key": _end_keys(left), "right_key": _end_keys(right)}
    values = st.fixed_dictionaries({**ends, **{name: kind.values for name, kind in kinds.items()}})
    key = Kind("str", str, st.sampled_from(("a", "b", "1", "10", "nobody")))
    return RandomType(cls, {"left_key": key, "right_key": key, **kinds}, values.map(lambda row: cls(**row)))


def _end_keys(entity: RandomType) -> st.SearchStrategy[Any]:
    key = entity.kinds[entity.cls.__declaration__.primary_key]
    return key.values | key.values | st.just("nobody")


def declare_entity(
    name: str,
    key: str,
    annotations: Mapping[str, Any],
    *,
    indexed: set[str] | None = None,
    options: Mapping[str, Any] | None = None,
    renamed_from: str | None = None,
    key_renamed_from: str | None = None,
) -> type[Entity]:
    """An entity class made at run time."""
    given = {field: Field(index=True) for field in indexed or ()} | dict(options or {})
    given[key] = Field(primary_key=True, renamed_from=key_renamed_from)
    return _declare(Entity, "RandomEntity", name, annotations, given, renamed_from)


def declare_relation(
    name: str,
    left: type[Entity],
    right: type[Entity],
    annotations: Mapping[str, Any],
    *,
    instance_key: str | None = None,
    options: Mapping[str, Any] | None = None,
    renamed_from: str | None = None,
    key_renamed_from: str | None = None,
) -> type[Relation[Any, Any]]:
    """A relation class made at run time."""
    given = dict(options or {})
    if instance_key is not None:
        given[instance_key] = Field(instance_key=True, renamed_from=key_renamed_from)
    return _declare(Relation[left, right], "RandomRelation", name, annotations, given, renamed_from)  # type: ignore[valid-type]


def _declare(
    base: Any,
    title: str,
    name: str,
    annotations: Mapping[str, Any],
    options: Mapping[str, Any],
    renamed_from: str | None,
) -> type[Any]:
    body = {
        "__module__": __name__,
        "__annotations__": {field: Field[annotation] for field, annotation in annotations.items()},  # type: ignore[valid-type]
        **options,
    }
    said = {"name": name} | ({} if renamed_from is None else {"renamed_from": renamed_from})
    return types.new_class(title, (base,), said, lambda namespace: namespace.update(body))


def commits(model: RandomModel) -> st.SearchStrategy[list[Declared]]:
    """What one commit should bring about: a few rows, perhaps several of one identity."""
    return st.lists(st.one_of([item.rows for item in model.types]), min_size=1, max_size=6)


def histories(model: RandomModel) -> st.SearchStrategy[list[list[Declared]]]:
    """A sequence of commits."""
    return st.lists(commits(model), min_size=1, max_size=5)
