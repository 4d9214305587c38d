"""Loads that make a type what its source is: what the source no longer has goes.

The rule is one function over identities, so that whoever loads, in process or on executors, takes the same rows away.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ontologia.engines.capabilities import Capabilities
from ontologia.engines.transaction import removals_refused
from ontologia.errors import RemovalLimitError, ValidationError
from ontologia.files.identity import identity_key
from ontologia.model import TypeRef


def identities_to_remove(stored: pa.Table, source: pa.Table, identity: Sequence[str]) -> pa.Table:
    """The stored identities that the source does not have. Both have the columns of an identity, each at most once."""
    keys = stored.select(list(identity))
    if not source.num_rows or not keys.num_rows:
        return keys
    kept = pc.is_in(identity_key(keys, identity), value_set=identity_key(source, identity).combine_chunks())
    return keys.filter(pc.invert(kept))


def check_sync(ref: TypeRef, capabilities: Capabilities, on_conflict: str, rejected: int) -> None:
    """Refuse a load that cannot say what is no more: of rows that were set aside nobody knows which they are."""
    if not capabilities.removals:
        raise removals_refused(str(ref))
    if on_conflict != "upsert":
        raise ValidationError(f"{ref}: mode='sync' makes the store what the source is, so on_conflict is 'upsert'")
    if rejected:
        raise ValidationError(
            f"{ref}: {rejected} rows of the source do not fit, and so mode='sync' cannot tell what it no longer has: "
            "clean the source. Nothing was written"
        )


def check_removals(ref: TypeRef, removals: int, source_rows: int, limit: int | None) -> None:
    """The safety catch: more removals than may be, or all there is, are a mistake until somebody says they are none."""
    if limit is not None and removals > limit:
        raise RemovalLimitError(
            f"{ref}: the source lacks {removals} of the rows that the store has, and {limit} may go: look at the "
            "source, or raise max_removals. Nothing was written"
        )
    if limit is None and removals and not source_rows:
        raise RemovalLimitError(
            f"{ref}: the source has no rows, and the store {removals}: where they are all to go, say so with "
            f"max_removals={removals}. Nothing was written"
        )
