"""Nearest neighbours and words: which rows suit best, with an index, without one, and while one catches up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ontologia.engines.omnigraph.types import GraphType, edge_id
from ontologia.errors import ValidationError
from ontologia.model import key_text
from ontologia.omnigraph.datasets import is_in, translate_errors
from ontologia.omnigraph.maintenance import finds_all_words
from ontologia.query.plan import Plan, Search

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

_WORD = re.compile(r"[^\W_]+")


def rank_ids(dataset: LanceDataset | None, type: GraphType, search: Search, among: Sequence[str] | None) -> list[str]:
    """The ids of the best rows, best first; of those in `among`, where it is given."""
    check(type, search)
    if dataset is None or search.most == 0 or among == []:
        return []
    column = type.columns[search.field]
    where = None if among is None else is_in("id", among)
    with translate_errors("search", dataset.uri):
        if search.vector is not None:
            nearest = {"column": column, "q": list(search.vector), "k": search.most, "metric": "L2"}
            columns = ["id", "_distance"]
            found = dataset.scanner(columns=columns, nearest=nearest, filter=where, prefilter=True).to_table()
            return _ids(found.sort_by([("_distance", "ascending"), ("id", "ascending")]))
        if any(it.name == f"{column}_idx" and finds_all_words(it) for it in dataset.describe_indices()):
            query = {"columns": [column], "query": search.text}
            rows = dataset.count_rows() if search.most is None else search.most
            found = dataset.scanner(
                columns=["id", "_score"], full_text_query=query, filter=where, prefilter=True, limit=max(rows, 1)
            ).to_table()
            return _ids(found.sort_by([("_score", "descending"), ("id", "ascending")]))
        texts = dataset.scanner(columns=["id", column], filter=where).to_table()
    return _by_words(texts, column, search)


def check(type: GraphType, search: Search) -> None:
    """A search is on a field that declares an index for it, with a vector of its length."""
    kind = "vector" if search.vector is not None else "fts"
    verb = "nearest" if search.vector is not None else "search"
    field = next(item for item in type.schema.fields if item.name == search.field)
    if field.index != kind:
        raise ValidationError(f'{type.ref.name}.{field.name} has no index for {verb}(): declare Field(index="{kind}")')
    if search.vector is not None and len(search.vector) != field.dimensions:
        raise ValidationError(
            f"{type.ref.name}.{field.name} has vectors of {field.dimensions} numbers, not of {len(search.vector)}"
        )


def _ids(found: pa.Table) -> list[str]:
    ids: list[str] = found.column("id").to_pylist()
    return ids


def _by_words(rows: pa.Table, column: str, search: Search) -> list[str]:
    """Without an index: rows with any of the words, those with more of them first."""
    wanted = set(_words(search.text or ""))
    scores = []
    for name, text in zip(rows.column("id").to_pylist(), rows.column(column).to_pylist(), strict=True):
        found = [word for word in _words(text or "") if word in wanted]
        if found:
            scores.append((-len(set(found)), -len(found), name))
    return [name for *_, name in sorted(scores)[: search.most]]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


# --- the order of a result ---


def best_first(plan: Plan, ranked: Mapping[str, int], columns: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Columns of a result, best rows first, unless the plan asks for another order."""
    places = order_of(plan, ranked, columns)
    return [[column[place] for place in places] for column in columns]


def order_of(plan: Plan, ranked: Mapping[str, int], columns: Sequence[Any]) -> list[int]:
    size = len(columns[0]) if columns else 0
    if plan.order or plan.aggregates or plan.hops:
        return list(range(size))
    schema = plan.schema
    if schema.ref.kind == "relation":  # after the commit come both ends and the instance key
        parts = columns[1:4] if schema.instance_key else columns[1:3]
        names = [edge_id([_plain(part[place]) for part in parts]) for place in range(size)]
    else:
        key = columns[1 + schema.names.index(schema.primary_key or "")]
        names = [key_text(_plain(key[place])) for place in range(size)]
    return sorted(range(size), key=lambda place: ranked.get(names[place], size))


def _plain(value: Any) -> Any:
    return value.as_py() if hasattr(value, "as_py") else value
