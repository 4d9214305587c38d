"""What an engine can do, as those above it ask."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do. The conformance suite reads it, and so do the layers above.

    `object_storage`: rows are files that many machines can reach. `read_only`: nothing can be written.
    `staging`: others may write rows of a commit, which it then adopts. `past_versions`: rows of earlier schema versions
    can be read. `forgetting`: early history can be given up. `erasure`: identities can be taken out of all of it.
    `branches`, `removals`, `search` and `unique_fields` are what their names say.
    """

    object_storage: bool = False
    read_only: bool = False
    staging: bool = True
    past_versions: bool = True
    branches: bool = False
    removals: bool = False
    forgetting: bool = False
    erasure: bool = False
    search: bool = False
    unique_fields: bool = False
