"""Every kind of field there is, for data that travels."""

from datetime import date, datetime
from typing import Any, NotRequired, TypedDict

from ontologia import Entity, Field, Relation


class Node(TypedDict):
    label: str
    children: NotRequired[list["Node"]]


class Kinds(Entity):
    at: Field[datetime] = Field(primary_key=True)
    text: Field[str]
    whole: Field[int]
    real: Field[float]
    flag: Field[bool]
    day: Field[date]
    raw: Field[bytes]
    no_text: Field[str | None]
    anything: Field[Any]
    some: Field[list[int | None]]
    by_number: Field[dict[int, bytes]]
    mixed: Field[int | str | list[str]]
    tree: Field[Node | None]
    instants: Field[list[datetime]]
    key: Field[str]
    commit_id: Field[int]


class Numbered(Entity, name="Odd name/with %"):
    number: Field[int] = Field(primary_key=True)


class Joins(Relation[Kinds, Numbered]):
    pass
