"""What a caller should know about an answer besides its rows (RFC 0009 §2.3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ontologia.engines.catalog import Catalog
from ontologia.errors import CommitAfterHeadWarning, warn
from ontologia.model import TypeRef
from ontologia.query.plan import Plan, Window


def plan_diagnostics(plan: Plan, catalog: Catalog) -> list[dict[str, Any]]:
    """What a caller should know about a result, besides its rows (RFC 0009 §2.3).

    Of the type that is asked about, and of every other type the question touches, which then is named.
    """
    return window_diagnostics(plan.window, plan.schemas, catalog, unnamed=plan.source)


def window_diagnostics(
    window: Window, refs: Iterable[TypeRef], catalog: Catalog, *, unnamed: TypeRef | None = None
) -> list[dict[str, Any]]:
    """What a caller should know about a window of these types. Each is named, but for the one that is asked about."""
    commit = window.commit
    if window.mode != "as_of" or commit is None:
        return []
    found: list[dict[str, Any]] = []
    for ref in refs:
        layout = catalog.layouts.get(ref)
        if layout is not None and commit < layout.activation_commit_id:
            named = {} if ref == unnamed else {"type": str(ref)}
            since = layout.activation_commit_id
            found.append({"reason": "commit_before_activation", **named, "activation_commit_id": since})
    if commit > catalog.head:
        found.append({"reason": "commit_after_head", "commit_id": commit, "head_commit_id": catalog.head})
        warn(CommitAfterHeadWarning(f"commit {commit} is not there yet: this is the state at the head, {catalog.head}"))
    return found
