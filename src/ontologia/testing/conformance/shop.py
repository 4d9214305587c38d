"""A small shop and its history: the data that the conformance queries run over."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime
from math import inf, nan
from typing import Any, NotRequired

from typing_extensions import TypedDict

from ontologia.model import Declared, Entity, Field, Relation


class Point(TypedDict):
    """Where something is."""

    lat: float
    lon: float


class Address(TypedDict):
    """A nested structure, two levels deep."""

    city: str
    zip: NotRequired[str]
    point: NotRequired[Point]


class Line(TypedDict):
    """An item of a list."""

    sku: str
    quantity: int
    tags: NotRequired[list[str]]


class Customer(Entity):
    """Every scalar, optional or not, and some structure."""

    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    age: Field[int | None] = Field(default=None)
    balance: Field[float] = Field(default=0.0)
    active: Field[bool] = Field(default=True)
    joined: Field[datetime | None] = Field(default=None)
    born: Field[date | None] = Field(default=None)
    token: Field[bytes | None] = Field(default=None)
    tier: Field[str | None] = Field(default=None, index=True)
    address: Field[Address | None] = Field(default=None)
    labels: Field[list[str]] = Field(default_factory=list)
    extra: Field[Any] = Field(default=None)


class Product(Entity):
    """Keyed by a number, with columns named like SQL."""

    sku: Field[int] = Field(primary_key=True)
    price: Field[float]
    order: Field[str] = Field(default="none")
    group: Field[int | None] = Field(default=None, index=True)


class Order(Entity):
    """A list of structures."""

    number: Field[str] = Field(primary_key=True)
    lines: Field[list[Line]] = Field(default_factory=list)
    note: Field[str | int | None] = Field(default=None)


class Subscription(Relation[Customer, Product]):
    """Keyed: a customer may subscribe to a product more than once."""

    seat: Field[str] = Field(instance_key=True)
    since: Field[date]
    seats: Field[int] = Field(default=1)


class Follows(Relation[Customer, Customer]):
    """Unkeyed, and from a type to itself."""

    weight: Field[float | None] = Field(default=None)


class Placed(Relation[Customer, Order]):
    """Unkeyed, without fields."""


ENTITIES: tuple[type[Entity], ...] = (Customer, Product, Order)
RELATIONS: tuple[type[Relation[Any, Any]], ...] = (Subscription, Follows, Placed)


def history() -> list[list[Declared]]:
    """Four commits: new rows, updates, unchanged ones, dangling relations, and every awkward value we know."""
    return [list(commit) for commit in (_first(), _second(), _third(), _fourth())]


def _first() -> Iterable[Declared]:
    rome: Address = {"city": "Rome", "zip": "00100", "point": {"lat": 41.9, "lon": 12.5}}
    joined = datetime(2024, 1, 5, 12, tzinfo=UTC)
    yield Customer(id="c1", name="Alice", age=30, balance=10.5, tier="Gold", joined=joined, address=rome)
    yield Customer(id="c2", name="Bob", age=None, balance=-0.0, active=False, born=date(1990, 2, 28), token=b"\x00\xff")
    yield Customer(id="c3", name="100%_sure", age=2**63 - 1, balance=nan, labels=["a", "b"], extra={"n": 1})
    yield Product(sku=1, price=9.5, group=1)
    yield Product(sku=10, price=0.1, order="by", group=1)
    yield Product(sku=2, price=1e9)
    yield Subscription(left_key="c1", right_key="1", seat="s1", since=date(2024, 1, 5), seats=3)
    yield Subscription(left_key="c1", right_key="1", seat="s2", since=date(2024, 1, 6))


def _second() -> Iterable[Declared]:
    yield Customer(id="c1", name="Alice", age=31, balance=12.5, tier="Gold", address={"city": "Oslo"}, labels=["a"])
    yield Customer(id="c4", name="", age=-(2**63), balance=-inf, tier="", extra=[1, "x", None, True])
    yield Customer(id="ç5", name="Zoë 💡", age=0, balance=inf, tier="gold", born=date.min, extra="text")
    yield Subscription(left_key="c1", right_key="10", seat="s1", since=date(2024, 2, 1))
    yield Subscription(left_key="c2", right_key="1", seat="s1", since=date(2024, 2, 2), seats=5)
    yield Follows(left_key="c1", right_key="c2", weight=0.5)
    yield Follows(left_key="c2", right_key="c1", weight=nan)
    yield Follows(left_key="c1", right_key="nobody")
    yield Order(number="o1", lines=[{"sku": "a1", "quantity": 2, "tags": ["x"]}, {"sku": "b2", "quantity": 0}], note=7)
    yield Placed(left_key="c1", right_key="o1")


def _third() -> Iterable[Declared]:
    yield Customer(id="c2", name="Bob", age=44, balance=0.0, joined=datetime.min.replace(tzinfo=UTC), extra=2.5)
    yield Product(sku=1, price=9.5, group=1)  # unchanged: it must not be written again
    yield Product(sku=10, price=0.2, order="by", group=2)
    yield Follows(left_key="c1", right_key="c2", weight=0.75)
    yield Follows(left_key="c4", right_key="c1", weight=1e-300)
    yield Order(number="o2", lines=[], note='O\'Hara "quoted" \\ a\x00b')
    yield Placed(left_key="c2", right_key="o2")


def _fourth() -> Iterable[Declared]:
    yield Customer(id="c1", name="Alice", age=31, balance=12.5, tier=None, address={"city": "Oslo", "zip": ""})
    yield Customer(id="c6", name="bob", age=44, balance=0.25, joined=datetime.max.replace(tzinfo=UTC), born=date.max)
    yield Subscription(left_key="c1", right_key="1", seat="s1", since=date(2024, 1, 5), seats=4)
    yield Order(number="o1", lines=[{"sku": "a1", "quantity": 1}], note=None)
