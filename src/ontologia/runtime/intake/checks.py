"""Checks of values beyond their column's type: what a comparison can settle is compared for a whole column at once.

Pydantic has the last word, and the words. It sees the values that a comparison could not clear; of a field whose
annotation says more than limits it sees all values, each distinct one once.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, Union, get_args, get_origin

import pyarrow as pa
import pyarrow.compute as pc

from ontologia.engines.object_rows import identity_of_values, table_of, transpose
from ontologia.errors import ValidationError
from ontologia.model import Column, Declaration
from ontologia.model.values import field_text

COMPARISONS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "ge": (operator.ge, "greater_equal"),
    "gt": (operator.gt, "greater"),
    "le": (operator.le, "less_equal"),
    "lt": (operator.lt, "less"),
    "min_length": (operator.ge, "greater_equal"),
    "max_length": (operator.le, "less_equal"),
}


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on a number, or on the length of a text."""

    bound: str
    value: int | float

    @property
    def of_length(self) -> bool:
        return self.bound.endswith("length")

    def holds_in_arrow(self, values: pa.ChunkedArray) -> Any:
        return getattr(pc, COMPARISONS[self.bound][1])(pc.utf8_length(values) if self.of_length else values, self.value)


@dataclass(frozen=True, slots=True)
class Check:
    """The validator of a field. Where `limits` are given, they are all that it demands."""

    validator: Any
    limits: tuple[Limit, ...] | None = None

    def refuses(self, column: Column, value: Any) -> bool:
        return value is not None and bool(self.of(column, pa.chunked_array([[value]], column.arrow_type))[1])

    def of(self, column: Column, values: pa.ChunkedArray) -> tuple[pa.ChunkedArray, dict[int, str]]:
        """Values as the model has them, JSON in its canonical text; and what is wrong, by row."""
        if self.limits is not None:
            cleared = reduce(pc.and_, (limit.holds_in_arrow(values) for limit in self.limits))
            rows = pc.indices_nonzero(pc.fill_null(pc.invert(cleared), False))
            _, problems = self._validate(column, values.take(rows).to_pylist())
            return values, {rows[place].as_py(): problem for place, problem in problems.items()}
        distinct = pa.concat_arrays([pa.array([], values.type), *values.chunks]).dictionary_encode()
        valid, problems = self._validate(column, distinct.dictionary.to_pylist())
        wrong = pc.is_in(distinct.indices, value_set=pa.array(list(problems), distinct.indices.type))
        said = {row: problems[distinct.indices[row].as_py()] for row in pc.indices_nonzero(wrong).to_pylist()}
        return pa.chunked_array([pa.array(valid, column.arrow_type).take(distinct.indices)]), said

    def _validate(self, column: Column, values: list[Any]) -> tuple[list[Any], dict[int, str]]:
        import pydantic

        is_json = column.scalar is None
        validate = self.validator.validate_json if is_json else self.validator.validate_python
        found: list[Any] = []
        problems: dict[int, str] = {}
        for place, value in enumerate(values):
            try:
                valid = validate(value)
                found.append(field_text(valid) if is_json and valid is not None else valid)
            except pydantic.ValidationError as error:
                first = error.errors()[0]
                problems[place] = f"{'.'.join(map(str, (column.name, *first['loc'])))}: {first['msg']}"
                found.append(None)
            except ValueError as error:
                problems[place] = f"{column.name}: {error}"
                found.append(None)
        return found, problems


