"""Libraries that not everybody installs: what needs one asks here first, before it does anything."""

from __future__ import annotations

import sys

from ontologia.errors import MissingExtraError

EXTRAS = {"lance": "graphs", "pandas": "frames", "polars": "frames", "pyspark": "spark"}
"""The extra of this package that brings each library."""


def need(library: str, what: str) -> None:
    """Refuse `what` where its library is not installed. The library is not loaded."""
    if sys.modules.get(library) is None and not _is_installed(library):
        raise MissingExtraError(
            f"{what} needs {library}, which is not installed: pip install 'ontologia[{EXTRAS[library]}]'"
        )


def _is_installed(library: str) -> bool:
    from importlib.util import find_spec

    return find_spec(library) is not None
