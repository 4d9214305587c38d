"""How rows are named on the command line: entities by their key, relations by their ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ontologia.cli.exits import UsageError

Keys = Annotated[
    list[str],
    typer.Argument(
        metavar="KEY…",
        help="Keys; of a relation LEFT/RIGHT or LEFT/RIGHT/INSTANCE, or a JSON list where a key has a slash.",
        show_default=False,
    ),
]


def relation_parts(text: str) -> Sequence[Any]:
    """The ends of a relation, and its instance key if it has one, as they were written."""
    if not text.startswith("["):
        return text.split("/")
    try:
        parts: list[Any] = json.loads(text)
    except ValueError:
        raise UsageError(f"{text}: this is no JSON list") from None
    return parts
