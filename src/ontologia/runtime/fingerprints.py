"""What a function does, as a hash: two processes that run the same code get the same one, others another.

It covers the code of a function, its defaults, what it encloses, and the functions and constants of its module that it
uses. Line numbers and comments do not count. Of a class it covers the defaults, limits and validators of its fields,
which its schema does not have; descriptions do not count.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import types
import typing
from collections.abc import Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any
from uuid import UUID

from ontologia.model import Declaration

PLAIN = (
    *(str, bytes, int, float, complex, bool, type(None), type(...)),
    *(date, time, timedelta, Decimal, Fraction, UUID, Enum, re.Pattern),
)
"""What its repr tells all about."""


def code_fingerprint(function: Any) -> str:
    """The hash of what a callable does."""
    return hashlib.sha256("\n".join(_describe(function, set())).encode()).hexdigest()


def class_fingerprint(declaration: Declaration) -> str:
    """The hash of what a class says of the values of its fields, besides their types."""
    validators = [
        (name, mode, fields, getattr(function, "__func__", function))
        for name, mode, fields, function in declaration.validators.functions()
    ]
    annotations = declaration.annotations()
    fields = [
        (
            name,
            "required" if options.required else options.default_factory or ("default", options.default),
            {key: value for key, value in options.constraints.items() if key != "description"},
            annotations[name],
        )
        for name, options in sorted(declaration.options.items())
    ]
    return hashlib.sha256("\n".join(_describe([fields, validators], set())).encode()).hexdigest()


def _describe(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, (tuple, list, frozenset, set, dict)):
        yield type(value).__name__
        items = value.items() if isinstance(value, dict) else value
        texts = ["\n".join(_describe(item, seen)) for item in items]
        yield from texts if isinstance(value, (tuple, list)) else sorted(texts)
    elif isinstance(value, PLAIN):
        yield f"{type(value).__name__} {value!r}"
    elif isinstance(value, types.CodeType):
        yield from (value.co_code.hex(), repr(value.co_names), repr(value.co_varnames), repr(value.co_freevars))
        yield from _describe(value.co_consts, seen)
    elif typing.get_origin(value) is not None:  # an annotation, with what it demands
        yield from _describe([typing.get_origin(value), typing.get_args(value)], seen)
    elif id(value) in seen:
        yield "again"
    else:
        seen.add(id(value))
        yield from _describe_object(value, seen)


def _describe_object(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, types.FunctionType):
        yield value.__qualname__
        yield from _describe([value.__code__, value.__defaults__, value.__kwdefaults__], seen)
        yield from _describe([cell.cell_contents for cell in value.__closure__ or ()], seen)
        yield from _describe(_used_of_its_module(value), seen)
    elif isinstance(value, functools.partial):
        yield from _describe([value.func, value.args, value.keywords], seen)
    elif isinstance(value, types.MethodType):
        yield from _describe([value.__func__, getattr(value.__self__, "__dict__", {})], seen)
    else:
        cls = value if isinstance(value, type) else type(value)
        yield f"{cls.__module__}.{cls.__qualname__}"
        if dataclasses.is_dataclass(value) and cls is not value:  # a limit or a validator of an annotation, for example
            yield from _describe([getattr(value, item.name) for item in dataclasses.fields(value)], seen)
        elif isinstance(getattr(value, "metadata", None), list):  # Pydantic's own Field
            yield from _describe(value.metadata, seen)
        call = vars(cls).get("__call__")
        if isinstance(call, types.FunctionType) and cls is not value:
            yield from _describe([call, vars(value)], seen)


def _used_of_its_module(function: types.FunctionType) -> dict[str, Any]:
    """The functions and constants that a function reads by name, where its module defines them."""
    found = {name: function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, (*PLAIN, tuple, frozenset, list, dict, set))
        or (isinstance(value, types.FunctionType) and value.__module__ == function.__module__)
    }


def _names(code: types.CodeType) -> set[str]:
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))
