"""No store lies inside another: the outer one would take it for its own, and it would go when that is emptied."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ontologia.errors import StorageBackendError, ValidationError
from ontologia.objects import Objects, open_objects

GRAPH = "__manifest/_versions"
FRAMES = "_registry"
PARENTS_ASKED = 8
"""How many prefixes above one of a bucket are looked at, each with two requests."""
_INNER = re.compile(rf"(.+)/(?:meta/(?:head|engine|copy)\.json|{GRAPH}/.+|{FRAMES}/.+)")


def is_graph(objects: Objects) -> bool:
    """Whether a graph lies here: its manifest has a version."""
    return next(iter(objects.list(f"{GRAPH}/")), None) is not None


def check_outside(objects: Objects) -> None:
    """Refuse a place for a new store that lies inside another one."""
    for outer in _around(objects):
        if _holds_store(outer):
            raise ValidationError(
                f"{objects.uri} lies inside the store at {outer.uri}, and would go when that is emptied: choose a "
                "place outside of it"
            )


def check_alone(objects: Objects) -> None:
    """Refuse to empty a store that has another one inside."""
    for info in objects.list():
        inner = _INNER.fullmatch(info.key)
        if inner is not None:
            raise ValidationError(
                f"{objects.uri} has another store inside, at {objects.url(inner[1])}, which would go with it: move "
                "that one away first"
            )


def _around(objects: Objects) -> Iterator[Objects]:
    """The places that this one lies in, the nearest first."""
    folder = objects.local_path("any")
    if folder is not None:
        yield from (open_objects(outer.as_uri()) for outer in folder.parent.parents if outer != Path(outer.anchor))
        return
    parts = objects.prefix.split("/") if objects.prefix else []
    above = range(len(parts) - 1, max(-1, len(parts) - 1 - PARENTS_ASKED), -1)
    yield from (Objects(objects.backend, "/".join(parts[:count])) for count in above)


def _holds_store(outer: Objects) -> bool:
    """Whether a place is one. What may not be asked is not known to be."""
    from ontologia.engines.parquet import paths

    head = outer.local_path(paths.HEAD)
    if head is not None:
        graph = outer.local_path(GRAPH)
        return head.exists() or (graph is not None and graph.is_dir())
    try:
        return outer.exists(paths.HEAD) or is_graph(outer)
    except StorageBackendError as problem:
        if problem.context.get("kind") == "access_denied":
            return False
        raise
