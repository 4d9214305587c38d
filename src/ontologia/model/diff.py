"""What changed between the stored schema of a type and the one in code, field by field."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
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
    renamed: tuple[tuple[str, str], ...] = ()
    """Fields that keep their values under another name: before, and now."""
    renamed_from: str | None = None
    """What the type was called, where it has another name now."""

    @property
    def is_weakening(self) -> bool:
        """Whether all old rows and all old readers stay valid: fields were added, and nothing else."""
        return not (self.removed or self.changed or self.identity or self.renamed or self.renamed_from)

    @property
    def added_fields(self) -> list[str]:
        """The names of the fields that only the code has."""
        return list(self.added)

    @property
    def removed_fields(self) -> list[str]:
        """The names of the fields that only the store has."""
        return list(self.removed)

    @property
    def changed_fields(self) -> dict[str, dict[str, str]]:
        """The types of the fields that have another type now, as `stored` and in `code`."""
        return {change.name: dict(zip(("stored", "code"), change.texts, strict=True)) for change in self.changed}

    @property
    def type_kind(self) -> str:
        return self.ref.kind

    @property
    def type_name(self) -> str:
        return self.ref.name

    def __bool__(self) -> bool:
        return bool(self.added) or not self.is_weakening

    def __str__(self) -> str:
        parts = [] if self.renamed_from is None else [f"was {self.renamed_from}"]
        parts += [f"{before} → {after}" for before, after in self.renamed]
        parts += [f"+{name}" for name in self.added]
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
            "renamed": [{"from": before, "to": after} for before, after in self.renamed],
            "renamed_from": self.renamed_from,
        }


def diff(stored: TypeSchema, code: TypeSchema, stored_version: int | None = None) -> TypeSchemaDiff:
    """Compare two schemas of one type. Falsy when they mean the same.

    Where the code says what something was called before, and the store has it so, it is compared under its new name.
    """
    names, before = find_renamed_fields(stored, code), stored.ref.name
    stored = under_new_names(stored, code)
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
        renamed=tuple(names.items()),
        renamed_from=None if before == code.ref.name else before,
    )


def find_renamed_fields(stored: TypeSchema, code: TypeSchema) -> dict[str, str]:
    """Stored fields that the code has under another name, by the stored one; an instance key may be among them."""
    there = {*stored.names, stored.instance_key}
    return {old: new for new, old in code.earlier.fields.items() if old in there and new not in there}


def under_new_names(stored: TypeSchema, code: TypeSchema) -> TypeSchema:
    """A stored schema as it would be if names were all that changed."""
    names, ends = find_renamed_fields(stored, code), {old: new for new, old in code.earlier.ends.items()}
    key = stored.instance_key
    return replace(
        stored,
        ref=code.ref,
        fields=tuple(replace(item, name=names.get(item.name, item.name)) for item in stored.fields),
        left=None if stored.left is None else ends.get(stored.left, stored.left),
        right=None if stored.right is None else ends.get(stored.right, stored.right),
        instance_key=None if key is None else names.get(key, key),
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
