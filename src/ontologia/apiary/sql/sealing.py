"""A database for one statement, which can open the cells that the statement reads and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from ontologia.apiary import scan
from ontologia.apiary.colony.bees import Chamber
from ontologia.apiary.node import Node
from ontologia.apiary.sql.planning import Reference
from ontologia.errors import StorageBackendError, TaskAbandonedError, UnknownNameError, ValidationError
from ontologia.files.quoting import quote_name

if TYPE_CHECKING:
    from ontologia.files.duck import Duck


@contextmanager
def open_sealed(node: Node, references: Sequence[Reference], chamber: Chamber) -> Iterator[Duck]:
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
                stack.enter_context(node.reading(reference.name, reference.snapshot.version))
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
            yield duck
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
