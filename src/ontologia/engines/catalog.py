"""What a store holds at a head, as every engine says it: types, their schema versions, and commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ontologia.errors import HistoryForgottenError, SchemaOutdatedError, ValidationError
from ontologia.model import TypeRef, TypeSchema, diff, is_unicode
from ontologia.query.plan import Window


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One stored version of a type's schema."""

    ref: TypeRef
    schema_version_id: int
    schema: TypeSchema
    created_at: str
    activation_commit_id: int | None = None
    is_current: bool = False

    @property
    def fingerprint(self) -> str:
        return self.schema.fingerprint


def version_number(schema: TypeSchema, known: Sequence[SchemaVersion]) -> int:
    """Which version of its type a schema is: the last that says the same, else the next."""
    same = [version.schema_version_id for version in known if version.fingerprint == schema.fingerprint]
    return same[-1] if same else max((version.schema_version_id for version in known), default=0) + 1


@dataclass(frozen=True, slots=True)
class TypeLayout:
    """Where the current rows of a type lie, and since which commit they are read."""

    ref: TypeRef
    schema: TypeSchema
    schema_version_id: int
    activation_commit_id: int
    table_name: str = ""
    has_removals: bool = False
    """Whether removals are among the rows of its table."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """What a store holds at a head: the current layout of every type, and the names of dropped ones."""

    head: int
    layouts: Mapping[TypeRef, TypeLayout] = field(default_factory=dict)
    dropped: frozenset[TypeRef] = frozenset()
    version: Any = None
    remembered: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """What was found out about its types, and holds as long as these do."""
    base: int = 0
    """The commit at which history begins, if what was before it was given up."""

    def outdated(self, schemas: Mapping[TypeRef, TypeSchema]) -> list[Any]:
        """The differences between these schemas and the stored ones; types not stored yet are no difference."""
        found = []
        for ref, schema in schemas.items():
            layout = self.layout_of(schema)
            if layout is not None and (layout.ref != ref or layout.schema.fingerprint != schema.fingerprint):
                found.append(diff(layout.schema, schema, layout.schema_version_id))
        return found

    def layout_of(self, schema: TypeSchema) -> TypeLayout | None:
        """What is stored of a type, under the name it has or, until it is migrated, under the one it had."""
        layout = self.layouts.get(schema.ref)
        if layout is None and schema.earlier.type is not None:
            return self.layouts.get(TypeRef(schema.ref.kind, schema.earlier.type))
        return layout

    def find_type(self, name: str, kind: str | None = None) -> TypeLayout:
        """The type that a name means. Whoever asks by name, in code, in the console or in Spark, asks here."""
        found = [layout for ref, layout in self.layouts.items() if ref.name == name and kind in (None, ref.kind)]
        if len(found) == 1:
            return found[0]
        if found:
            raise ValidationError(f"{name!r} is an entity and a relation here: say which with kind")
        if kind is None:
            known = ", ".join(map(str, sorted(self.layouts))) or "no types yet"
            raise ValidationError(f"{name} is not in this store; it has {known}")
        known = ", ".join(sorted(ref.name for ref in self.layouts if ref.kind == kind)) or "none yet"
        other = next((ref.kind for ref in self.layouts if ref.name == name), None)
        but = "" if other is None else f", {other} {name} is"
        raise ValidationError(f"{kind} {name} is not in this store{but}; of that kind it has {known}")

    def check_remembers(self, window: Window) -> None:
        """Refuse a state from before the commit at which history begins."""
        if window.mode == "as_of" and (window.commit or 0) < self.base:
            raise HistoryForgottenError(
                f"the state at commit {window.commit or 0} was given up: history begins at commit {self.base}"
            )

    def check_remembers_changes(self, commit_id: int) -> None:
        """Refuse what a commit changed up to the one at which history begins: its removals are gone, and what it
        inserted looks like updates."""
        if 0 < commit_id <= self.base:
            raise HistoryForgottenError(
                f"what commit {commit_id} changed was given up: history begins with the state at commit {self.base}"
            )

    def check(self, schemas: Mapping[TypeRef, TypeSchema]) -> None:
        outdated = self.outdated(schemas)
        if outdated:
            raise SchemaOutdatedError(outdated)


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of the log."""

    id: int
    created_at: str
    runtime_id: str
    metadata: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "created_at": self.created_at,
            "runtime_id": self.runtime_id,
            "metadata": dict(self.metadata),
        }


def summarize_layouts(rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """The layouts of `storage_info()`, from (kind, name, version, activation, is current).

    A dropped type has no current version. A relation named like an entity is listed as `relation:name`.
    """
    layouts: dict[str, Any] = {}
    for kind, name, version, activation, is_current in rows:
        summary = layouts.setdefault(
            name if name not in layouts or layouts[name]["type_kind"] == kind else f"{kind}:{name}",
            {
                "type_kind": kind,
                "current_schema_version_id": None,
                "activation_commit_id": None,
                "historical_versions": [],
            },
        )
        if is_current:
            summary["current_schema_version_id"] = version
            summary["activation_commit_id"] = activation
        else:
            summary["historical_versions"].append(version)
    return layouts


def user_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Commit metadata as given by a caller: text to text, nothing else."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"commit metadata is a mapping of text to text, not {metadata!r}")
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ValidationError(f"commit metadata is text to text, and {key!r}: {value!r} is not")
        if not is_unicode(key) or not is_unicode(value):
            raise ValidationError(f"commit metadata {key!r}: {value!r} is not Unicode text")
    return dict(metadata or {})
