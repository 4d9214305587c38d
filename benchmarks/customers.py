"""The data of the benchmarks: a customer such as one finds in the wild, in any number, always the same."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontologia import Entity, Field, Ontology
from ontologia.runtime.rows import WantedRows

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


# --- as tables ---


def table_from(objects: Sequence[Customer]) -> pa.Table:
    rows = WantedRows(Customer.__declaration__)
    for obj in objects:
        rows.add(obj)
    return rows.table()


def numbered(count: int) -> pa.Table:
    """`count` customers as a table; beyond the first 50,000 only what is indexed differs from them."""
    few = table_from([Customer(**row) for row in values(min(count, 50_000))])
    rows = few.take(pa.array(np.arange(count) % few.num_rows))
    keys = _names("cust-", np.arange(count), 8)
    codes = _names("pc-", np.arange(count) // PER_POSTCODE, 7)
    assert (keys[-1].as_py(), codes[-1].as_py()) == (key(count - 1), postcode(count - 1))
    for name, column in (("entity_key", keys), ("id", keys), ("postcode", codes)):
        rows = rows.set_column(rows.column_names.index(name), name, column)
    return rows


def _names(prefix: str, numbers: np.ndarray, digits: int) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pc.utf8_lpad(pa.array(numbers).cast(pa.string()), digits, "0"), "")


def changed(rows: pa.Table, step: int) -> pa.Table:
    """The same customers with another balance."""
    place = rows.column_names.index("balance")
    return rows.set_column(place, "balance", pc.add(rows.column("balance"), float(step)))


def append(onto: Ontology, rows: pa.Table, cls: type[Entity] = Customer) -> None:
    """Rows as one commit, without the detour over objects."""
    schema = cls.__declaration__.schema
    with onto.engine.write() as transaction:
        layout = transaction.catalog.layouts.get(schema.ref) or transaction.activate(schema)
        transaction.append(layout, rows)
        transaction.publish({})
