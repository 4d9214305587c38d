"""What a store uses beyond its engine version, said in its stamp: `v2+removals`.

A release that does not know a feature would give wrong answers, so it must not open the store. The stamp is the one
thing that every release compares with what it knows, and so the features stand behind the version in it. A store is
stamped when it first uses one, with that very commit or before it; until then it is as it always was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from ontologia.errors import EngineVersionError

REMOVALS = "removals"
"""Rows may say that something was removed: they are superseded by their own commit."""
COMPACTED = "compacted"
"""Files of commits may be gone whose rows are in a snapshot: the head names the record of those."""
FORGOTTEN = "forgotten"
"""History begins at a commit that the store names: what was superseded by then is gone."""
KNOWN_IN_FILES = frozenset({REMOVALS, FORGOTTEN})
KNOWN_IN_BUCKETS = frozenset({REMOVALS, COMPACTED, FORGOTTEN})


@dataclass(frozen=True, slots=True)
class Stamp:
    """The engine version of a store, and what it uses besides."""

    version: str
    features: frozenset[str] = frozenset()

    @classmethod
    def read(cls, text: str) -> Self:
        version, *features = text.split("+")
        return cls(version, frozenset(features))

    def __str__(self) -> str:
        return "+".join((self.version, *sorted(self.features)))

    def using(self, features: Iterable[str]) -> Stamp:
        return Stamp(self.version, self.features | {*features})

    def check(self, where: str, known: frozenset[str]) -> None:
        """Refuse what this release does not know in stores of this kind."""
        unknown = self.features - known
        if unknown:
            raise EngineVersionError(
                f"{where}: this store uses {', '.join(sorted(unknown))}, which this release does not know; upgrade "
                "ontologia to open it"
            )
