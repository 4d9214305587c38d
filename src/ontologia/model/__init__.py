"""What people declare: entities, relations, fields; their schemas, and how a field is stored.

Filters start here too, as plain data, since class attributes make them. Nothing here knows of storage or SQL.
"""

from ontologia.model.columns import (
    COMMIT_ID,
    ENTITY_IDENTITY,
    RELATION_IDENTITY,
    SCALARS,
    SCHEMA_VERSION_ID,
    SUPERSEDED_BY,
    Column,
    arrow_schema,
    identity_of,
)
from ontologia.model.declarations import (
    Declaration,
    Declared,
    Endpoint,
    Entity,
    Meta,
    Origin,
    Relation,
    left,
    meta,
    right,
)
from ontologia.model.diff import FieldChange, TypeSchemaDiff, diff, widens
from ontologia.model.expressions import Combination, Condition, FieldExpr, Negation, Predicate, field_at
from ontologia.model.fields import Field, FieldOptions
from ontologia.model.schema import FieldSchema, Kind, TypeRef, TypeSchema, commit_column, removed_column
from ontologia.model.typespec import TypeSpec, build_type_spec, canonical_json
from ontologia.model.values import encode_json, instant_text, is_unicode, key_text, parse_texts, to_utc

__all__ = [
    "COMMIT_ID",
    "ENTITY_IDENTITY",
    "RELATION_IDENTITY",
    "SCALARS",
    "SCHEMA_VERSION_ID",
    "SUPERSEDED_BY",
    "Column",
    "Combination",
    "Condition",
    "Declaration",
    "Declared",
    "Endpoint",
    "Entity",
    "Field",
    "FieldChange",
    "FieldExpr",
    "FieldOptions",
    "FieldSchema",
    "Kind",
    "Meta",
    "Negation",
    "Origin",
    "Predicate",
    "Relation",
    "TypeRef",
    "TypeSchema",
    "TypeSchemaDiff",
    "TypeSpec",
    "arrow_schema",
    "build_type_spec",
    "canonical_json",
    "commit_column",
    "diff",
    "encode_json",
    "field_at",
    "identity_of",
    "instant_text",
    "is_unicode",
    "key_text",
    "left",
    "meta",
    "parse_texts",
    "removed_column",
    "right",
    "to_utc",
    "widens",
]
