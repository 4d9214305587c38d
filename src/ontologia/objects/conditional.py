"""Conditional puts that are settled: committed, rejected, or unknown and said so.

A conditional put whose answer is lost may have been applied. Sending it again is safe, since the condition
lets it in at most once, but the second answer can be a refusal caused by the first. So bodies carry a
`writer_id` that no other attempt has, and after a refusal or a lost answer the object is read back to see
whose body is there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ontologia.errors import CommitOutcomeUnknownError, StorageBackendError
from ontologia.objects.backend import Blob
from ontologia.objects.clock import SYSTEM_CLOCK, Clock, pauses
from ontologia.objects.failures import ConditionFailed, ObjectNotFound, is_transient, may_be_applied
from ontologia.objects.store import Objects
from ontologia.objects.system import new_uuid

Body = dict[str, Any]


@dataclass(frozen=True)
class Committed:
    """Our body was written. `etag` is None if a later writer has already built on it, so that ours is not
    known."""

    etag: str | None
    body: Body


@dataclass(frozen=True)
class Rejected:
    """Another body is in place: `winner` with its `etag`. Both None if the object is gone; `winner` alone is
    None if it is not a JSON object."""

    winner: Body | None
    etag: str | None


def new_writer_id() -> str:
    """A nonce for one attempt to write one body."""
    return new_uuid().hex


def conditional_put(
    objects: Objects,
    key: str,
    body: Mapping[str, Any],
    *,
    etag: str | None,
    writer_id: str | None = None,
    buried: Callable[[Body], bool] | None = None,
    budget_s: float = 20.0,
    clock: Clock = SYSTEM_CLOCK,
    encode: Callable[[Body], bytes] | None = None,
    after: Sequence[str] = (),
) -> Committed | Rejected:
    """Create (`etag=None`) or replace exactly `etag`, and find out what happened. One request if all goes
    well.

    `body` is written as JSON with a `writer_id`, made here unless the caller needs to know it before. `encode` lays
    the JSON out where it is compact by default. What was put ahead, and a create names, is in `after`.

    `buried` answers the last open question: after a lost answer somebody else's body is there, and it may
    have been written *on top of* ours. Given that body, it says whether ours is in its history. Without it, a
    create counts as rejected (right for keys that are written once) and a replace raises.

    Raises `CommitOutcomeUnknownError` if `budget_s` did not suffice to find out, and `StorageBackendError` if
    the put was certainly not applied (access denied, no such bucket, endpoint never reached).
    """
    put = _Put(
        objects,
        key,
        body,
        etag,
        writer_id or new_writer_id(),
        buried,
        clock.steady() + budget_s,
        clock,
        encode or compact,
        after,
    )
    return put.settle()


def compact(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def decode(data: bytes) -> Body | None:
    """The JSON object in these bytes, or None if they are something else."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


class _Put:
    """One conditional put on its way to being settled."""

    def __init__(
        self,
        objects: Objects,
        key: str,
        body: Mapping[str, Any],
        etag: str | None,
        writer_id: str,
        buried: Callable[[Body], bool] | None,
        deadline: float,
        clock: Clock,
        encode: Callable[[Body], bytes],
        after: Sequence[str],
    ) -> None:
        self.objects = objects
        self.key = key
        self.body: Body = {**body, "writer_id": writer_id}
        self.data = encode(self.body)
        self.etag = etag
        self.writer_id = writer_id
        self.buried = buried
        self.deadline = deadline
        self.clock = clock
        self.after = after
        self.in_doubt = False  # a request of ours may have been applied, or may still be
        self.pauses = pauses()

    def settle(self) -> Committed | Rejected:
        while True:
            failure: StorageBackendError | None = None
            try:
                return Committed(self._send(), self.body)
            except ConditionFailed:
                pass
            except StorageBackendError as error:
                failure = error
                self.in_doubt = self.in_doubt or may_be_applied(error)
                if not self.in_doubt and not is_transient(error):
                    raise
            found = None
            if failure is None or self.in_doubt:
                found = self._read_back()
                outcome = self._judge(found)
                if outcome is not None:
                    return outcome
            if not self._pause():
                if self.in_doubt:
                    self._give_up(failure)
                if failure is not None:
                    raise failure
                return Rejected(decode(found.data) if found else None, found.etag if found else None)

    def _send(self) -> str:
        if self.etag is None:
            return self.objects.put_if_absent(self.key, self.data, after=self.after)
        return self.objects.put_if_match(self.key, self.data, self.etag)

    def _judge(self, found: Blob | None) -> Committed | Rejected | None:
        """None if the object is still as it was before: then the put can be sent again."""
        if (found.etag if found else None) == self.etag:
            return None
        winner = decode(found.data) if found else None
        if winner is not None and winner.get("writer_id") == self.writer_id:
            return Committed(found.etag if found else None, self.body)
        if winner is not None and self.buried is not None:
            if self.buried(winner):
                return Committed(None, self.body)
        elif self.in_doubt and self.etag is not None:
            self._give_up(None)
        return Rejected(winner, found.etag if found else None)

    def _read_back(self) -> Blob | None:
        while True:
            try:
                return self.objects.get(self.key)
            except ObjectNotFound:
                return None
            except StorageBackendError as error:
                if not is_transient(error) or not self._pause():
                    self._give_up(error)

    def _pause(self) -> bool:
        """Wait a little; False if the budget is spent."""
        left = self.deadline - self.clock.steady()
        if left <= 0:
            return False
        self.clock.sleep(min(next(self.pauses), left))
        return True

    def _give_up(self, cause: BaseException | None) -> NoReturn:
        raise CommitOutcomeUnknownError(
            f"a conditional put to {self.objects.url(self.key)} was sent and it is not known whether it was "
            f"applied. Delete nothing that it refers to. To find out, read the object: it was applied if its "
            f"writer_id is {self.writer_id}, or if what it says now was built on that write"
        ) from cause
