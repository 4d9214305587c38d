"""All rows of a type, a page at a time, in order of identity: memory does not grow with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ontologia.engines.base import Engine
from ontologia.model import COMMIT_ID, FieldExpr, Predicate, TypeRef, TypeSchema
from ontologia.query.plan import Across, Order, Plan, Window

if TYPE_CHECKING:
    import pyarrow as pa

FIRST_PAGE_ROWS, PAGE_BYTES = 5_000, 16 << 20


def pages(
    engine: Engine,
    schema: TypeSchema,
    window: Window,
    head: int,
    page_rows: int | None = None,
    *,
    across: Across | None = None,
) -> Iterator[pa.Table]:
    """The rows of a window, each page after the last identity of the one before.

    Every version of an identity is on one page, oldest first. After the first page, the width of its rows says how
    many fit into memory at once.
    """
    keys, page_rows = _keys(schema), page_rows or engine.page_rows
    schemas, order = {schema.ref: schema}, tuple(map(Order, keys))
    plan = Plan(schema.ref, schemas, window, order=order, limit=page_rows, stored=True, across=across)
    after: tuple[Predicate, ...] = ()
    size = min(page_rows, FIRST_PAGE_ROWS)
    while True:
        page = engine.table(replace(plan, where=after, limit=size))
        last = page.num_rows < size
        complete = page if last or window.deduplicated else _without_last_identity(page, schema.ref)
        if complete.num_rows == 0 and not last:  # one identity with more versions than a page has rows
            size *= 2
            continue
        if complete.num_rows:
            after = (_after(schema, keys, complete),)
            yield _up_to(complete, head)
        if last:
            return
        size = max(1, min(page_rows, PAGE_BYTES * page.num_rows // max(page.nbytes, 1)))


def _keys(schema: TypeSchema) -> tuple[FieldExpr[Any], ...]:
    if schema.ref.kind == "relation":
        return tuple(FieldExpr(schema.ref, name, None) for name in schema.ref.identity)
    name = schema.primary_key or ""
    return (FieldExpr(schema.ref, name, schema.by_name[name]),)


def _after(schema: TypeSchema, keys: Sequence[FieldExpr[Any]], page: pa.Table) -> Predicate:
    """Identities beyond the last of a page. The first part alone already lets an index start there."""
    names = schema.ref.identity if schema.ref.kind == "relation" else [column_of(schema)]
    values = [page.column(name)[page.num_rows - 1].as_py() for name in names]
    if len(keys) == 1:
        beyond: Predicate = keys[0] > values[0]
        return beyond
    (left, right, instance), (a, b, c) = keys, values
    later: Predicate = (left >= a) & ((left > a) | (right > b) | ((right == b) & (instance > c)))
    return later


def column_of(schema: TypeSchema) -> str:
    """The column of an entity's primary key."""
    return schema.by_name[schema.primary_key or ""].physical


def _without_last_identity(page: pa.Table, ref: TypeRef) -> pa.Table:
    keys = list(zip(*(page.column(name).to_pylist() for name in ref.identity), strict=True))
    end = len(keys)
    while end and keys[end - 1] == keys[-1]:
        end -= 1
    return page.slice(0, end)


def _up_to(page: pa.Table, head: int) -> pa.Table:
    import pyarrow.compute as pc

    return page.filter(pc.less_equal(page.column(COMMIT_ID), head))
