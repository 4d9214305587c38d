"""History that is to be given up: the words that engines share for it."""

from __future__ import annotations

from dataclasses import dataclass

from ontologia.errors import ForgetRefusedError
from ontologia.model import TypeRef

FORGET = "forget"
"""The kind of the commit that says that history was given up."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """How many versions of a type were superseded by a commit or before it, removals among them."""

    ref: TypeRef
    rows: int


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The commit that says that history was given up, and what keeps its space from being free yet."""

    commit_id: int
    space_waits_for: str | None = None


def head_moved(found: int, seen: int) -> ForgetRefusedError:
    return ForgetRefusedError(f"the head is {found} and was {seen} in the preview: preview it again")
