"""What becomes of rows that fit: each identity once, and what the store has of it already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from ontologia.engines.changes import INSERT, UPDATE
from ontologia.errors import ValidationError
from ontologia.files.identity import identity_key
from ontologia.model import TypeRef
from ontologia.runtime.delta import OPERATION
from ontologia.runtime.intake.rows import ORDER

OnInvalid = Literal["abort", "quarantine"]
OnDuplicate = Literal["error", "last"]
OnTie = Literal["error", "greatest"]
OnConflict = Literal["abort", "skip", "upsert"]
Mode = Literal["upsert", "sync"]
Missing = Literal["default", "keep"]
COUNTS = ("read", "inserted", "updated", "unchanged", "rejected", "ties", "removed")


def tally(counts: dict[str, int], changed: pa.Table, wanted: int) -> None:
    """Count what the delta rule found."""
    inserted = pc.sum(pc.equal(changed.column(OPERATION), INSERT)).as_py() or 0
    counts["inserted"] += inserted
    counts["updated"] += changed.num_rows - inserted
    counts["unchanged"] += wanted - changed.num_rows


def keep_stored(wanted: pa.Table, current: pa.Table | None, ref: TypeRef, names: Sequence[str]) -> pa.Table:
    """The rows with the values that the store has in these columns, where it has the row."""
    if not names or current is None or not current.num_rows:
        return wanted
    place = pc.index_in(identity_key(wanted, ref.identity), value_set=identity_key(current, ref.identity))
    for name in names:
        number, column = wanted.schema.get_field_index(name), wanted.column(name)
        stored = current.column(name).take(place).cast(column.type)
        wanted = wanted.set_column(number, name, pc.if_else(pc.is_valid(place), stored, column))
    return wanted


def resolve_conflicts(changed: pa.Table, ref: TypeRef, on_conflict: OnConflict) -> pa.Table:
    """What is to be done about rows that the store has already."""
    if on_conflict == "upsert":
        return changed
    existing = pc.equal(changed.column(OPERATION), UPDATE)
    if on_conflict == "skip":
        return changed.filter(pc.invert(existing))
    conflicts = changed.filter(existing)
    if conflicts.num_rows:
        raise ValidationError(f"{ref} {_name_row(conflicts, ref, 0)} exists with other values")
    return changed


def one_each(table: pa.Table, ref: TypeRef, on_duplicate: OnDuplicate) -> pa.Table:
    """Each identity once: the last in order, or an error, as asked. Rows come sorted by identity and order."""
    if table.num_rows < 2:
        return table
    keys = identity_key(table, ref.identity).combine_chunks()
    again = pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1))
    if not pc.any(again).as_py():
        return table
    if on_duplicate == "error":
        raise occurs_twice(table, ref, pc.index(again, True).as_py())
    return table.filter(pa.concat_arrays([pc.invert(again), pa.array([True])]))


def occurs_twice(table: pa.Table, ref: TypeRef, row: int = 0) -> ValidationError:
    """What is said of an identity that a load has more than once."""
    return ValidationError(
        f"{ref} {_name_row(table, ref, row)} occurs more than once in this load: "
        "clean the source, or say with order_by which is the last"
    )


def count_ties(table: pa.Table, ref: TypeRef, on_tie: OnTie) -> int:
    """For how many identities two rows are the last in order, with other values. The greater values are kept.

    Rows come sorted by identity, order and values, so that it is the same row however often it is asked for.
    """
    if table.num_rows < 2:
        return 0
    keys = identity_key(table, ref.identity).combine_chunks()
    again = pc.equal(keys.slice(0, len(keys) - 1), keys.slice(1))
    last = pc.invert(pa.concat_arrays([again.slice(1), pa.array([False])]))
    rows = _LazyRows(table)
    places = [
        end for end in pc.add(pc.indices_nonzero(pc.and_(again, last)), 1).to_pylist() if rows.is_tied(end, again)
    ]
    if places and on_tie == "error":
        raise ValidationError(
            f"{ref} {_name_row(table, ref, places[0])} has several rows that order_by takes for the last: "
            "add an expression to order_by that tells them apart, or keep the greatest values with on_tie='greatest'"
        )
    return len(places)


class _LazyRows:
    """Rows in Python's values, as far as they are looked at."""

    def __init__(self, table: pa.Table) -> None:
        self.order = table.column(ORDER)
        self.values = table.drop_columns([ORDER])

    def is_tied(self, end: int, again: pa.Array) -> bool:
        """Whether a row that is the last of its identity has others before it of the same order and other values."""
        order, values = self.order[end].as_py(), None
        for place in range(end - 1, -1, -1):
            if not again[place].as_py() or not _same(self.order[place].as_py(), order):
                return False
            values = values or self._row(end)
            if not _same(self._row(place), values):
                return True
        return False

    def _row(self, place: int) -> dict[str, Any]:
        row: dict[str, Any] = self.values.slice(place, 1).to_pylist()[0]
        return row


def _same(one: Any, two: Any) -> bool:
    """Whether two values are the same one: NaN is, though it does not equal itself."""
    if isinstance(one, dict) and isinstance(two, dict):
        return all(_same(one[name], two[name]) for name in one)
    return bool(one == two or (one != one and two != two))


def _name_row(table: pa.Table, ref: TypeRef, row: int) -> str:
    return repr("/".join(str(table.column(name)[row].as_py()) for name in ref.identity))
