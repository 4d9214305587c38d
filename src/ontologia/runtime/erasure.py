"""Erasing identities: every version of them, wherever it lies; what privacy law asks for (`docs/erasure.md`).

The log keeps that an erasure took place: who, when, why, and how many rows of which types. It has no key, and no hash
of one that could be guessed: it has a hash over the identities and a secret that only the report tells, so that whoever
has that receipt can prove what was erased, and nobody else can find out.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ontologia.engines.base import Engine
from ontologia.engines.catalog import SchemaVersion
from ontologia.engines.erasure import ERASURE, FoundIdentities, Trace, Wanted
from ontologia.errors import ErasureIncompleteError, ErasureRefusedError, ValidationError
from ontologia.model import Declared, TypeRef, canonical_json
from ontologia.model.keys import parse_identity
from ontologia.objects import new_token
from ontologia.runtime.tokens import token_for


@dataclass(frozen=True, slots=True)
class ErasurePreview:
    """What would be erased. The token binds it to this store, and to how much there is to erase.

    `pending` says that rows are gone, and bytes of them are not: an erasure was cut off, or they went another way.
    """

    token: str
    reason: str
    found: list[FoundIdentities]
    pending: bool = False
    wanted: list[Wanted] = field(default_factory=list, repr=False)

    @property
    def rows(self) -> int:
        return sum(item.rows for item in self.found)


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What was erased, and what a reading of all that is left found.

    `mentions` are places where the text of a key still is without being a row of it: notes of commits, events, fields
    of others. `receipt` proves later, with the identities, that this commit erased them; it is stored nowhere.
    """

    commit_id: int | None
    found: list[FoundIdentities]
    receipt: str | None
    mentions: list[Trace] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(item.rows for item in self.found)


def preview(
    engine: Engine, type_name: str | type[Declared], keys: Sequence[Any], *, reason: str, cascade: bool
) -> ErasurePreview:
    """Find what must go, or refuse."""
    if not keys:
        raise ValidationError("an erasure needs at least one key")
    if not reason.strip():
        raise ValidationError("an erasure needs a reason, which the log keeps")
    versions = engine.schema_versions()
    ref = _latest_name(engine, versions, _find_type(versions, type_name))
    wanted = _find_wanted(engine, versions, ref, _identities(versions, ref, keys))
    eraser = engine.eraser()
    found = eraser.find(wanted)
    touched = [item for item in found if item.ref.kind == "relation" and item.rows and item.ref != ref]
    if touched and not cascade:
        told = ", ".join(f"{item.rows:,} of {item.ref.name}" for item in touched)
        raise ErasureRefusedError(
            f"versions of relations end at what would be erased ({told}): erase them as well, with cascade=True"
        )
    content = (reason, [str(item) for item in found], sorted(map(_serialize, wanted)))
    token = token_for(engine, ERASURE, *content, at_head=False)  # else nobody is erased while others commit
    return ErasurePreview(token, reason, found, eraser.is_pending(wanted), wanted)


def apply(engine: Engine, plan: ErasurePreview, token: str | None) -> ErasureReport:
    """Erase what was previewed, and read everything that is left."""
    if token != plan.token:
        raise ErasureRefusedError(
            "the token is not of this erasure in this store, or what would be erased has changed: preview it again"
        )
    commit_id, receipt = None, None
    if plan.rows:
        receipt = new_token(16)
        commit_id = _erase(engine, plan, receipt)
    elif plan.pending:
        engine.eraser().finish(plan.wanted)
    traces = engine.eraser().traces(plan.wanted)
    left = [trace for trace in traces if trace.kind != "mention"]
    if left:
        what = "rows" if any(trace.kind == "row" for trace in left) else "bytes"
        places = ", ".join(trace.place for trace in left[:5])
        raise ErasureIncompleteError(
            f"{what} of what was erased are still in {places}: end whoever else has the store open, then preview and "
            "erase again, which finishes this",
            left,
            receipt,
        )
    return ErasureReport(commit_id, plan.found, receipt, traces)


def _erase(engine: Engine, plan: ErasurePreview, receipt: str) -> int:
    try:
        return engine.eraser().erase(plan.wanted, _commit_note(plan, receipt))
    except ErasureIncompleteError as problem:  # its commit is made, and nobody else knows the receipt of it
        raise ErasureIncompleteError(str(problem), problem.traces, receipt) from problem


