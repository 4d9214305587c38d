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


def sort_by_identity(table: pa.Table, identity: Sequence[str]) -> pa.Table:
    """The rows in the order of their identity."""
    if is_ordered(table, identity):
        return table
    table = table.combine_chunks()  # sorting many chunks takes several times as long
    return table.take(_order(table, identity))


def _order(table: pa.Table, identity: Sequence[str]) -> Any:
    """Where the rows go. Numbers sort in a third of the time of texts, and the first bytes of a key make a number."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    by_all = [(name, "ascending") for name in identity]
    leading = _leading_bytes(table.column(identity[0]).chunk(0))
    order = np.argsort(leading, kind="stable")
    placed = leading[order]
    same = placed[1:] == placed[:-1]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if len(tied) > len(order) // 2:
        return pc.sort_indices(table, by_all)
    if len(tied):  # the whole identity decides
        rows = order[tied]
        order[tied] = rows[pc.sort_indices(table.select(identity).take(pa.array(rows)), by_all)]
    return pa.array(order)


def _leading_bytes(keys: pa.Array) -> Any:
    """The first eight bytes of each text behind what all of them begin with, as numbers of the same order."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    lowest, highest = (text.encode() for text in pc.min_max(keys).as_py().values())
    shared = next((place for place, (a, b) in enumerate(zip(lowest, highest, strict=False)) if a != b), len(lowest))
    keys = keys.cast(pa.large_binary())
    offsets = np.frombuffer(keys.buffers()[1], np.int64, len(keys) + 1, keys.offset * 8)
    data = np.frombuffer((keys.buffers()[2] or pa.py_buffer(b"")).to_pybytes() + bytes(8), np.uint8)
    words = np.ndarray(len(data) - 7, ">u8", data, strides=(1,))  # one that starts at every byte
    starts = offsets[:-1] + shared
    missing = np.clip(8 - (offsets[1:] - starts), 0, 8).astype(np.uint64) * 8
    found = words[starts].astype(np.uint64)
    return np.where(missing < 64, found >> missing << missing, 0)


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


def find_repeated(table: pa.Table, identity: Sequence[str]) -> tuple[str, ...] | None:
    """An identity that rows have more than once, if there is one."""
    import pyarrow.compute as pc

    counted = table.select(list(identity)).group_by(list(identity)).aggregate([([], "count_all")])
    again = counted.filter(pc.greater(counted.column("count_all"), 1))
    return None if not again.num_rows else tuple(again.column(name)[0].as_py() for name in identity)


def find_repeated_in_order(table: pa.Table, identity: Sequence[str]) -> tuple[str, ...] | None:
    """The same for rows in the order of their identity, where it is much cheaper to see."""
    import pyarrow.compute as pc

    if table.num_rows < 2:
        return None
    again: Any = None
    for name in identity:
        column = table.column(name)
        same = pc.equal(column.slice(0, len(column) - 1), column.slice(1))
        again = same if again is None else pc.and_(again, same)
    if not pc.any(again).as_py():
        return None
    row = again.to_pylist().index(True)  # pc.index() would make a scalar of True, for which Arrow imports pandas
    return tuple(table.column(name)[row].as_py() for name in identity)
