"""When an import must not happen: what it may find in the store, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from ontologia.model import TypeRef

if TYPE_CHECKING:
    import pyarrow as pa

OnConflict = Literal["abort", "skip", "upsert"]


@dataclass(frozen=True, slots=True)
class Precondition:
    """What must hold for an import: `must_exist`, `must_not_exist`, or `if_commit_id:N` for the head.

    >>> Precondition.parse("if_commit_id:7")
    Precondition(rule='if_commit_id', commit_id=7)
    """

    rule: Literal["must_exist", "must_not_exist", "if_commit_id"]
    commit_id: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        if text in ("must_exist", "must_not_exist"):
            return cls(text)  # type: ignore[arg-type]
        rule, _, number = text.partition(":")
        if rule == "if_commit_id" and number.isascii() and number.isdigit():
            return cls("if_commit_id", int(number))
        raise ValueError(f"precondition {text!r}: use must_exist, must_not_exist or if_commit_id:N")


@dataclass(frozen=True, slots=True)
class Rules:
    """What an import does with identities that exist, and what it demands."""

    on_conflict: OnConflict = "abort"
    precondition: Precondition | None = None

    def about_head(self, head: int) -> str | None:
        """Why this head forbids the import, if it does."""
        wanted = self.precondition.commit_id if self.precondition is not None else None
        if wanted is not None and wanted != head:
            return (
                f"the head is commit {head}, and if_commit_id demands {wanted}: look at what changed, then import again"
            )
        return None

    def about_rows(self, ref: TypeRef, rows: pa.Table, current: pa.Table | None) -> str | None:
        """Why what is stored forbids these rows, if it does. Both have each identity once."""
        found = 0 if current is None else current.num_rows
        rule = self.precondition.rule if self.precondition is not None else None
        if rule == "must_exist" and found < rows.num_rows:
            return f"{ref} {_absent(ref, rows, current)!r} is not in the store, and the precondition is must_exist"
        if found and current is not None and rule == "must_not_exist":
            return f"{ref} {_first(ref, current)!r} is in the store, and the precondition is must_not_exist"
        if found and current is not None and self.on_conflict == "abort":
            return (
                f"{ref} {_first(ref, current)!r} is in the store already: import with on_conflict='skip' "
                "to keep it, or on_conflict='upsert' to replace it"
            )
        return None


def identities(ref: TypeRef, rows: pa.Table) -> list[tuple[str, ...]]:
    return list(zip(*(rows.column(name).to_pylist() for name in ref.identity), strict=True))


def _first(ref: TypeRef, rows: pa.Table) -> str:
    return "/".join(identities(ref, rows.slice(0, 1))[0])


def _absent(ref: TypeRef, rows: pa.Table, current: pa.Table | None) -> str:
    known = set() if current is None else set(identities(ref, current))
    return next("/".join(identity) for identity in identities(ref, rows) if identity not in known)
