"""Work that outgrows one machine. This layer does not know Spark: what does it is found by its entry point."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from ontologia.errors import ValidationError
from ontologia.extras import need

GROUP = "ontologia.frames"


def on_spark(verb: str) -> Callable[..., Any]:
    """The function that does something on Spark: `query`, `write`, `overwrite` or `compact`."""
    need("pyspark", "work on Spark")
    found = entry_points(group=GROUP, name="spark")
    if not found:
        raise ValidationError("engine='spark' is found by an entry point: install the package ontologia with pip")
    module = next(iter(found)).load()
    return getattr(module, verb)  # type: ignore[no-any-return]
