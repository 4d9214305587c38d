"""What changed between the stored schema of a type and the one in code, field by field."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ontologia.model.schema import TypeRef, TypeSchema
from ontologia.model.typespec import ANY, TypeSpec, render


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field whose type differs, or whether it is unique. `stored` and `code` are type specs."""

    name: str
    stored: TypeSpec
    code: TypeSpec
    was_unique: bool = False
    is_unique: bool = False

    @property
    def texts(self) -> tuple[str, str]:
        """The types as a person writes them: as stored, and in code."""
        both = (self.stored, self.was_unique), (self.code, self.is_unique)
        before, after = (f"{render(spec)}{', unique' if unique else ''}" for spec, unique in both)
        return before, after

    def __str__(self) -> str:
        return f"{self.name}: {' → '.join(self.texts)}"


@dataclass(frozen=True, slots=True)
class TypeSchemaDiff:
    """The difference for one type; `added`, `removed` and `changed` name fields.

    `stored_version` is the schema version that the store has, where that is known.
    """

    ref: TypeRef
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[FieldChange, ...] = ()
    identity: tuple[str, ...] = ()
    stored_version: int | None = field(default=None, compare=False)

    @property
    def added_fields(self) -> list[str]:
        """The names of the fields that only the code has."""
        return list(self.added)

    @property
    def removed_fields(self) -> list[str]:
        """The names of the fields that only the store has."""
        return list(self.removed)

    @property
    def changed_fields(self) -> dict[str, tuple[str, str]]:
        """The types of the fields that have another type now: as stored, and in code."""
        return {change.name: change.texts for change in self.changed}

    @property
    def type_kind(self) -> str:
        return self.ref.kind

    @property
    def type_name(self) -> str:
        return self.ref.name

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.identity)

    def __str__(self) -> str:
        parts = [f"+{name}" for name in self.added]
        parts += [f"-{name}" for name in self.removed]
        parts += [f"~{change}" for change in self.changed]
        parts += list(self.identity)
        return f"{self.ref.name} ({', '.join(parts) or 'no change'})"

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.ref.kind,
            "type": self.ref.name,
            "added": list(self.added),
            "removed": list(self.removed),
            "changed": [
                {"field": change.name, "stored": change.texts[0], "code": change.texts[1]} for change in self.changed
            ],
            "identity": list(self.identity),
        }


def diff(stored: TypeSchema, code: TypeSchema, stored_version: int | None = None) -> TypeSchemaDiff:
    """Compare two schemas of one type. Falsy when they mean the same."""
    old = {item.name: item for item in stored.fields}
    new = {item.name: item for item in code.fields}
    return TypeSchemaDiff(
        code.ref,
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(
            FieldChange(name, old[name].spec, new[name].spec, old[name].unique, new[name].unique)
            for name in new
            if name in old and (old[name].spec, old[name].unique) != (new[name].spec, new[name].unique)
        ),
        identity=tuple(_identity_changes(stored, code)),
        stored_version=stored_version,
    )


def _identity_changes(stored: TypeSchema, code: TypeSchema) -> list[str]:
    pairs = (
        ("primary key", stored.primary_key, code.primary_key),
        ("left", stored.left, code.left),
        ("right", stored.right, code.right),
        ("instance key", stored.instance_key, code.instance_key),
    )
    return [f"{label}: {before} → {after}" for label, before, after in pairs if before != after]


def widens(stored: TypeSpec, code: TypeSpec) -> bool:
    """Whether every value of the stored type is a value of the code's type, so that rows need no upgrader."""
    if stored == code or code == ANY:
        return True
    if code["kind"] != "union":
        return False
    members = stored["members"] if stored["kind"] == "union" else [stored]
    return all(member in code["members"] for member in members)
