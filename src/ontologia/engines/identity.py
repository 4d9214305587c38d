"""Identity as one column, so that rows of two tables can be matched whatever their identity is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def identity_key(table: pa.Table, identity: Sequence[str]) -> pa.ChunkedArray:
    """Identity as one column. The length before each part keeps ("a", "bc") apart from ("ab", "c")."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first = table.column(identity[0]).cast(pa.large_string())
    if len(identity) == 1:
        return first
    parts: list[Any] = []
    for name in identity:
        text = table.column(name).cast(pa.large_string())
        parts += [pc.binary_length(text).cast(pa.large_string()), text]
    return pc.binary_join_element_wise(*parts, pa.scalar(":", pa.large_string()))


def is_ordered(table: pa.Table, identity: Sequence[str]) -> bool:
    """Whether rows come in the order of their identity; much cheaper to see than to bring about."""
    import pyarrow.compute as pc

    if table.num_rows < 2:
        return True
    ordered: Any = None
    for name in reversed(identity):
        column = table.column(name)
        earlier, later = column.slice(0, len(column) - 1), column.slice(1)
        if ordered is None:
            ordered = pc.less_equal(earlier, later)
        else:
            ordered = pc.or_(pc.less(earlier, later), pc.and_(pc.equal(earlier, later), ordered))
    return bool(pc.all(ordered).as_py())
