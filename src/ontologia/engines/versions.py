"""The versions that a type's rows had, each in force from one commit until another (RFC 0009 §4.3, §6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ontologia.engines.catalog import Catalog, TypeLayout
from ontologia.model import TypeRef, TypeSchema, TypeSchemaDiff, diff
from ontologia.model.schema import EarlierNames
from ontologia.query.plan import Window

if TYPE_CHECKING:
    from ontologia.engines.base import Engine


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a type, under the name that the type had then.

    `until` is the commit at which the next one came into force, `change` what that one changed, and `filled` the
    values that its migration gave to new fields. The version in force has none of these.
    """

    layout: TypeLayout
    until: int | None = None
    change: TypeSchemaDiff | None = None
    filled: Mapping[str, Any] = field(default_factory=dict)

    @property
    def schema(self) -> TypeSchema:
        return self.layout.schema

    def is_read_in(self, window: Window) -> bool:
        """Whether a window has rows of it. A migration wrote every row in force anew, so that a state is always of
        one version alone."""
        start, end, commit = self.layout.activation_commit_id, self.until, window.commit or 0
        match window.mode:
            case "latest":
                return end is None
            case "as_of":
                return start <= commit and (end is None or commit < end)
            case "since":
                return end is None or commit < end - 1
        return True


def versions_of(engine: Engine, schema: TypeSchema, catalog: Catalog) -> list[Version]:
    """The versions of a type that is stored, oldest first, and those under the names it had before."""
    current = catalog.layouts[schema.ref]
    key = (current.ref, current.schema_version_id, current.activation_commit_id, str(schema.earlier))
    known: list[Version] | None = catalog.remembered.get(key)
    if known is None:
        known = catalog.remembered[key] = _find(engine, schema, current, catalog)
    return known


def _find(engine: Engine, schema: TypeSchema, current: TypeLayout, catalog: Catalog) -> list[Version]:
    found = [Version(current)]
    ref: TypeRef | None = schema.ref
    while ref is not None:
        earlier = None
        for layout in reversed(engine.layouts_of(ref, catalog)):
            if layout.activation_commit_id < found[0].layout.activation_commit_id:
                found.insert(0, _before(engine, layout, found[0].layout, schema))
        note = _note(engine, ref, found[0].layout.activation_commit_id) if catalog.dropped else {}
        if "renamed_from" in note and found[0].layout.ref == ref:
            earlier = TypeRef(ref.kind, note["renamed_from"])
        ref = earlier if earlier in catalog.dropped else None
    # Of those that had ended when history begins, nothing is left.
    return [version for version in found if version.until is None or version.until > catalog.base]


def is_cut(engine: Engine, schema_ref: TypeRef, window: Window, catalog: Catalog) -> bool:
    """Whether a window has rows of earlier versions of a type, which a read of the current one leaves out."""
    layout = catalog.layouts.get(schema_ref)
    if layout is None or window.mode == "latest":
        return False
    if window.mode != "history" and (window.commit or 0) >= layout.activation_commit_id - (window.mode == "since"):
        return False
    versions = versions_of(engine, layout.schema, catalog)
    return any(version.until is not None and version.is_read_in(window) for version in versions)


def read_in(versions: Sequence[Version], window: Window) -> list[Version]:
    return [version for version in versions if version.is_read_in(window)]


def _before(engine: Engine, layout: TypeLayout, later: TypeLayout, code: TypeSchema) -> Version:
    note = _note(engine, later.ref, later.activation_commit_id)
    names = code.earlier  # of a migration that did not write down what it renamed
    if "renamed_fields" in note:
        ends = {new: old for old, new in note.get("renamed_ends", {}).items()}
        names = EarlierNames(note.get("renamed_from"), {new: old for old, new in note["renamed_fields"].items()}, ends)
    change = diff(layout.schema, replace(later.schema, earlier=names), layout.schema_version_id)
    return Version(layout, later.activation_commit_id, change, note.get("filled", {}))


def _note(engine: Engine, ref: TypeRef, commit_id: int) -> Mapping[str, Any]:
    """What the migration that brought a version wrote down about it (RFC 0009 §6.1); nothing for a type's first."""
    for note in engine.migrated_types(commit_id):
        if (note.get("type_kind"), note.get("type_name")) == (ref.kind, ref.name):
            return note
    return {}
