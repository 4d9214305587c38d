"""How the rows of a type are shared out among tasks that read side by side, and files that others read themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ontologia.files.key_ranges import EVERYTHING, KeyRange, key_ranges
from ontologia.model import FieldExpr, Predicate, TypeSchema
from ontologia.query.plan import Plan, Window

if TYPE_CHECKING:
    from ontologia.engines.base import Engine
    from ontologia.files.data_files import DataFile

ROWS_PER_SHARE = 500_000


@dataclass(frozen=True, slots=True)
class Share:
    """What one task reads: a range of keys, or what an engine says instead. It can be sent to the task."""

    keys: KeyRange = EVERYTHING
    files: Any = None


class FilesInForce(Protocol):
    """The files of a type in a window, for readers of other kinds; `Scan` of the Parquet engine says it in full."""

    @property
    def base(self) -> Sequence[DataFile]:
        """Files whose rows know the commit that superseded them."""

    @property
    def tail(self) -> Sequence[Any]:
        """What came after, oldest first: of each identity the last row counts, and it supersedes the base's."""

    @property
    def tail_files(self) -> Sequence[DataFile]:
        """The files of the tail."""

    @property
    def settled_paths(self) -> frozenset[str]:
        """The files that have a column for the commit that superseded a row; in others, nothing did by itself."""

    @property
    def tail_is_mixed(self) -> bool:
        """Whether the tail may have several rows of one identity."""

    @property
    def has_removals(self) -> bool:
        """Whether rows of these files say that something was removed: those are superseded by their own commit."""

    @property
    def upper(self) -> int | None:
        """The last commit that counts, where files may hold later ones."""

    @property
    def inside_snapshot(self) -> bool:
        """Whether `upper` lies within the base, so that later rows of it do not supersede yet."""


def shares_by_key(engine: Engine, schema: TypeSchema, window: Window) -> list[Share]:
    """Ranges of keys with about as many rows each, found by the engine's own order of keys."""
    counted = Plan.counting(schema, window)
    with engine.snapshot():
        rows = int(engine.fetch(counted).columns[0][0])
        cuts: list[str] = []
        for offset in range(ROWS_PER_SHARE, rows, ROWS_PER_SHARE):
            step = Plan.of(schema, window, limit=1, offset=offset, stored=True)
            cuts += list(engine.fetch(step).columns[1])
    return [Share(keys) for keys in key_ranges(cuts)]


def range_predicates(schema: TypeSchema, keys: KeyRange) -> tuple[Predicate, ...]:
    """A range of the first identity column as filters, which an engine answers by its index or its statistics."""
    key = first_key(schema)
    found: list[Predicate] = []
    if keys.first is not None:
        found.append(key >= keys.first)
    if keys.end is not None:
        found.append(key < keys.end)
    return tuple(found)


def between(schema: TypeSchema, first: str, last: str) -> tuple[Predicate, ...]:
    """The keys from one to another, both included."""
    key = first_key(schema)
    return (key >= first, key <= last)


def first_key(schema: TypeSchema) -> FieldExpr[Any]:
    """The first identity column as an expression. It is text whatever the type of the key."""
    return FieldExpr(schema.ref, schema.ref.identity[0], None)
