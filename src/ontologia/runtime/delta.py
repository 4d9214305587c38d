"""The delta rule: which of the wanted rows differ from what is stored. Pure, and vectorised over all rows at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ontologia.files.identity import identity_key as identity_key

if TYPE_CHECKING:
    import pyarrow as pa

INSERT, UPDATE = "insert", "update_version"
OPERATION = "operation?"
"""The column that says which of the two a row is; no field can be called so."""


def delta(wanted: pa.Table, current: pa.Table | None, identity: Sequence[str]) -> pa.Table:
    """The wanted rows that are new or changed, with their operation; unchanged rows are left out.

    Rows are compared by value: null equals null, NaN equals NaN. `wanted` has each identity once.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from ontologia.files.arrays import scalar_of

    if current is None or current.num_rows == 0:
        return wanted.append_column(OPERATION, pa.repeat(scalar_of(INSERT, pa.string()), wanted.num_rows))
    keys, stored_keys = identity_key(wanted, identity), identity_key(current, identity)
    if keys.equals(stored_keys):  # a load that was loaded before: nothing has to be searched for
        known, stored = pa.chunked_array([pa.repeat(scalar_of(True, pa.bool_()), wanted.num_rows)]), current
    else:
        position = pc.index_in(keys, value_set=stored_keys)
        known, stored = pc.is_valid(position), current.take(position)
    unchanged = known
    for name in wanted.column_names:
        if name not in identity:
            unchanged = pc.and_(unchanged, _same(wanted.column(name), stored.column(name)))
    operation = pc.if_else(known, scalar_of(UPDATE, pa.string()), scalar_of(INSERT, pa.string()))
    return wanted.append_column(OPERATION, operation).filter(pc.invert(unchanged))


def _same(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    """Equal by value, with null equal to null and NaN to NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from ontologia.files.arrays import scalar_of

    right = right.cast(left.type)
    no = scalar_of(False, pa.bool_())
    same = pc.fill_null(pc.equal(left, right), no)
    if left.null_count or right.null_count:
        same = pc.or_(same, pc.and_(pc.is_null(left), pc.is_null(right)))
    if pa.types.is_floating(left.type):
        both = pc.and_(pc.fill_null(pc.is_nan(left), no), pc.fill_null(pc.is_nan(right), no))
        same = pc.or_(same, both)
    return same
