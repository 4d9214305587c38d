"""Commits as events: a store of any engine, followed commit by commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ontologia.errors import ValidationError
from ontologia.model import instant_text
from ontologia.runtime.events.records import StoredEvent, instant
from ontologia.runtime.events.store import EventStore
from ontologia.runtime.events.types import CommitMade, derive_id

if TYPE_CHECKING:
    from ontologia.runtime.store import Store

COMMITS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class CommitFeed:
    """Send a `CommitMade` for every commit of a store, in the order of the commits: `CommitFeed("erp", erp_ontology)`.

    The store may be on any engine, the session's own or another. A handler asks it what changed:
    `erp.query().entities(Product).history_since(ctx.event.commit_id - 1)`, or `erp.list_commit_changes(…)`. A new feed
    begins at the head; `since` lets it begin after an earlier commit, 0 for all of them.
    """

    name: str
    source: Store
    since: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip() or not self.name.isprintable():
            raise ValidationError(f"a feed has a name that its place in the log is kept under, not {self.name!r}")
        if self.since is not None and self.since < 0:
            raise ValidationError(f"feed {self.name}: it cannot begin after commit {self.since}")

    def send_new(self, store: EventStore) -> int:
        """Queue an event for each commit since the last time; how many."""
        head = self.source.repository.get_head_commit_id()
        mark = store.mark(f"feed.{self.name}")
        if mark is None:
            begin = head if self.since is None else self.since
            mark = {"commit_id": begin, "sent_at": instant(store.clock.wall())}
            if not store.advance(f"feed.{self.name}", None, mark, []):
                return 0
        done = int(mark["commit_id"])
        if head <= done:
            return 0
        commits = self.source.list_commits(None, done)[::-1][:COMMITS_AT_ONCE]
        events = self._events(store, str(mark["sent_at"]), [commit["id"] for commit in commits])
        after = {"commit_id": commits[-1]["id"], "sent_at": events[-1].created_at}
        return len(events) if store.advance(f"feed.{self.name}", mark, after, events) else 0

    def _events(self, store: EventStore, sent_at: str, commit_ids: Sequence[int]) -> list[StoredEvent]:
        """Each a microsecond younger than the one before: events of one priority are handled by age."""
        now = datetime.fromtimestamp(store.clock.wall(), UTC)
        first = max(now, datetime.fromisoformat(sent_at) + timedelta(microseconds=1))
        found = []
        for place, commit_id in enumerate(commit_ids):
            id = derive_id(store.namespace, "feed", self.name, str(commit_id))
            payload = {"feed": self.name, "commit_id": commit_id}
            created_at = instant_text(first + timedelta(microseconds=place))
            found.append(
                StoredEvent(id, store.namespace, CommitMade.__event_type_name__, payload, created_at, 100, id, 0)
            )
        return found
