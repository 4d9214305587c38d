"""Pydantic validators for declared types.

Annotations are resolved here once and handed to Pydantic closed: no forward reference is left for it to look up, and
every TypedDict is rebuilt, because Pydantic refuses `typing.TypedDict` before Python 3.12 and because unknown keys
inside a structured field are an error for us, never dropped.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ForwardRef, NotRequired, Required, Union, get_args, get_origin

import typing_extensions

from ontologia.model.fields import FieldOptions
from ontologia.model.typespec import is_required, members_of
from ontologia.model.values import key_text, to_utc

if TYPE_CHECKING:
    from pydantic import ConfigDict, TypeAdapter


class Validators:
    """What Pydantic's decorators say in a class and its bases, as annotations of its fields and of whole rows.

    A validator of one value can be asked wherever that value is. One that also looks at other fields, through `info`
    or as a `@model_validator`, is about a row: `of_rows` says whether there is any.
    """

    def __init__(self, cls: type, fields: Collection[str]) -> None:
        self._cls = cls
        self._fields: list[tuple[str, Any, tuple[str, ...], bool]] = []
        self._models: list[tuple[str, Any]] = []
        for name, proxy in _decorators(cls).items():
            info, what = proxy.decorator_info, getattr(proxy.decorator_info, "decorator_repr", "")
            if what == "@field_validator":
                self._add(name, info, fields)
            elif what == "@model_validator":
                if info.mode == "after" and isinstance(proxy.wrapped, (classmethod, staticmethod)):
                    raise TypeError(
                        f"{cls.__name__}.{name}: a model validator of mode 'after' takes self and returns it"
                    )
                self._models.append((name, proxy))
            elif what != "@computed_field":
                kind = what or type(info).__name__
                raise TypeError(
                    f"{cls.__name__}.{name}: {kind} has no meaning here. Values are stored as the class has them; "
                    "@field_validator, @model_validator and @computed_field are known"
                )

    def _add(self, name: str, info: Any, fields: Collection[str]) -> None:
        unknown = [field for field in info.fields if field != "*" and field not in fields]
        if unknown:
            raise TypeError(f"{self._cls.__name__}.{name} validates {unknown[0]!r}, and there is no such field")
        if info.mode == "plain":
            raise TypeError(f"{self._cls.__name__}.{name}: mode='plain' would skip the field's type; use 'wrap'")
        of_row = _takes_info(getattr(self._cls, name), info.mode) or not {"left_key", "right_key"}.isdisjoint(
            info.fields
        )
        self._fields.append((name, info, tuple(fields) if "*" in info.fields else info.fields, of_row))

    def __bool__(self) -> bool:
        return bool(self._fields or self._models)

    def functions(self) -> list[tuple[str, str, tuple[str, ...], Any]]:
        """Each validator: its name, its mode, the fields it is about, and the function."""
        models = [(name, proxy.decorator_info.mode, (), proxy.wrapped) for name, proxy in self._models]
        return [(name, info.mode, fields, getattr(self._cls, name)) for name, info, fields, _ in self._fields] + models

    @property
    def of_rows(self) -> bool:
        return bool(self._models) or any(of_row for *_, of_row in self._fields)

    def extend(self, annotation: Any, field: str, names: Mapping[str, Any], *, in_row: bool) -> Any:
        """A field's annotation with its validators; those that need the row only where there is one.

        What they return has to be of the type again.
        """
        import pydantic

        kinds = {"after": pydantic.AfterValidator, "before": pydantic.BeforeValidator, "wrap": pydantic.WrapValidator}
        own = [
            kinds[info.mode](getattr(self._cls, name))
            for name, info, fields, of_row in self._fields
            if field in fields and (in_row or not of_row)
        ]
        if not own:
            return annotation
        plain = value_adapter(annotation, names).validator.validate_python
        return Annotated[annotation, *own, pydantic.AfterValidator(plain)]

    def of_row(self) -> list[Any]:
        """The model validators, for rows that are dicts."""
        import pydantic

        found: list[Any] = []
        for name, proxy in self._models:
            mode = proxy.decorator_info.mode
            if mode == "before":
                found.append(pydantic.BeforeValidator(getattr(self._cls, name)))
            elif mode == "after":
                found.append(pydantic.AfterValidator(self._after(name, proxy.wrapped)))
            else:
                found.append(pydantic.WrapValidator(self._wrap(name, getattr(self._cls, name))))
        return found

    def _after(self, name: str, function: Any) -> Any:
        if _takes_info(function, "after"):
            return lambda values, info: self._values(name, function(self._instance(values), info))
        return lambda values: self._values(name, function(self._instance(values)))

    def _wrap(self, name: str, function: Any) -> Any:
        def validate(values: Any, handler: Any, *info: Any) -> Any:
            return self._values(name, function(values, lambda given: self._instance(handler(given)), *info))

        if _takes_info(function, "wrap"):
            return lambda values, handler, info: validate(values, handler, info)
        return lambda values, handler: validate(values, handler)

    def _instance(self, values: dict[str, Any]) -> Any:
        """An object to look at. What is assigned to it is checked field by field: it is on its way through the rest."""
        obj: Any = object.__new__(self._cls)
        object.__setattr__(obj, "__dict__", values)
        object.__setattr__(obj, "__checking__", True)
        return obj

    def _values(self, name: str, result: Any) -> dict[str, Any]:
        if not isinstance(result, self._cls):
            raise ValueError(f"{self._cls.__name__}.{name} returned {result!r}: a model validator returns self")
        return dict(result.__dict__)


def _decorators(cls: type) -> dict[str, Any]:
    """What Pydantic's decorators left on a class and its bases, in the order it was written; an override counts."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            if "decorator_info" in getattr(value, "__dict__", ()):
                found[name] = value
            else:
                found.pop(name, None)
    return found


def _takes_info(function: Any, mode: str) -> bool:
    parameters = inspect.signature(function).parameters.values()
    places = [
        it for it in parameters if it.default is it.empty and it.kind in (it.POSITIONAL_ONLY, it.POSITIONAL_OR_KEYWORD)
    ]
    return len(places) >= (3 if mode == "wrap" else 2)


def row_adapter(
    title: str,
    members: Mapping[str, tuple[Any, FieldOptions]],
    names: Mapping[str, Any],
    validators: Sequence[Any] = (),
) -> TypeAdapter[dict[str, Any]]:
    """A validator from keyword arguments to a checked `__dict__`; `validators` look at all of it."""
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
    row = closing.typed_dict(title, shape)
    return closing.adapter(Annotated[row, *validators] if validators else row, of_row=True)


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

    def adapter(self, closed: Any, *, of_row: bool = False) -> TypeAdapter[Any]:
        from pydantic import TypeAdapter

        if of_row or typing_extensions.is_typeddict(closed):  # carries its own configuration
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
