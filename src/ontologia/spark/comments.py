"""What classes say of themselves and of their fields, as the comments of columns and tables."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any


def comment_of(cls: type[Any]) -> str | None:
    """The first paragraph of a class's own docstring, in one line."""
    text = inspect.cleandoc(vars(cls).get("__doc__") or "").partition("\n\n")[0]
    return " ".join(text.split()) or None


def field_comments(cls: type[Any]) -> dict[str, str]:
    """What stands as a docstring below each field, as type checkers and editors show it; none where there is no source.

    >>> class Customer(Entity):                 # doctest: +SKIP
    ...     tier: Field[str] = "basic"
    ...     '''What they pay for.'''
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        found |= _own_comments(base)
    return found


def _own_comments(cls: type[Any]) -> dict[str, str]:
    try:
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError, ValueError, SyntaxError):
        return {}
    found = {}
    statements = body.body if isinstance(body, ast.ClassDef) else []
    for field, below in pairwise(statements):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found
