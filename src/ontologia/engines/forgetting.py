"""History that is to be given up: the words that engines share for it."""

from __future__ import annotations

from dataclasses import dataclass

from ontologia.model import TypeRef

FORGET = "forget"
"""The kind of the commit that says that history was given up."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """How many versions of a type were superseded by a commit or before it, removals among them."""

    ref: TypeRef
    rows: int
