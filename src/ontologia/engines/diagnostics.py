"""What a caller should know about an answer besides its rows (RFC 0009 §2.3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ontologia.engines.catalog import Catalog
from ontologia.engines.versions import is_cut, versions_of
from ontologia.errors import CommitAfterHeadWarning, HistoryCutWarning, warn
from ontologia.model import TypeRef
from ontologia.query.plan import Plan, Window
from ontologia.query.results import HISTORY_FORGOTTEN

if TYPE_CHECKING:
    from ontologia.engines.base import Engine


def plan_diagnostics(plan: Plan, engine: Engine, catalog: Catalog) -> list[dict[str, Any]]:
    """What a caller should know about a result, besides its rows (RFC 0009 §2.3).

    Of the type that is asked about, and of every other type the question touches, which then is named.
    """
    if plan.window.mode == "latest":
        return report_dropped_types(plan, catalog)
    refs = () if plan.across is not None else plan.schemas
    found = window_diagnostics(plan.window, refs, engine, catalog, unnamed=plan.source)
    return found + report_dropped_types(plan, catalog) + forgotten_history(plan.window, plan.schemas, engine, catalog)


def report_dropped_types(plan: Plan, catalog: Catalog) -> list[dict[str, Any]]:
    """That types of a question were dropped, and read as empty at every commit."""
    found: list[dict[str, Any]] = []
    for ref in plan.schemas:
        if ref not in catalog.dropped:
            continue
        found.append({"reason": "type_dropped"} | ({} if ref == plan.source else {"type": str(ref)}))
        if plan.window.mode != "latest":
            warn(HistoryCutWarning(f"{ref} was dropped: it reads as empty, also as of commits when it was there"))
    return found


def window_diagnostics(
    window: Window, refs: Iterable[TypeRef], engine: Engine, catalog: Catalog, *, unnamed: TypeRef | None = None
) -> list[dict[str, Any]]:
    """What a caller should know about a window of these types. Each is named, but for the one that is asked about.

    A type whose window reaches back behind the current version of its schema is warned of, too: rows are left out.
    """
    found: list[dict[str, Any]] = []
    commit = window.commit or 0
    for ref in refs:
        layout = catalog.layouts.get(ref)
        if layout is None or window.mode == "latest":
            continue
        since, cut = layout.activation_commit_id, is_cut(engine, ref, window, catalog)
        named = {} if ref == unnamed else {"type": str(ref)}
        if window.mode == "as_of" and commit < since:
            found.append({"reason": "commit_before_activation", **named, "activation_commit_id": since})
        elif cut:
            found.append({"reason": "history_before_activation", **named, "activation_commit_id": since})
        if cut:
            warn(HistoryCutWarning(describe_cut(ref, window, since, readable=engine.capabilities.past_versions)))
    if window.mode == "as_of" and commit > catalog.head:
        found.append({"reason": "commit_after_head", "commit_id": commit, "head_commit_id": catalog.head})
        warn(CommitAfterHeadWarning(f"commit {commit} is not there yet: this is the state at the head, {catalog.head}"))
    return found


def forgotten_history(
    window: Window, refs: Iterable[TypeRef], engine: Engine, catalog: Catalog
) -> list[dict[str, Any]]:
    """That versions of these types, which a window of versions would have, were given up."""
    reaches_back = window.mode == "history" or (window.mode == "since" and (window.commit or 0) < catalog.base)
    if not catalog.base or not reaches_back:
        return []
    stored = (catalog.layouts[ref] for ref in refs if ref in catalog.layouts)
    first = (versions_of(engine, layout.schema, catalog)[0].layout.activation_commit_id for layout in stored)
    if all(activation > catalog.base for activation in first):
        return []
    return [{"reason": HISTORY_FORGOTTEN, "base_commit_id": catalog.base}]


def describe_cut(ref: TypeRef, window: Window, activation: int, *, readable: bool) -> str:
    """That rows are left out, and how to get them."""
    what = f"the state of {ref} at commit {window.commit}" if window.mode == "as_of" else f"the history of {ref}"
    return (
        f"{what} is not complete: rows from before commit {activation}, when the current version of its schema came "
        f"into force, are left out{'. across_versions() reads them, too' if readable else ''}"
    )
