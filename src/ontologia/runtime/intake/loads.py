"""A load as its caller says it: what fills which field, and what becomes of rows; and what is wrong with that."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from ontologia.errors import ValidationError
from ontologia.model import Column, Declaration
from ontologia.runtime.intake.checks import instance_column
from ontologia.runtime.intake.comparing import Missing, Mode, OnConflict, OnDuplicate, OnInvalid, OnTie
from ontologia.runtime.intake.rows import must_be_filled

NAME = re.compile(r"`((?:[^`]|``)+)`|[^\W\d]\w*")
"""A name in an expression of Spark."""
CHOICES: dict[str, tuple[str, ...]] = {
    "on_invalid": get_args(OnInvalid),
    "on_conflict": get_args(OnConflict),
    "on_duplicate": get_args(OnDuplicate),
    "on_tie": get_args(OnTie),
    "mode": get_args(Mode),
    "missing": get_args(Missing),
}


def check_choices(given: Mapping[str, Any], where: str = "") -> None:
    """Refuse what is none of the choices that there are."""
    for name, choice in given.items():
        if choice not in CHOICES[name]:
            raise ValidationError(f"{where}{name} is one of {', '.join(CHOICES[name])}, not {choice!r}")


def load_expressions(declaration: Declaration, map: Mapping[str, Any], **identity: Any) -> dict[str, Any]:
    """What fills which field, as a load says it. All that is wrong with it and can be seen without a source is said."""
    expressions = {**map, **_identity(declaration, **identity)}
    check_names(declaration, expressions)
    return expressions


@dataclass(frozen=True, slots=True)
class LoadTerms:
    """What a caller says of a load besides its source, checked as far as that goes without one."""

    declaration: Declaration
    expressions: Mapping[str, Any]
    on_duplicate: OnDuplicate
    on_tie: OnTie
    mode: Mode = "upsert"
    max_removals: int | None = None
    missing: Missing = "default"

    def fields_without(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The fields that a source with these columns does not fill."""
        return tuple(name for name in self.declaration.options if name not in self.expressions and name not in columns)

    def columns_without(self, columns: Sequence[str], order_by: Any) -> tuple[str, ...]:
        """The columns that fill no field, and that no expression names."""
        used = names_in(order_by).union(*map(names_in, self.expressions.values()))
        fields = {*_ends(self.declaration), *self.declaration.options}
        return tuple(name for name in columns if name not in fields and name.lower() not in used)

    def defaulted(self, unfilled: Sequence[str]) -> tuple[str, ...]:
        """Of the fields that a source does not fill, those that get their defaults in every row."""
        return tuple(unfilled) if self.missing == "default" else ()

    def kept_columns(self, unfilled: Sequence[str]) -> tuple[str, ...]:
        """The columns of the others, which keep what is stored."""
        by_name = self.declaration.schema.by_name
        return tuple(by_name[name].physical for name in unfilled) if self.missing == "keep" else ()


def load_terms(
    into: Any,
    map: Mapping[str, Any] | None,
    identity: Mapping[str, Any],
    *,
    order_by: Any,
    on_duplicate: OnDuplicate | None,
    on_tie: OnTie,
    mode: Mode = "upsert",
    max_removals: int | None = None,
    missing: Missing = "default",
) -> LoadTerms:
    """The terms of `load(…)`, in process and on Spark. A source is not touched before they are known to make sense."""
    declaration = getattr(into, "__declaration__", None)
    if not isinstance(declaration, Declaration):
        raise TypeError(f"load(into=…) takes an entity or relation class, not {into!r}")
    expressions = load_expressions(declaration, {**(map or {})}, **identity)
    on_duplicate = duplicates_of(order_by, on_duplicate)
    check_choices({"on_tie": on_tie, "mode": mode, "missing": missing})
    if max_removals is not None and (mode != "sync" or isinstance(max_removals, bool) or max_removals < 0):
        raise ValidationError(f"max_removals is a number of rows from 0 on, for mode='sync', not {max_removals!r}")
    return LoadTerms(declaration, expressions, on_duplicate, on_tie, mode, max_removals, missing)


