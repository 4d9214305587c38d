"""Schemas as the control plane stores them: every version of every type, and which types are known.

RFC 0004 §5; RFC 0009 §4.4, §6.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from ontologia.engines.catalog import SchemaVersion
from ontologia.files.json_objects import (
    flag,
    now,
    optional_text,
    optional_whole,
    record,
    records,
    rest,
    text,
    texts,
    whole,
)
from ontologia.model import Kind, TypeRef, TypeSchema


def ref_from(body: Mapping[str, Any]) -> TypeRef:
    kind = body["kind"]
    if kind not in ("entity", "relation"):
        raise ValueError(f"kind must be entity or relation, not {kind!r}")
    return TypeRef(kind, text(body, "type_name"))


@dataclass(frozen=True, slots=True)
class SchemaCatalog:
    """Every schema version of every type, which is current, and what was dropped, with its history or without."""

    versions: Sequence[SchemaVersion] = ()
    dropped: frozenset[TypeRef] = frozenset()
    purged: frozenset[TypeRef] = frozenset()

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        return cls(
            tuple(versions_from(body)),
            *(
                frozenset(ref_from(item) for item in (records(body, name) if name in body else ()))
                for name in ("dropped", "purged")
            ),
        )

    def body(self) -> dict[str, Any]:
        return {
            "versions": [version_body(version) for version in self.versions],
            "dropped": refs_body(self.dropped),
            "purged": refs_body(self.purged),
        }

    def of(self, ref: TypeRef) -> list[SchemaVersion]:
        return [version for version in self.versions if version.ref == ref]

    @property
    def current(self) -> dict[TypeRef, SchemaVersion]:
        return {version.ref: version for version in self.versions if version.is_current}

    def with_version(self, added: SchemaVersion) -> SchemaCatalog:
        """The catalog with a version added or replaced; a current one takes the place of the one before."""
        kept = []
        for version in self.versions:
            if version.ref != added.ref:
                kept.append(version)
            elif version.schema_version_id != added.schema_version_id:
                kept.append(replace(version, is_current=version.is_current and not added.is_current))
        kept.append(added)
        kept.sort(key=lambda version: (version.ref, version.schema_version_id))
        return replace(self, versions=tuple(kept))

    def without(self, ref: TypeRef, *, purge: bool) -> SchemaCatalog:
        versions = (replace(v, is_current=False) if v.ref == ref else v for v in self.versions)
        purged = self.purged | {ref} if purge else self.purged
        return SchemaCatalog(tuple(versions), self.dropped | {ref}, purged)


def refs_body(refs: Iterable[TypeRef]) -> list[dict[str, Any]]:
    return [{"kind": ref.kind, "type_name": ref.name} for ref in sorted(refs)]


def version_body(version: SchemaVersion) -> dict[str, Any]:
    return {
        "schema_version_id": version.schema_version_id,
        "schema": version.schema.to_json(),
        "fingerprint": version.fingerprint,
        "created_at": version.created_at,
        "activation_commit_id": version.activation_commit_id,
        "is_current": version.is_current,
    }


def registry_body(versions: Iterable[SchemaVersion]) -> dict[str, Any]:
    """`meta/schema/versions/{kind}/{TypeName}.json`: every version of a type."""
    return {"versions": [version_body(version) for version in versions]}


def versions_from(body: Mapping[str, Any]) -> list[SchemaVersion]:
    return [version_from(item) for item in records(body, "versions")]


def version_from(body: Mapping[str, Any]) -> SchemaVersion:
    schema = TypeSchema.from_json(record(body, "schema"))
    return SchemaVersion(
        schema.ref,
        whole(body, "schema_version_id", least=1),
        schema,
        text(body, "created_at"),
        optional_whole(body, "activation_commit_id"),
        flag(body, "is_current"),
    )


@dataclass(frozen=True, slots=True)
class KnownTypes:
    """`meta/schema/types.json`: the types whose indices are kept.

    `mirrored` is ours: the manifest of the catalog that registry and mirrors were last seen to repeat. Every commit
    reads this object anyway, and knows from it whether there is something to finish. Who is about to change any of them
    takes it away first.
    """

    entities: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    updated_at: str = ""
    mirrored: str | None = None
    other: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Self:
        lists = {name: tuple(texts(body, name)) for name in ("entities", "relations")}
        other = rest(body, "entities", "relations", "updated_at", "mirrored")
        mirrored = optional_text(body, "mirrored")
        return cls(lists["entities"], lists["relations"], text(body, "updated_at"), mirrored, other)

    @property
    def refs(self) -> list[TypeRef]:
        return [TypeRef("entity", name) for name in self.entities] + [
            TypeRef("relation", name) for name in self.relations
        ]

    @classmethod
    def of(cls, refs: Iterable[TypeRef], other: Mapping[str, Any] | None = None) -> Self:
        known = list(refs)

        def names(kind: Kind) -> tuple[str, ...]:
            return tuple(sorted({ref.name for ref in known if ref.kind == kind}))

        return cls(names("entity"), names("relation"), now(), other=other or {})

    def adjust(self, with_: Iterable[TypeRef], without: Iterable[TypeRef] = ()) -> Self:
        """With these types and without those; itself when that is so already."""
        refs = {*self.refs, *with_} - set(without)
        return self if refs == set(self.refs) else self.of(refs, self.other)

    def body(self) -> dict[str, Any]:
        return {
            **self.other,
            "entities": list(self.entities),
            "relations": list(self.relations),
            "updated_at": self.updated_at,
            **({} if self.mirrored is None else {"mirrored": self.mirrored}),
        }
