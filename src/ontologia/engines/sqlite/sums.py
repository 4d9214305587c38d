"""Sums of integers that overflow only if their totals do.

SQLite's own also overflow on their way, by the order of the rows. These take twice the time, and are asked for when
those have failed.
"""

from __future__ import annotations

from sqlglot import exp

from ontologia.query.dialects import Node

# The upper half, with what the lower one carries. Beyond 64 bits there is an error: the least integer has no abs().
UPPER = "(sum(n >> 32) + (sum(n & 4294967295) >> 32))"
SUM_IN_HALVES = f"""CASE
    WHEN {UPPER} IS NULL OR {UPPER} BETWEEN -2147483648 AND 2147483647
    THEN {UPPER} * 4294967296 + (sum(n & 4294967295) & 4294967295)
    ELSE abs({UPPER} & 0 | (1 << 63))
END"""


def in_halves(tree: Node) -> Node:
    """A statement with the sums that the dialect has marked, by the halves of each integer."""
    return tree.transform(_halve)


def _halve(node: Node) -> Node:
    if not (isinstance(node, exp.Sum) and node.meta.get("whole")):
        return node
    whole: Node = exp.maybe_parse(SUM_IN_HALVES, dialect="sqlite")
    return whole.transform(lambda one: exp.paren(node.this.copy()) if isinstance(one, exp.Column) else one)
