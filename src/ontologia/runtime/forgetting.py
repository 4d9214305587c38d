"""Giving up history before a commit: what was there then stays as the base (`docs/history.md`)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog
from ontologia.engines.forgetting import FORGET, Superseded
from ontologia.errors import ForgetRefusedError, ValidationError
from ontologia.runtime.tokens import token_for


@dataclass(frozen=True, slots=True)
class ForgetPreview:
    """What would be given up. The token binds it to this head."""

    token: str
    base: int
    head: int
    found: list[Superseded]
    is_done: bool = False
    """Whether history begins at that commit already."""

    @property
    def rows(self) -> int:
        return sum(item.rows for item in self.found)


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """What was given up, and the commit that says so; None where nothing was left to give up."""

    commit_id: int | None
    base: int
    found: list[Superseded]
    space_waits_for: str | None = None
    """What keeps the space of what was given up from being free yet; None where it is."""

    @property
    def rows(self) -> int:
        return sum(item.rows for item in self.found)


def preview(engine: Engine, before: int | datetime) -> ForgetPreview:
    """Work out what would go, or refuse."""
    if isinstance(before, bool) or not isinstance(before, (int, datetime)):
        raise TypeError(f"forget() takes a commit id or a datetime, not {before!r}")
    with engine.snapshot():
        catalog = engine.catalog()
        base = engine.commit_at(before) if isinstance(before, datetime) else before
        _check(base, before, catalog)
        found = engine.find_superseded(base)
    token = token_for(engine, FORGET, base, [[str(item.ref), item.rows] for item in found])
    return ForgetPreview(token, base, catalog.head, found, base == catalog.base)


def apply(engine: Engine, plan: ForgetPreview, token: str | None) -> ForgetReport:
    """Give up what was previewed."""
    if token is None:
        raise ForgetRefusedError("it needs the token of its preview")
    if token != plan.token:
        raise ForgetRefusedError("the token does not belong to this point on this head: preview it again")
    if plan.is_done:
        return ForgetReport(None, plan.base, plan.found)
    done = engine.forget(plan.base, plan.head, _commit_note(plan))
    return ForgetReport(done.commit_id, plan.base, plan.found, done.space_waits_for)


def _check(base: int, before: int | datetime, catalog: Catalog) -> None:
    if isinstance(before, datetime) and base == 0:
        raise ValidationError(f"there was no commit yet at {before.isoformat()}, so there is nothing to forget")
    if not 1 <= base <= catalog.head:
        raise ValidationError(f"history can begin at a commit from 1 to the head, {catalog.head}, not at {base}")
    if base < catalog.base:
        raise ValidationError(f"history begins at commit {catalog.base} already; what was before it is gone")


def _commit_note(plan: ForgetPreview) -> dict[str, Any]:
    """What the commit says."""
    return {
        "kind": FORGET,
        "base_commit_id": plan.base,
        "forgotten": [
            {"type_kind": item.ref.kind, "type_name": item.ref.name, "rows": item.rows}
            for item in plan.found
            if item.rows
        ],
    }
