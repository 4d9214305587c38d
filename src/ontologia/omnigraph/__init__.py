"""A graph of Lance datasets with atomic commits over all of them, branches, merges and crash recovery.

Storage only: Arrow tables in, versions out. Nothing here knows classes or queries; the typed face, `Omnigraph`, is
built above this layer and can be imported from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ontologia.omnigraph.graph import Graph, OpenMode
    from ontologia.runtime.graphs.omnigraph import Omnigraph

# Looked up when asked for: they load Arrow, and the face needs types and queries, which are above this layer.
_LATER = {"Graph": "omnigraph.graph", "Omnigraph": "runtime.graphs.omnigraph", "OpenMode": "omnigraph.graph"}

__all__ = ["Graph", "Omnigraph", "OpenMode"]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"ontologia.{_LATER[name]}"), name)
