"""Schemas and rows side by side, so that a change is seen at a glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ontologia.cli.output import Face, cell
from ontologia.model import TypeRef, TypeSchema, TypeSchemaDiff
from ontologia.model.typespec import render


def draw_schema_diffs(
    face: Face,
    diffs: Sequence[TypeSchemaDiff],
    before: Mapping[TypeRef, TypeSchema],
    after: Mapping[TypeRef, TypeSchema],
) -> None:
    """Type by type: fields added, removed and changed, with their types."""
    for diff in diffs:
        face.line(str(diff.ref) if diff.renamed_from is None else f"{diff.ref} (was {diff.renamed_from})", "strong")
        for old, new in diff.renamed:
            face.change("~", f"{old} → {new}")
        for name in diff.added:
            face.change("+", f"{name}: {_type_of(after, diff.ref, name)}")
        for name in diff.removed:
            stored = TypeRef(diff.ref.kind, diff.renamed_from or diff.ref.name)
            face.change("-", f"{name}: {_type_of(before, stored, name)}")
        for change in diff.changed:
            face.change("~", str(change))
        for text in diff.identity:
            face.change("~", text)


def draw_schema(face: Face, schema: TypeSchema) -> None:
    """One schema, a field a line."""
    face.line(f"{schema.ref}  {schema.fingerprint[:12]}", "strong")
    if schema.ref.kind == "relation":
        face.line(f"  {schema.left} → {schema.right}", "dim")
    if schema.instance_key is not None:
        face.line(f"  {schema.instance_key}: str  instance_key")
    for field in schema.fields:
        marks = [mark for mark in ("primary_key", "index") if getattr(field, mark)]
        face.line("  ".join((f"  {field.name}: {render(field.spec)}", *marks)))


def draw_row_change(face: Face, change: Mapping[str, Any]) -> None:
    """One identity of a commit: what it was and what it became, field by field."""
    operation = change["operation"]
    sign: Literal["+", "-", "~"] = "+" if operation == "insert" else "-" if operation == "remove" else "~"
    identity = "/".join(str(change[key]) for key in ("key", "left_key", "right_key", "instance_key") if change.get(key))
    face.change(sign, f"{change['type_name']} {identity}", indent=0)
    for name, values in (change.get("fields") or {}).items():
        if sign != "+":
            face.change("-", f"{name}: {cell(values['before'])}")
        if sign != "-":
            face.change("+", f"{name}: {cell(values['after'])}")


def _type_of(schemas: Mapping[TypeRef, TypeSchema], ref: TypeRef, name: str) -> str:
    schema = schemas.get(ref)
    column = None if schema is None else schema.by_name.get(name)
    return "?" if column is None else render(column.spec)
