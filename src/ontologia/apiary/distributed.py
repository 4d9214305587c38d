"""Work that outgrows one machine. This layer does not know Spark: what does it is found by its entry point."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from ontologia.errors import ValidationError

GROUP = "ontologia.frames"


def on_spark(verb: str) -> Callable[..., Any]:
    """The function that does something on Spark: `query`, `write`, `overwrite` or `compact`."""
    found = entry_points(group=GROUP, name="spark")
    if not found:
        raise ValidationError(
            "engine='spark' needs Ontologia to be installed with Spark: pip install 'ontologia[spark]'"
        )
    module = next(iter(found)).load()
    return getattr(module, verb)  # type: ignore[no-any-return]
