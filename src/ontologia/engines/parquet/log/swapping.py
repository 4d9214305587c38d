"""The swap of a head: the one step by which anything comes into force in a bucket (RFC 0004 §3.3 step 7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ontologia.engines.parquet import paths
from ontologia.engines.parquet.log.records import Head
from ontologia.errors import ConcurrentWriteError, OntologiaError
from ontologia.objects import Objects, Rejected, conditional_put

BUDGET_S = 20.0
"""How long to find out what became of a swap whose answer was lost."""


def swap_head(
    objects: Objects,
    key: str,
    head: Head,
    *,
    etag: str | None,
    lost: Callable[[Mapping[str, Any]], OntologiaError],
    buried: Callable[[Mapping[str, Any]], bool] | None = None,
    budget_s: float = BUDGET_S,
) -> None:
    """Put a head in place of exactly the one that was read, or where there is none. If somebody else was first, raise
    what `lost` makes of their head.

    `buried` says whether a head that was found after a lost answer was built on ours, which then came into force.
    """
    outcome = conditional_put(objects, key, head.body(), etag=etag, buried=buried, budget_s=budget_s)
    if isinstance(outcome, Rejected):
        raise lost(outcome.winner or {})


def written_meanwhile_error(objects: Objects) -> ConcurrentWriteError:
    return ConcurrentWriteError(f"{objects.url(paths.HEAD)} was written by somebody else meanwhile: look again")


def names_manifest_of(head: Head) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a head that was found names the same manifest."""
    return lambda winner: Head.read(winner).manifest_path == head.manifest_path
