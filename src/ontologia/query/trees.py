"""Trees of SQL, built in place.

sqlglot copies a tree, and all it is given, at every step: a statement of a few joins would be copied a hundred times.
So builders are called with `copy=False`, and a node that stands in two places is copied by whoever puts it there.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp


def select_from(source: exp.Expr, columns: Iterable[exp.Expr]) -> exp.Select:
    """SELECT these columns FROM this table or subquery."""
    return exp.select(*columns, copy=False).from_(source, copy=False)