def proves(receipt: str, wanted: Sequence[Wanted], metadata: dict[str, Any]) -> bool:
    """Whether a receipt belongs to an erasure of these identities, by the notes of its commit."""
    return hmac.compare_digest(_seal(receipt, wanted), str(metadata.get("receipt_sha256")))


def _commit_note(plan: ErasurePreview, receipt: str) -> dict[str, Any]:
    """What the commit says."""
    return {
        "kind": ERASURE,
        "reason": plan.reason,
        "erased": [
            {"type_kind": item.ref.kind, "type_name": item.ref.name, "identities": item.identities, "rows": item.rows}
            for item in plan.found
            if item.rows
        ],
        "receipt_sha256": _seal(receipt, plan.wanted),
    }


def _seal(receipt: str, wanted: Sequence[Wanted]) -> str:
    content = canonical_json(sorted(map(_serialize, wanted)))
    return hmac.new(receipt.encode(), content.encode(), hashlib.sha256).hexdigest()


def _serialize(wanted: Wanted) -> str:
    parts = [sorted(map(list, wanted.identities)), sorted(wanted.left), sorted(wanted.right)]
    return canonical_json([str(wanted.ref), *parts])


def _find_type(versions: Sequence[SchemaVersion], type_name: str | type[Declared]) -> TypeRef:
    """The type that is meant; one that was dropped without its history has rows, too."""
    if not isinstance(type_name, str):
        return type_name.__declaration__.ref
    found = sorted({version.ref for version in versions if version.ref.name == type_name})
    if len(found) == 1:
        return found[0]
    if found:
        raise ValidationError(f"{type_name!r} is an entity and a relation here: name the class")
    known = ", ".join(sorted({version.ref.name for version in versions})) or "no types yet"
    raise ValidationError(f"{type_name} is not in this store; it has {known}")


def _identities(versions: Sequence[SchemaVersion], ref: TypeRef, keys: Sequence[Any]) -> frozenset[tuple[str, ...]]:
    """What the keys name, by the latest schemas."""
    schemas = {version.ref: version.schema for version in sorted(versions, key=lambda one: one.schema_version_id)}
    if ref not in schemas:
        raise ValidationError(f"{ref} is not in this store")
    return frozenset(parse_identity(schemas[ref], key, schemas.values()) for key in keys)


def _find_wanted(
    engine: Engine, versions: Sequence[SchemaVersion], ref: TypeRef, identities: frozenset[tuple[str, ...]]
) -> list[Wanted]:
    """What must go: these identities, under all names the type has had, and relations to them."""
    names = _earlier_names(engine, ref)
    found = [Wanted(TypeRef(ref.kind, name), identities) for name in sorted(names)]
    if ref.kind == "relation":
        return found
    texts = frozenset(key for (key,) in identities)
    ends: dict[TypeRef, tuple[bool, bool]] = {}
    for version in versions:
        left, right = version.schema.left in names, version.schema.right in names
        if version.ref.kind == "relation" and (left or right):
            before = ends.get(version.ref, (False, False))
            ends[version.ref] = (left or before[0], right or before[1])
    none: frozenset[str] = frozenset()
    for relation, (left, right) in sorted(ends.items()):
        found.append(Wanted(relation, left=texts if left else none, right=texts if right else none))
    return found


def _latest_name(engine: Engine, versions: Sequence[SchemaVersion], ref: TypeRef) -> TypeRef:
    """The type under the name that migrations gave it last. A name that is in use means the type that has it now."""
    if any(version.ref == ref and version.is_current for version in versions):
        return ref
    name = ref.name
    for commit in reversed(list(engine.walk())):
        for item in commit.metadata.get("migrated_types") or ():
            if item.get("type_kind") == ref.kind and item.get("renamed_from") == name:
                name = item["type_name"]
    return TypeRef(ref.kind, name)


def _earlier_names(engine: Engine, ref: TypeRef) -> set[str]:
    """What a type is called, and was before migrations that gave it another name."""
    names = {ref.name}
    for commit in engine.walk():
        for item in commit.metadata.get("migrated_types") or ():
            if item.get("type_kind") == ref.kind and item.get("type_name") in names and "renamed_from" in item:
                names.add(item["renamed_from"])
    return names