def duplicates_of(order_by: Any, on_duplicate: OnDuplicate | None) -> OnDuplicate:
    """What becomes of rows of one identity, as a load says it."""
    if on_duplicate is None:
        return "error" if order_by is None else "last"
    check_choices({"on_duplicate": on_duplicate})
    if on_duplicate == "last" and order_by is None:
        raise ValidationError("on_duplicate='last' needs order_by, which says what the last is")
    return on_duplicate


def _identity(declaration: Declaration, **given: Any) -> dict[str, Any]:
    """What fills the parts of an identity. A part that the type does not have is a mistake."""
    is_entity = declaration.ref.kind == "entity"
    parts = {
        "key": declaration.primary_key,
        "left": None if is_entity else "left_key",
        "right": None if is_entity else "right_key",
        "instance_key": declaration.instance_key,
    }
    said = {part: text for part, text in given.items() if text is not None}
    unknown = [part for part in said if parts[part] is None]
    if unknown:
        has = ", ".join(part for part, name in parts.items() if name is not None)
        raise ValidationError(f"{declaration.ref} has no {' and no '.join(unknown)}: its identity is {has}")
    return {parts[part] or "": text for part, text in said.items()}


def check_names(declaration: Declaration, expressions: Mapping[str, Any]) -> list[str]:
    """What a row of the type is made of. An expression for anything else is a mistake."""
    names = [*_ends(declaration), *declaration.options]
    unknown = set(expressions) - set(names)
    if unknown:
        raise ValidationError(f"{declaration.ref} has no field {', '.join(sorted(unknown))}; it has {', '.join(names)}")
    return names


def _ends(declaration: Declaration) -> list[str]:
    return ["left_key", "right_key"] if declaration.ref.kind == "relation" else []


def fills(columns: Sequence[str], declaration: Declaration, expressions: Mapping[str, Any]) -> dict[str, Any]:
    """Which expression fills which field, None for the column of its own name; a field without either is left out."""
    found: dict[str, Any] = {}
    missing, defaulted = [], []
    for name in check_names(declaration, expressions):
        if name in expressions:
            found[name] = expressions[name]
        elif name in columns:
            found[name] = None
        elif name in _ends(declaration) or must_be_filled(declaration.options[name]):
            missing.append(name)
        else:
            defaulted.append(name)
    if missing and not columns:
        raise ValidationError(f"the source for {declaration.ref} is empty: it names no columns")
    if missing:
        raise ValidationError(
            f"nothing fills {', '.join(missing)} of {declaration.ref}: map it. "
            f"The source has the columns {show_names(columns)}"
        )
    _check_spelling(columns, defaulted)
    return found


def names_in(expression: Any) -> set[str]:
    """What may be the name of a column in an expression of Spark, in lower case."""
    return {unquote(name).lower() for name in NAME.finditer(str(expression))}


def unquote(name: re.Match[str]) -> str:
    return name[0] if name[1] is None else name[1].replace("``", "`")


def show_names(columns: Sequence[str]) -> str:
    """Names of columns for a message. Blanks around one are seen between quotes alone."""
    return ", ".join(name if name == name.strip() else repr(name) for name in columns)


def _check_spelling(columns: Sequence[str], defaulted: Sequence[str]) -> None:
    """A column whose name is a field's but for its case or a blank is no reason for the field's default."""
    names = {name.casefold(): name for name in defaulted}
    alike = {column: names[column.strip().casefold()] for column in columns if column.strip().casefold() in names}
    if alike:
        shown = ", ".join(f"{column!r} for {name}" for column, name in alike.items())
        mapping = ", ".join(f'"{name}": "`{column.replace("`", "``")}`"' for column, name in alike.items())
        raise ValidationError(
            f"the source has columns that are spelled otherwise than a field: {shown}. "
            f"Say what they are with map={{{mapping}}}, or drop them"
        )


def end_key(declaration: Declaration, end: str, name: str) -> Column:
    """What an end of a relation holds: the key of the entity there, so that both are spelled by one rule."""
    if declaration.endpoints is None or end == "instance_key":
        return instance_column(name)
    entity = declaration.endpoints[end == "right_key"].__declaration__
    return replace(entity.schema.by_name[entity.primary_key or ""], name=name)
