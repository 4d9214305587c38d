"""The schema of a type as data: from a class, or read back from a store. One fingerprint decides whether they agree."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from ontologia.model.columns import COMMIT_ID, Column, identity_of, layout
from ontologia.model.typespec import TypeSpec, canonical_json, check_spec
from ontologia.model.values import is_unicode

Kind = Literal["entity", "relation"]
_WISHES = ("index", "dimensions")  #: about speed, not about meaning


class TypeRef(NamedTuple):
    """Names a stored type. Entities and relations have separate names.

    A tuple, because every query looks several of them up and tuples hash fast.
    """

    kind: Kind
    name: str

    @property
    def identity(self) -> tuple[str, ...]:
        return identity_of(self.kind)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """One stored field. `index` is a wish about speed and no part of the fingerprint."""

    name: str
    spec: TypeSpec
    primary_key: bool = False
    index: bool | str = False
    dimensions: int | None = None  #: of a vector
    unique: bool = False

    def __hash__(self) -> int:
        return hash(self.name)

    def to_json(self) -> dict[str, Any]:
        content = {"name": self.name, "type": self.spec, "primary_key": self.primary_key, "index": self.index}
        more = {"dimensions": self.dimensions, "unique": self.unique or None}
        return content | {name: value for name, value in more.items() if value is not None}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> FieldSchema:
        check_spec(content["type"])
        options = (content.get("primary_key", False), content.get("index", False), content.get("dimensions"))
        if not isinstance(options[0], bool) or not isinstance(options[1], bool | str):
            raise TypeError(f"field {content['name']}: primary_key and index must be true or false, not {options[:2]}")
        return cls(content["name"], content["type"], *options, content.get("unique", False))


@dataclass(frozen=True, slots=True)
class EarlierNames:
    """What a class says its type, its fields and its ends were called before. It is about the way, and not stored."""

    type: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    """By the new name; an instance key is among them."""
    ends: Mapping[str, str] = field(default_factory=dict)
    """Of a relation: entities at its ends, by the new name."""


NO_EARLIER_NAMES = EarlierNames()


@dataclass(frozen=True)
class TypeSchema:
    """What is stored for a type: its fields, and for a relation the endpoint types and the instance key's name."""

    ref: TypeRef
    fields: tuple[FieldSchema, ...]
    left: str | None = None
    right: str | None = None
    instance_key: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False)
    earlier: EarlierNames = field(default=NO_EARLIER_NAMES, compare=False)

    def __hash__(self) -> int:
        return hash((self.ref, self.fingerprint))

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return layout((item.name, item.spec) for item in self.fields)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.fields)

    @cached_property
    def by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    @cached_property
    def primary_key(self) -> str | None:
        return next((item.name for item in self.fields if item.primary_key), None)

    @cached_property
    def indexed(self) -> tuple[Column, ...]:
        """Fields that are looked up by value; text search and vectors are no part of it."""
        ordered = (True, "btree", "bitmap")
        return tuple(self.by_name[item.name] for item in self.fields if item.index in ordered and not item.primary_key)

    @cached_property
    def unique(self) -> tuple[str, ...]:
        """Fields of which no two rows have the same value, besides the key."""
        return tuple(item.name for item in self.fields if item.unique)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal meaning: the order of fields, defaults and indexes do not change it."""
        content = self.to_json()
        content["fields"] = sorted(
            ({key: value for key, value in item.items() if key not in _WISHES} for item in content["fields"]),
            key=lambda item: str(item["name"]),
        )
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "kind": self.ref.kind,
            "name": self.ref.name,
            "fields": [item.to_json() for item in self.fields],
        }
        if self.ref.kind == "relation":
            content |= {"left": self.left, "right": self.right, "instance_key": self.instance_key}
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TypeSchema:
        known = {"kind", "name", "fields", "left", "right", "instance_key"}
        check_name(content["name"], "a stored type")
        if content["kind"] not in ("entity", "relation"):
            raise ValueError(f"{content['name']} must be an entity or a relation, not {content['kind']!r}")
        for end in ("left", "right", "instance_key"):
            if not isinstance(content.get(end), str | None):
                raise TypeError(f"{end} of {content['name']} must be text, not {content[end]!r}")
        for item in content["fields"]:
            check_name(item["name"], f"a field of {content['name']}")
        return cls(
            TypeRef(content["kind"], content["name"]),
            tuple(map(FieldSchema.from_json, content["fields"])),
            content.get("left"),
            content.get("right"),
            content.get("instance_key"),
            {key: value for key, value in content.items() if key not in known},
        )


def check_name(name: Any, what: str) -> None:
    """Refuse what no store can have as a name. Everything else is quoted, never trusted."""
    if not isinstance(name, str) or not name.strip() or "\0" in name or not is_unicode(name):
        raise ValueError(f"{name!r} cannot be the name of {what}")


def commit_column(schema: TypeSchema) -> str:
    """What the commit of a row is called beside its fields, in a table where rows are versions."""
    return f"__{COMMIT_ID}" if COMMIT_ID in schema.by_name else COMMIT_ID


def removed_column(schema: TypeSchema) -> str:
    """What says of a version, beside its fields, that it is a removal."""
    return "__removed" if "removed" in schema.by_name else "removed"
