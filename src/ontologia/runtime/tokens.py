"""Tokens: what was previewed is what is done, on the same store in the same state."""

from __future__ import annotations

import hashlib
from typing import Any

from ontologia.engines.base import Engine
from ontologia.model import canonical_json


def token_for(engine: Engine, what: str, *content: Any, at_head: bool = True) -> str:
    """Binds an intention to a store and, `at_head`, to its last commit.

    The head's number alone would fit any store of that age, and a copy has the same commits: so the place counts, too.
    """
    objects = engine.objects
    place = (objects.uri, objects.identity) if objects else (engine.location.uri, None)
    newest = [[commit.id, commit.created_at, commit.runtime_id] for commit in engine.commits(limit=1) if at_head]
    said = canonical_json([what, *place, engine.location.branch, newest, *content])
    return hashlib.sha256(said.encode()).hexdigest()[:32]
