"""Arrow tables as pandas frames that have the same values.

By itself, pyarrow gives whole numbers with a missing one as floats, which have 53 bits, and truth values as objects.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd


def pandas_frame(table: pa.Table, nullable: Collection[str] = ()) -> pd.DataFrame:
    """A frame of a table. Columns with missing values, and those named `nullable`, have pandas' nullable types."""
    import pandas as pd

    frame = table.to_pandas()
    for place, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        kind = column.type
        if (pa.types.is_integer(kind) or pa.types.is_boolean(kind)) and (column.null_count or name in nullable):
            dtype = "boolean" if pa.types.is_boolean(kind) else str(kind).replace("int", "Int").replace("uI", "UI")
            frame.isetitem(
                place, column.to_pandas(types_mapper=lambda _, dtype=dtype: pd.api.types.pandas_dtype(dtype))
            )
        elif _has_gaps(column):
            frame.isetitem(place, pd.Series(column.to_pylist(), index=frame.index, dtype=object))
    return frame


def _has_gaps(column: pa.ChunkedArray) -> bool:
    """Whether a column has lists of whole numbers with missing ones among them."""
    kind: Any = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_integer(kind.value_type):
        return False
    return any(chunk.flatten().null_count for chunk in column.chunks)
