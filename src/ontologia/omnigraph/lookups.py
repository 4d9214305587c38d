"""Which of many values a table has: a filter in the scan while they are few, a join that may go to disk when not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontologia.files.quoting import quote_name
from ontologia.omnigraph.datasets import is_in, translate_errors

if TYPE_CHECKING:
    from lance import LanceDataset

    from ontologia.files.duck import Duck

MANY = 20_000  #: beyond this, reading the whole column is cheaper than asking for each
MEMORY = "256MB"


def rows_with(dataset: LanceDataset, column: str, values: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows that have one of these values in a column, which may be of any type."""
    kind = dataset.schema.field(column).type
    wanted = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values, kind)
    wanted = pc.drop_null(wanted).cast(kind)
    with translate_errors("read", dataset.uri):
        if len(wanted) <= MANY and (pa.types.is_string(kind) or pa.types.is_integer(kind)):
            return dataset.scanner(columns=_as_list(columns), filter=_filter(column, wanted)).to_table()
        names = None if columns is None else list(dict.fromkeys([*columns, column]))
        found = dataset.scanner(columns=names).to_reader()
        chosen = "*" if columns is None else ", ".join(f"s.{quote_name(name)}" for name in columns)
        text = f"SELECT {chosen} FROM stored s SEMI JOIN wanted w ON s.{quote_name(column)} = w.value"
        return _duck().table(text, {}, stored=found, wanted=pa.table({"value": wanted})).cast(_schema(dataset, columns))


def missing_from(dataset: LanceDataset | None, column: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Those of these values, each once, that no row has in a column."""
    if dataset is None:
        return pc.unique(values)
    if len(values) <= MANY:
        found = rows_with(dataset, column, values, [column]).column(column)
        distinct = pc.unique(values)
        return distinct.filter(pc.invert(pc.is_in(distinct, value_set=found.combine_chunks())))
    with translate_errors("read", dataset.uri):
        stored = dataset.scanner(columns=[column]).to_reader()
        text = f"SELECT DISTINCT w.value FROM wanted w ANTI JOIN stored s ON s.{quote_name(column)} = w.value"
        return _duck().table(text, {}, stored=stored, wanted=pa.table({"value": values})).column(0)


def among(values: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.ChunkedArray:
    """Those of these values that are one of the others."""
    if len(values) <= MANY and len(others) <= MANY:
        return values.filter(pc.is_in(values, value_set=pc.unique(others)))
    text = "SELECT DISTINCT v.value FROM given v SEMI JOIN others o ON v.value = o.value"
    return _duck().table(text, {}, given=pa.table({"value": values}), others=pa.table({"value": others})).column(0)


def not_among(values: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.ChunkedArray:
    """Those of these values that are none of the others."""
    if len(values) <= MANY and len(others) <= MANY:
        return values.filter(pc.invert(pc.is_in(values, value_set=pc.unique(others))))
    text = "SELECT DISTINCT v.value FROM given v ANTI JOIN others o ON v.value = o.value"
    return _duck().table(text, {}, given=pa.table({"value": values}), others=pa.table({"value": others})).column(0)


def find_repeated(values: pa.ChunkedArray) -> list[tuple[Any, int]]:
    """Values that come more than once, and how often."""
    if len(values) <= MANY:
        counts = pc.value_counts(values).to_pylist()
        return [(item["values"], item["counts"]) for item in counts if item["counts"] > 1]
    text = "SELECT value, count(*) FROM given GROUP BY value HAVING count(*) > 1 ORDER BY value"
    found = _duck().table(text, {}, given=pa.table({"value": values}))
    return list(zip(found.column(0).to_pylist(), found.column(1).to_pylist(), strict=True))


def last_places(values: pa.ChunkedArray) -> Any:
    """For every value the place where it comes last, in order."""
    given = pa.table({"value": values, "place": pa.array(np.arange(len(values)))})
    text = "SELECT max(place) AS place FROM given GROUP BY value ORDER BY place"
    return _duck().table(text, {}, given=given).column(0).to_numpy()


def _filter(column: str, values: Any) -> str:
    plain = values.to_pylist()
    if pa.types.is_string(values.type):
        return is_in(column, plain)
    return f"`{column}` IN ({', '.join(map(str, plain))})" if plain else "false"


def _as_list(columns: Sequence[str] | None) -> list[str] | None:
    return None if columns is None else list(columns)


def _schema(dataset: LanceDataset, columns: Sequence[str] | None) -> pa.Schema:
    schema: pa.Schema = dataset.schema
    found = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    return pa.schema([pa.field(field.name, field.type) for field in found])


@cache
def _duck() -> Duck:
    from ontologia.files.duck import Duck

    return Duck(MEMORY, in_order=False)
