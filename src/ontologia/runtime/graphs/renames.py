"""Names that change while the rows stay: of types and of fields, given to `apply_schema`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ontologia.engines.base import Catalog
from ontologia.errors import ValidationError
from ontologia.model import Declaration, TypeRef, TypeSchema
from ontologia.runtime.upgraders import Row, Upgrader


@dataclass(frozen=True)
class Renames:
    """`{"Person": "Human", "Person.age": "years"}`: stored names on the left, those of the classes on the right."""

    types: Mapping[TypeRef, TypeRef] = field(default_factory=dict)
    fields: Mapping[TypeRef, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def read(cls, given: Mapping[str, str], catalog: Catalog, declarations: Sequence[Declaration]) -> Renames:
        """What was meant, checked against what is stored and what is declared."""
        declared = {declaration.ref: declaration for declaration in declarations}
        types = {}
        for old, new in given.items():
            if "." not in old:
                stored = _stored(catalog, old)
                types[stored] = TypeRef(stored.kind, new)
                if types[stored] not in declared or stored in declared or types[stored] in catalog.layouts:
                    raise ValidationError(
                        f"{old!r} cannot become {new!r}: the graph must have {old} and not {new}, the classes {new} "
                        f"and not {old}"
                    )
        fields: dict[TypeRef, dict[str, str]] = {}
        for old, new in given.items():
            name, _, attribute = old.partition(".")
            if attribute:
                stored = _stored(catalog, name)
                _check_field(catalog.layouts[stored].schema, declared.get(types.get(stored, stored)), attribute, new)
                fields.setdefault(stored, {})[attribute] = new
        return cls(types, fields)

    def ref(self, stored: TypeRef) -> TypeRef:
        return self.types.get(stored, stored)

    def schema(self, stored: TypeSchema) -> TypeSchema:
        """A stored schema under the new names."""
        names = self.fields.get(stored.ref, {})
        ends = {old.name: new.name for old, new in self.types.items() if old.kind == "entity"}
        key = stored.instance_key
        return replace(
            stored,
            ref=self.ref(stored.ref),
            fields=tuple(replace(item, name=names.get(item.name, item.name)) for item in stored.fields),
            left=None if stored.left is None else ends.get(stored.left, stored.left),
            right=None if stored.right is None else ends.get(stored.right, stored.right),
            instance_key=None if key is None else names.get(key, key),
        )

    def upgrader(self, stored: TypeRef, after: Upgrader | None) -> Upgrader:
        """A step that does the renames, after an upgrader that somebody wrote for the same step."""
        names = self.fields.get(stored, {})

        def rename(row: Row) -> Row:
            row = dict(row) if after is None else after(dict(row))
            return {names.get(name, name): value for name, value in row.items()} if isinstance(row, dict) else row

        return rename


def _stored(catalog: Catalog, name: str) -> TypeRef:
    found = [ref for ref in catalog.layouts if ref.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValidationError(f"{name!r} is an entity and a relation: rename neither, or move one by export and load")
    raise ValidationError(
        f"the graph has no type {name!r}; it has {', '.join(sorted(r.name for r in catalog.layouts))}"
    )


def _check_field(stored: TypeSchema, declared: Declaration | None, old: str, new: str) -> None:
    before = {*stored.names, stored.instance_key}
    after = set() if declared is None else {*declared.schema.names, declared.schema.instance_key}
    if old not in before or new in before or new not in after or old in after:
        raise ValidationError(
            f"{stored.ref.name}.{old} cannot become {new!r}: the graph must have {old} and not {new}, the class {new} "
            f"and not {old}"
        )
