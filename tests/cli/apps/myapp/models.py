"""The classes of the shop that the console's tests keep."""

from datetime import date, datetime
from typing import Any

from ontologia import Entity, Field, Relation


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    tier: Field[str] = "Basic"
    age: Field[int | None] = None
    active: Field[bool] = True
    joined: Field[datetime | None] = None
    tags: Field[list[str]] = Field(default_factory=list)
    address: Field[dict[str, Any] | None] = None
    photo: Field[bytes | None] = None
    score: Field[float] = 0.0


class Product(Entity):
    sku: Field[int] = Field(primary_key=True)
    price: Field[float]
    since: Field[date | None] = None


class Subscription(Relation[Customer, Product]):
    seat: Field[str] = Field(instance_key=True)
    seats: Field[int] = 1