@dataclass(frozen=True, slots=True)
class RowCheck:
    """The validators of a class that look at a row as a whole."""

    declaration: Declaration

    @classmethod
    def of(cls, declaration: Declaration) -> RowCheck | None:
        """The check of a class, if it has such validators."""
        return cls(declaration) if declaration.validates_rows else None

    def take(self, rows: pa.Table) -> tuple[pa.Table, dict[int, str]]:
        """The rows that are valid, as the class has them, and what is wrong with the others, by row."""
        import pydantic

        declaration, validate = self.declaration, self.declaration.adapter.validator.validate_python
        identities: list[tuple[str, ...]] = []
        valid: list[dict[str, Any]] = []
        problems: dict[int, str] = {}
        kept: list[int] = []
        for place, values in enumerate(self._values(rows)):
            try:
                checked = validate(values)
            except pydantic.ValidationError as error:
                first = error.errors()[0]
                problems[place] = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
                continue
            kept.append(place)
            valid.append(checked)
            identities.append(identity_of_values(declaration, checked))
        columns = [[row[name] for row in valid] for name in declaration.schema.names]
        found = table_of(declaration, transpose(identities, len(declaration.ref.identity)), columns)
        places = pa.array(kept, pa.int64())
        for name in rows.column_names:
            if name not in found.column_names:  # what goes along, such as the order
                found = found.append_column(name, rows.column(name).take(places))
        return found, problems

    def _values(self, rows: pa.Table) -> Iterator[dict[str, Any]]:
        declaration = self.declaration
        columns: dict[str, list[Any]] = {}
        for column in declaration.schema.columns:
            values = rows.column(column.physical).to_pylist()
            if column.scalar is None:
                decode = declaration.json_decoder(column.name)
                values = [None if value is None else decode(value) for value in values]
            columns[column.name] = values
        if declaration.ref.kind == "relation":
            columns |= {name: rows.column(name).to_pylist() for name in ("left_key", "right_key")}
            if declaration.instance_key is not None:
                columns[declaration.instance_key] = rows.column("instance_key").to_pylist()
        return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def refuse_validators(declaration: Declaration) -> None:
    """Refuse a class whose validators are functions, where they cannot be run: on executors."""
    if declaration.validators:
        raise ValidationError(
            f"{declaration.cls.__name__} has @field_validator or @model_validator, which do not run on Spark: load it "
            "in process, without a Spark session, or say it with Field(ge=…, pattern=…, …) or Annotated"
        )


def checks_of(declaration: Declaration) -> dict[str, Check]:
    """The checks of a class's fields, by their stored names, and of an instance key that says more than a text."""
    annotations, validators = declaration.checked_annotations(), declaration.row_validators()
    found = {
        column.physical: Check(
            validators[column.physical], None if column.scalar is None else limits_of(annotations[column.name])
        )
        for column in declaration.schema.columns
        if column.physical in validators
    }
    name = declaration.instance_key
    if name is not None and limits_of(annotations[name]) != ():
        found["instance_key"] = Check(declaration.value_adapter(name).validator)
    return {physical: check for physical, check in found.items() if check.limits != ()}


def instance_column(name: str) -> Column:
    """An instance key as a column: it is stored as identity, and checked as a field is."""
    return Column(name, "instance_key", "str", False, {"kind": "primitive", "name": "str"})


def limits_of(annotation: Any) -> tuple[Limit, ...] | None:
    """The limits of a number or a text; None where an annotation demands anything else."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in (int, float, str):
        return ()
    if origin in (Union, types.UnionType):
        members = [member for member in arguments if member is not type(None)]
        return limits_of(members[0]) if len(members) == 1 else None
    if origin is not Annotated:
        return None
    inner, own = limits_of(arguments[0]), [_limit(item, arguments[0]) for item in _parts(arguments[1:])]
    found = [limit for limit in own if limit is not None]
    return None if inner is None or len(found) < len(own) else (*inner, *found)


def _parts(metadata: Iterable[Any]) -> Iterator[Any]:
    """An interval is two bounds, and Pydantic's own `Field` carries any number of them."""
    from annotated_types import GroupedMetadata
    from pydantic.fields import FieldInfo

    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from _parts(item.metadata)
        elif isinstance(item, GroupedMetadata):
            yield from _parts(item)
        else:
            yield item


def _limit(item: Any, of: Any) -> Limit | None:
    from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen

    bound = {Ge: "ge", Gt: "gt", Le: "le", Lt: "lt", MinLen: "min_length", MaxLen: "max_length"}.get(type(item))
    value: Any = getattr(item, bound or "", None)
    kinds = (int, float) if float in (of, *get_args(of)) else (int,)
    if bound is None or type(value) not in kinds or not abs(value) < 2**53:  # exact as a whole number and as a float
        return None
    return Limit(bound, value)
