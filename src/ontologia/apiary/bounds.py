"""Between which values the columns of many cells lie, as arrays: a condition is tested on all cells at once.

What was taken from the ledger's statistics is kept, column by column, as long as the version it is of: the next
question does not look at fifty thousand cells again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ontologia.apiary.entries import Cell
from ontologia.apiary.values import bound_value, foreign_bound, partition_value

if TYPE_CHECKING:
    Numbers = np.ndarray[Any, Any]

UNKNOWN = -1


@dataclass(frozen=True)
class Ends:
    """One end of a column in every cell: values, and whether they are known."""

    values: Numbers
    known: Numbers

    @classmethod
    def of(cls, values: Sequence[Any]) -> Ends:
        found = np.empty(len(values), object)
        found[:] = values
        return cls(found, np.fromiter((value is not None for value in values), bool, len(values)))

    def may(self, compare: Callable[[Any, Any], Any], value: Any) -> Numbers:
        """Where a comparison holds, or cannot be made."""
        answer = ~self.known
        answer[self.known] = compare(self.values[self.known], value)
        return answer


@dataclass(frozen=True)
class Bounds:
    """A column in every cell. The number of nulls is `UNKNOWN` where nobody says."""

    low: Ends
    high: Ends
    nulls: Numbers
    rows: Numbers


class CellBounds:
    """The bounds of some cells, by column. Each is made when it is first asked for."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._cells = cells
        self._rows = np.fromiter((cell.rows for cell in cells), np.int64, len(cells))
        self._known: dict[tuple[str, str], Bounds] = {}

    def __len__(self) -> int:
        return len(self._cells)

    def of_partition(self, name: str, arrow: pa.DataType) -> Bounds:
        """What the partition alone says."""
        return self._remember("partition", name, lambda: self._partition(name, arrow))

    def of_statistics(self, name: str, arrow: pa.DataType) -> Bounds:
        """What the partition says, and where it does not, the statistics."""
        return self._remember("statistics", name, lambda: self._statistics(name, arrow))

    def _remember(self, kind: str, name: str, make: Callable[[], Bounds]) -> Bounds:
        if (kind, name) not in self._known:
            self._known[kind, name] = make()
        return self._known[kind, name]

    def _partition(self, name: str, arrow: pa.DataType) -> Bounds:
        texts = [
            cell.partition_values.get(name) if cell.exact or _is_text_of(cell, name, arrow) else None
            for cell in self._cells
        ]
        values = {text: None if text is None else partition_value(text, arrow) for text in set(texts)}
        ends = Ends.of([values[text] for text in texts])
        return Bounds(ends, ends, np.where(ends.known, 0, UNKNOWN), self._rows)

    def _statistics(self, name: str, arrow: pa.DataType) -> Bounds:
        partition = self.of_partition(name, arrow)
        lows, highs = list(partition.low.values), list(partition.high.values)
        nulls = partition.nulls.copy()
        for place in np.flatnonzero(~partition.low.known).tolist():
            cell = self._cells[place]
            said = cell.stats.get(name)
            if not isinstance(said, dict):
                continue
            count = said.get("null_count")
            nulls[place] = count if isinstance(count, int) else UNKNOWN
            if cell.exact:
                lows[place], highs[place] = bound_value(said.get("min"), arrow), bound_value(said.get("max"), arrow)
            else:
                lows[place] = foreign_bound(said.get("min"), arrow, upper=False)
                highs[place] = foreign_bound(said.get("max"), arrow, upper=True)
        return Bounds(Ends.of(lows), Ends.of(highs), nulls, self._rows)


def _is_text_of(cell: Cell, name: str, arrow: pa.DataType) -> bool:
    """Whether another program's partition text is the text that is read. It writes 1.0 as "1", also where a column of
    texts was given numbers: those are read as "1.0"."""
    said = cell.stats.get(name)
    low = said.get("min") if isinstance(said, dict) else None
    return not pa.types.is_string(arrow) or low is None or isinstance(low, str)
