"""The shop a release later: a customer's tier became a level, and the e-mail address is new."""

from datetime import datetime
from typing import Any

from myapp.models import Product
from ontologia import Entity, Field, Relation


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    level: Field[int]
    email: Field[str | None] = None
    age: Field[int | None] = None
    active: Field[bool] = True
    joined: Field[datetime | None] = None
    tags: Field[list[str]] = Field(default_factory=list)
    address: Field[dict[str, Any] | None] = None
    photo: Field[bytes | None] = None
    score: Field[float] = 0.0


class Subscription(Relation[Customer, Product]):
    seat: Field[str] = Field(instance_key=True)
    seats: Field[int] = 1
