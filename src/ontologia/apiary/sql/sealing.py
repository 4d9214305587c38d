"""A database for one statement, which can open the cells that the statement reads and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.expressions import Expr

from ontologia.apiary import scan
from ontologia.apiary.colony.bees import Chamber
from ontologia.apiary.node import Node
from ontologia.apiary.sql.planning import PlannedQuery, Reference
from ontologia.apiary.sql.statements import DIALECT
from ontologia.errors import StorageBackendError, TaskAbandonedError, UnknownNameError, ValidationError
from ontologia.files.quoting import quote_name
from ontologia.files.sealing import check_query

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.files.duck import Duck


@dataclass(frozen=True)
class SealedDatabase:
    """A database with a view per frame of a statement. What is asked of it is checked before it runs."""

    duck: Duck
    views: Sequence[str]

    def table(self, query: str, **tables: pa.Table) -> pa.Table:
        """The answer to a query over the views and these tables."""
        return self._ask("", query, tables)

    def describe(self, query: str) -> pa.Table:
        """The names and types of what a query gives."""
        return self._ask("DESCRIBE ", query, {})

    def explain(self, query: str, *, analyze: bool) -> str:
        """DuckDB's plan of a query."""
        return str(self._ask("EXPLAIN ANALYZE " if analyze else "EXPLAIN ", query, {}).column(1)[0].as_py())

    def _ask(self, verb: str, query: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        check_query(_without_pivots(query), [*self.views, *tables])
        return self.duck.table(f"{verb}{query}", {}, **tables)


def check_plan(plan: PlannedQuery) -> None:
    """The same check for a statement that another engine runs."""
    check_query(_without_pivots(plan.sql()), [reference.view for reference in plan.references])


def _without_pivots(query: str) -> str:
    """A query with the sources of its pivots in their places. DuckDB makes two statements of a pivot that does not say
    its columns, and cannot tell how it reads them."""
    if "pivot" not in query.casefold():
        return query

    def source(node: Expr) -> Expr:
        if not isinstance(node, exp.Pivot) or not isinstance(node.this, Expr) or isinstance(node.parent, exp.Table):
            return node
        parts = [*node.expressions, *(node.args.get("using") or ())]
        return exp.select(*(part.copy() for part in parts)).from_(node.this.copy())

    return sqlglot.parse_one(query, dialect=DIALECT).transform(source).sql(dialect=DIALECT)


@contextmanager
def open_sealed(node: Node, references: Sequence[Reference], chamber: Chamber) -> Iterator[SealedDatabase]:
    """A database with a view per reference, that can open their cells and nothing else, until the chamber's time is
    up."""
    from ontologia.files.duck import Duck
    from ontologia.files.reading import FileReader

    duck = Duck(node.memory_limit, in_order=True)
    reader = FileReader(node.objects, duck, node.location.settings, background_eviction=True)
    timer = threading.Timer(chamber.seconds_left, duck.interrupt)
    timer.daemon = True
    try:
        with ExitStack() as stack:
            stack.enter_context(_explain_failures(references))
            views = []
            for reference in references:
                source = stack.enter_context(
                    scan.sources(
                        node, reference.name, reference.snapshot.schema, reference.pruned.scanned, reader=reader
                    )
                )
                views.append((reference.view, source))
            duck.seal(file for _, source in views for file in source.files)
            timer.start()
            for view, source in views:
                with duck.cursor() as cursor:
                    cursor.execute(f"CREATE VIEW {quote_name(view)} AS {source.sql}")
            yield SealedDatabase(duck, [view for view, _ in views])
    finally:
        timer.cancel()
        duck.close()


@contextmanager
def _explain_failures(references: Sequence[Reference]) -> Iterator[None]:
    try:
        with scan.explain_failures():
            yield
    except (StorageBackendError, ValidationError) as problem:
        if "Referenced column" in str(problem):
            there = "; ".join(f"{ref.name} has {', '.join(ref.snapshot.schema.names)}" for ref in references)
            raise UnknownNameError(f"{problem} {there}") from problem
        if "INTERRUPT" in str(problem):
            raise TaskAbandonedError(
                "a statement took longer than a task may and was ended: ask for less, or run it with engine='spark'"
            ) from problem
        raise
