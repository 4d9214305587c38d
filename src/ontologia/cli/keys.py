"""How rows are named on the command line: entities by their key, relations by their ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontologia.cli.exits import UsageError

if TYPE_CHECKING:
    from ontologia.model import TypeSchema

Keys = Annotated[
    list[str],
    typer.Argument(
        metavar="KEY…",
        help="Keys; of a relation LEFT/RIGHT or LEFT/RIGHT/INSTANCE, or a JSON list where a key has a slash.",
        show_default=False,
    ),
]


def parts_of(schema: TypeSchema, text: str) -> str | list[Any]:
    """A key as it was written: of a relation its ends, and its instance key if it has one."""
    if schema.ref.kind == "entity":
        return text
    parts: list[Any] = text.split("/")
    if text.startswith("["):
        try:
            parts = json.loads(text)
        except (ValueError, RecursionError):
            raise UsageError(f"{text}: this is not a JSON list") from None
    names = ["left_key", "right_key", *([schema.instance_key] if schema.instance_key else [])]
    if len(parts) != len(names):
        raise UsageError(f"{text}: a {schema.ref.name} is named by {'/'.join(names)}, or by a JSON list of these")
    return parts
