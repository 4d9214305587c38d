"""The data of the benchmarks: a customer such as one finds in the wild, in any number, always the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

from ontologia import Entity, Field

TIERS = ("bronze", "silver", "gold", "platinum")
CITIES = ("Lisbon", "Århus", "Kraków", "Zürich", "Napoli", "Gent")
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
PER_POSTCODE = 10


class Address(TypedDict):
    street: str
    city: str


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    tier: Field[str]
    postcode: Field[str] = Field(index=True)
    age: Field[int | None] = None
    balance: Field[float] = 0.0
    active: Field[bool] = True
    created: Field[datetime]
    tags: Field[list[str]] = Field(default_factory=list)
    address: Field[Address | None] = None


def key(number: int) -> str:
    return f"cust-{number:08d}"


def postcode(number: int) -> str:
    return f"pc-{number // PER_POSTCODE:07d}"


def values(count: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Keyword arguments for `count` customers, in key order."""
    chance = random.Random(seed)
    for number in range(count):
        yield {
            "id": key(number),
            "name": f"Customer {number} {chance.choice(CITIES)}",
            "tier": chance.choice(TIERS),
            "postcode": postcode(number),
            "age": None if number % 7 == 0 else chance.randint(18, 99),
            "balance": chance.random() * 10_000,
            "active": number % 3 != 0,
            "created": EPOCH + timedelta(seconds=chance.randint(0, 10**8)),
            "tags": [f"tag{chance.randint(0, 9)}" for _ in range(number % 4)],
            "address": None if number % 5 == 0 else {"street": f"Street {number}", "city": chance.choice(CITIES)},
        }
