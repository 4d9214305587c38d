"""A graph of Lance datasets with atomic commits over all of them, branches, merges and crash recovery.

Storage only: Arrow tables in, versions out. Nothing here knows classes or queries; the typed face, `Omnigraph`, is
built above this layer and can be imported from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ontologia.omnigraph.graph import Graph, OpenMode

if TYPE_CHECKING:
    from ontologia.runtime.graphs.omnigraph import Omnigraph

__all__ = ["Graph", "Omnigraph", "OpenMode"]


def __getattr__(name: str) -> Any:
    """The face needs types and queries, which are above this layer: it is looked up when somebody asks for it."""
    if name == "Omnigraph":
        return importlib.import_module("ontologia.runtime.graphs.omnigraph").Omnigraph
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
