"""Dropping types: a preview with a token, and the rules that keep a drop from leaving relations in the air."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ontologia.engines.catalog import Catalog
from ontologia.engines.repository import Repository
from ontologia.errors import DropRefusedError, ValidationError
from ontologia.model import Declared, Kind, TypeRef
from ontologia.runtime.tokens import token_for


@dataclass(frozen=True, slots=True)
class DropPreview:
    """What a drop would take away. The token binds it to this head."""

    token: str
    types: list[TypeRef]
    rows: dict[str, int] = field(default_factory=dict)
    purge_history: bool = False


def preview(
    repository: Repository,
    entities: Sequence[str | type[Declared]],
    relations: Sequence[str | type[Declared]],
    *,
    cascade_relations: bool,
    purge_history: bool,
) -> DropPreview:
    """Work out what must go, or refuse."""
    catalog = repository.engine.catalog()
    refs = _close_over(catalog, entities, relations, cascade=cascade_relations)
    counts = {
        str(ref): repository.count_entities(ref.name) if ref.kind == "entity" else repository.count_relations(ref.name)
        for ref in refs
    }
    token = token_for(repository.engine, "drop", purge_history, [[ref.kind, ref.name] for ref in refs], counts)
    return DropPreview(token, refs, counts, purge_history)


def apply(repository: Repository, plan: DropPreview, token: str | None) -> int:
    """Drop the types of a preview in one commit."""
    if token is None:
        raise DropRefusedError("it needs the token of its preview")
    if token != plan.token:
        raise DropRefusedError("the token does not belong to this drop on this head: preview it again")
    names = ", ".join(map(str, plan.types))
    metadata = {"kind": "schema_drop", "types": names, "purge_history": str(plan.purge_history).lower()}
    return repository.apply_schema_drop(plan.types, purge_history=plan.purge_history, metadata=metadata)


def _name_of(type_: str | type[Declared]) -> str:
    return type_ if isinstance(type_, str) else type_.__declaration__.ref.name


def _close_over(
    catalog: Catalog,
    entities: Sequence[str | type[Declared]],
    relations: Sequence[str | type[Declared]],
    *,
    cascade: bool,
) -> list[TypeRef]:
    if isinstance(entities, str) or isinstance(relations, str):
        raise TypeError('drop_types() takes lists of names, as in drop_types(["Customer"])')
    named: tuple[tuple[Kind, Sequence[str | type[Declared]]], ...] = (("entity", entities), ("relation", relations))
    wanted = [TypeRef(kind, _name_of(type_)) for kind, types in named for type_ in types]
    for ref in wanted:
        other = TypeRef("relation" if ref.kind == "entity" else "entity", ref.name)
        if ref not in catalog.layouts:
            hint = f"; there is the {other}: name it among the {other.kind} types" if other in catalog.layouts else ""
            raise ValidationError(f"{ref} is not in this store, so it cannot be dropped{hint}")
    touching = [
        ref
        for ref, layout in catalog.layouts.items()
        if ref.kind == "relation" and {layout.schema.left, layout.schema.right} & set(entities) and ref not in wanted
    ]
    if touching and not cascade:
        names = ", ".join(sorted(ref.name for ref in touching))
        raise DropRefusedError(f"{names} would lose an endpoint: drop it too, or cascade to relations")
    return sorted({*wanted, *touching})
