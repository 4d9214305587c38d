"""A shop that 0.3 kept: a type that was migrated, one that was dropped, relations, and what upgraders leave behind."""

from datetime import datetime
from typing import Any

from typing_extensions import TypedDict

from ontologia import Entity, Field, Relation
from support.writer_03 import BOOL, FLOAT, INT, STR, Store03, as_text, entity, optional, relation


class Address(TypedDict):
    city: str
    zip: str | None


class Customer(Entity):
    """Version 2: `full_name` was `name`, `age` was an int, `channel` is new."""

    id: Field[str] = Field(primary_key=True)
    full_name: Field[str]
    age: Field[float]
    tier: Field[str] = Field(default="basic", index=True)
    tags: Field[list[str]] = Field(default_factory=list)
    address: Field[Address]
    former: Field[Address | None] = None
    joined: Field[datetime | None] = None
    channel: Field[str] = "web"
    notes: Field[list[str]] = Field(default_factory=list)


class Product(Entity):
    sku: Field[int] = Field(primary_key=True)
    price: Field[float]
    code: Field[str | int]
    about: Field[Any] = None


class Order(Relation[Customer, Product]):
    number: Field[str] = Field(instance_key=True)
    quantity: Field[int]
    paid: Field[bool] = False


ADDRESS = {
    "kind": "typed_dict",
    "name": "Address",
    "total": True,
    "fields": {"city": STR, "zip": optional(STR)},
}
TEXTS = {"kind": "list", "item": STR}
COMMON = {"tier": STR, "tags": TEXTS, "address": ADDRESS, "former": as_text("shop_03.Address | None")}
BEFORE = entity("Customer", "id", id=STR, name=STR, age=INT, **COMMON)
NOW = entity(
    "Customer",
    "id",
    id=STR,
    full_name=STR,
    age=FLOAT,
    **COMMON,
    joined=as_text("datetime.datetime | None"),
    channel=STR,
    notes=TEXTS,
)
PRODUCT = entity(
    "Product", "sku", sku=INT, price=FLOAT, code=as_text("str | int"), about={"kind": "primitive", "name": "any"}
)
ORDER = relation("Order", "Customer", "Product", "number", number=STR, quantity=INT, paid=BOOL)
COUPON = entity("Coupon", "id", id=STR)
ROME = {"city": "Rome", "zip": None}


def shop() -> Store03:
    """Five commits: rows, changes, a drop, a migration, and rows after it."""
    store = Store03()
    for schema in (BEFORE, PRODUCT, ORDER, COUPON):
        store.declare(schema)
    alice = {"id": "c1", "name": "Alice", "age": 41, "tier": "gold", "tags": ["vip"], "address": ROME, "former": None}
    bob = {**alice, "id": "c2", "name": "Bö 🦊", "age": 28, "tier": "basic", "tags": [], "former": ROME}
    store.commit(
        store.entity("Customer", "c1", **alice),
        store.entity("Customer", "c2", **bob),
        store.entity("Product", "7", sku=7, price=4.5, code="T", about={"a": [1]}),
        store.entity("Product", "8", sku=8, price=2.0, code="E", about=None),
        store.entity("Coupon", "TEN", id="TEN"),
        metadata={"namespace": "shop"},
    )
    store.commit(
        store.entity("Product", "7", sku=7, price=4.75, code=5, about=9007199254740993),
        store.relation("Order", "c1", "7", "A-1", quantity=2, paid=False),
        store.relation("Order", "c2", "8", "B-1", quantity=9, paid=True),
    )
    store.drop("entity", "Coupon")
    # The upgrader left `name` behind, `age` an int, and `channel` and `notes` to their defaults.
    store.migrate(
        NOW,
        {**alice, "full_name": "Alice", "joined": "2024-02-29T23:59:59.5+01:00"},
        {**bob, "full_name": "Bö 🦊", "joined": None},
    )
    dora = {"id": "c3", "full_name": "Dora", "age": 33.5, "tier": "basic", "tags": ["eu"], "address": ROME}
    store.commit(
        store.entity("Customer", "c3", **dora, former=None, joined=None, channel="shop", notes=["x"]),
        store.relation("Order", "c1", "7", "A-1", quantity=3, paid=True),
        metadata={"namespace": "shop", "source": "erp"},
    )
    return store
