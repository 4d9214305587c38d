"""Pydantic validators for declared types.

Annotations are resolved here once and handed to Pydantic closed: no forward reference is left for it to look up, and
every TypedDict is rebuilt, because Pydantic refuses `typing.TypedDict` before Python 3.12 and because unknown keys
inside a structured field are an error for us, never dropped.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ForwardRef, NotRequired, Required, Union, get_args, get_origin

import typing_extensions

from ontologia.model.fields import FieldOptions
from ontologia.model.typespec import is_required, members_of
from ontologia.model.values import key_text, to_utc

if TYPE_CHECKING:
    from pydantic import ConfigDict, TypeAdapter


def row_adapter(
    title: str, members: Mapping[str, tuple[Any, FieldOptions]], names: Mapping[str, Any]
) -> TypeAdapter[dict[str, Any]]:
    """A validator from keyword arguments to a checked `__dict__`."""
    from pydantic import Field

    closing = _Closing(names)
    shape: dict[str, Any] = {}
    for name, (annotation, options) in members.items():
        checked = closing.close(annotation)
        if options.required:
            shape[name] = Required[checked]
        elif options.default_factory is not None:
            shape[name] = NotRequired[
                Annotated[checked, Field(default_factory=options.default_factory, validate_default=True)]
            ]
        else:
            shape[name] = NotRequired[Annotated[checked, Field(default=options.default, validate_default=True)]]
    return closing.adapter(closing.typed_dict(title, shape))


def value_adapter(annotation: Any, names: Mapping[str, Any]) -> TypeAdapter[Any]:
    """A validator for one value, from Python or from the JSON text we store."""
    closing = _Closing(names)
    return closing.adapter(closing.close(annotation))


def checks(scalar: str | None) -> list[Any]:
    """What storage demands of a value beyond its type, as annotations."""
    from pydantic import AfterValidator, BeforeValidator

    match scalar:
        case "int":
            return [AfterValidator(_fits_int64)]
        case "instance_key":
            return [AfterValidator(_not_blank)]
        case "endpoint_key":
            return [BeforeValidator(_key_value)]
    return []


def add_checks(annotation: Any, scalar: str | None) -> Any:
    extra = checks(scalar)
    return Annotated[annotation, *extra] if extra else annotation


class _Closing:
    """Closes annotations over the names they use."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = dict(names)
        self._built: dict[type, Any] = {}
        self._references: dict[str, Any] = {}

    def close(self, annotation: Any) -> Any:
        from pydantic import AfterValidator

        if annotation is datetime:  # wherever it stands
            return Annotated[datetime, AfterValidator(_instant)]
        if annotation is object or isinstance(annotation, (str, ForwardRef)):
            return Any
        if typing_extensions.is_typeddict(annotation):
            return self._rebuilt(annotation)
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return Annotated[self.close(arguments[0]), *arguments[1:]]
        if origin in (Required, NotRequired, typing_extensions.ReadOnly):
            return self.close(arguments[0])
        if origin in (Union, types.UnionType):
            return Union[tuple(self.close(argument) for argument in arguments)]  # noqa: UP007 — of a tuple
        if origin in (list, dict, tuple):
            closed = tuple(argument if argument is ... else self.close(argument) for argument in arguments)
            return origin[closed[0] if origin is list else closed]
        return annotation

    def _rebuilt(self, source: Any) -> Any:
        if source in self._built:
            return self._built[source]
        reference = f"{source.__name__}_{id(source)}"
        self._built[source] = ForwardRef(reference)  # what a recursive member sees
        hints = members_of(source, self._names)
        shape = {
            name: (Required if is_required(source, name, hint) else NotRequired)[self.close(hint)]
            for name, hint in hints.items()
        }
        built = self._references[reference] = self.typed_dict(source.__name__, shape)
        self._built[source] = built
        return built

    def typed_dict(self, title: str, shape: dict[str, Any]) -> Any:
        make: Any = typing_extensions.TypedDict
        built = make(title, shape)
        built.__pydantic_config__ = _config(forbid_extra=True)
        return built

    def adapter(self, closed: Any) -> TypeAdapter[Any]:
        from pydantic import TypeAdapter

        if typing_extensions.is_typeddict(closed):  # carries its own configuration
            adapter: TypeAdapter[Any] = TypeAdapter(closed, _parent_depth=0)
        else:
            adapter = TypeAdapter(closed, config=_config(), _parent_depth=0)
        if self._references:
            adapter.rebuild(force=True, _types_namespace=self._references)
        return adapter


def _config(*, forbid_extra: bool = False) -> ConfigDict:
    from pydantic import ConfigDict

    return ConfigDict(val_json_bytes="hex", extra="forbid" if forbid_extra else "ignore")


def _fits_int64(value: int | None) -> int | None:
    if value is not None and not -(2**63) <= value < 2**63:
        raise ValueError("an int must fit in 64 bits")
    return value


def _instant(value: datetime) -> datetime:
    try:
        return to_utc(value)
    except OverflowError:
        raise ValueError("this instant is outside the years 1 to 9999 in UTC") from None


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("a key must not be blank")
    return value


def _key_value(value: Any) -> Any:
    """Endpoints may be given as the other entity's key has it: a number or a date as well as text."""
    if isinstance(value, (str, bytes, bool, float, list, dict)) or value is None:
        return value
    return key_text(value)
