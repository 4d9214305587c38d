"""How names, texts and files enter SQL. Nothing is pasted into a statement but through here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

_PATTERN = re.compile(r"[*?\[]")
MOST_ITEMS = 10_000
"""A longer list takes longer to be read as text."""
_EXACT = re.compile(r"\[([*?\[])\]")


def quote_name(name: str) -> str:
    """A name as an identifier, whatever is in it.

    >>> quote_name('x"y')
    '"x""y"'
    """
    return '"' + name.replace('"', '""') + '"'


def quote_names(names: Iterable[str]) -> str:
    """Names as a list of identifiers."""
    return ", ".join(map(quote_name, names))


def quote_text(text: str) -> str:
    """A text as a literal.

    >>> quote_text("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def quote_value(value: object) -> str | None:
    """A value as a literal of DuckDB that has the type it would have as a parameter; None where there is none.

    >>> quote_value(0.1), quote_value("it's"), quote_value(None), quote_value([1, 2])
    ("CAST('0.1' AS DOUBLE)", "'it''s'", 'NULL', '[1, 2]')
    """
    if isinstance(value, list):
        items = [quote_value(item) for item in value]
        return None if None in items or len(items) > MOST_ITEMS else f"[{', '.join(map(str, items))}]"
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "true", False: "false"}[value]
    if type(value) is int and -(2**63) < value < 2**63:
        return str(value)
    if type(value) is float:
        return f"CAST('{value!r}' AS DOUBLE)"
    if type(value) is str and "\0" not in value and not any("\ud800" <= mark <= "\udfff" for mark in value):
        return quote_text(value)
    return None


def exact_path(path: str) -> str:
    """A path that means one file to DuckDB, which takes paths for patterns.

    >>> exact_path("a*/b.parquet")
    'a[*]/b.parquet'
    """
    return _PATTERN.sub(lambda found: f"[{found[0]}]", path)


def literal_path(pattern: str) -> str:
    """The file that `exact_path` made a pattern of.

    >>> literal_path("a[*]/b.parquet")
    'a*/b.parquet'
    """
    return _EXACT.sub(r"\1", pattern)


def exact_paths(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Paths that mean these files and no others."""
    return [exact_path(os.fspath(path)) for path in paths]
