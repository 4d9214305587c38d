"""A write lease on one object: acquire, keep alive, guard, release (RFC 0004 §3.1 and §3.2).

The lease keeps writers out of each other's way; it does not decide who wins. That is the compare-and-swap of
what the writer finally puts, so a lease taken over too early costs work, never data.
"""

from __future__ import annotations

import itertools
import logging
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self

from ontologia.config import new_runtime_id
from ontologia.errors import (
    CommitOutcomeUnknownError,
    LeaseExpiredError,
    LockContentionError,
    OntologiaError,
    StorageBackendError,
)
from ontologia.objects.clock import SYSTEM_CLOCK, Clock, pauses
from ontologia.objects.conditional import Committed, Rejected, conditional_put, decode, new_writer_id
from ontologia.objects.failures import ObjectNotFound
from ontologia.objects.lease_record import LeaseRecord
from ontologia.objects.store import Objects
from ontologia.objects.system import Event, system

_log = logging.getLogger(__name__)


class Lease:
    """Held by one writer at a time; expires by itself when the writer dies.

        lease = Lease(objects, "meta/locks/ontology_write.json", ttl_s=30, owner_id="writer-a", timeout_s=5)
        with lease:
            …                 # write files
            lease.guard()     # just before the commit point
            …                 # compare-and-swap

    **Whose it is.** Each acquisition and each renewal writes a new nonce; ownership is the etag of our last
    write. `owner_id` only tells people who holds it: two sessions of one runtime exclude each other too.

    **Clocks.** `expires_at` is wall time, compared by other writers: their clocks must agree within `ttl_s /
    3`. More skew takes a lease over too early (safe, the swap decides) or too late. Too late has an end: a
    lease that this object has seen unchanged for its whole ttl, on the steady clock, is dead whatever it
    says, since a living holder renews every third. Our own remaining time is the smaller of two: by the
    steady clock from before the request was sent, so that setting the wall clock back does not prolong it,
    and by the wall clock, because the steady clock stands still while a machine sleeps.

    **Cost.** Keep one `Lease` for many acquisitions. Release replaces the payload by a released one
    (conditional deletes are not portable) and remembers its etag: if nobody came in between, the next
    `acquire` is one request, as is the release. Taking over from another writer is three: create, read,
    replace.
    """

    def __init__(
        self,
        objects: Objects,
        key: str,
        ttl_s: float = 30.0,
        *,
        owner_id: str,
        timeout_s: float = 5.0,
        timeout_setting: str = "timeout_s",
        keep_alive: bool = True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if ttl_s <= 0:
            raise ValueError(f"a lease needs a ttl above 0 seconds, not {ttl_s}")
        self.objects = objects
        self.key = key
        self.ttl_s = ttl_s
        self.owner_id = owner_id
        self.timeout_s = timeout_s
        self.timeout_setting = timeout_setting  # what an operator calls it, for the error that names it
        self.keep_alive = keep_alive
        self.clock = clock
        self._lock = system().rlock()  # renewals and release are one at a time
        self._etag: str | None = None  # of our last write, held or released
        self._held: LeaseRecord | None = None
        self._sent: tuple[LeaseRecord, str] | None = None  # an acquisition, by its nonce, whose answer is not known yet
        self._steady_expiry = 0.0
        self._unsafe: str | None = None
        self._seen: tuple[str, float] | None = None  # another's etag, and since when it has not changed
        self._stop: Event | None = None
        self.replaced: str | None = None
        """The version that was replaced when the lease was taken; None where it was created."""
        self.likely_there = False
        """Whether somebody has written here before: then reading (step 2) comes before the create that would fail."""
        self.wanted: Callable[[], bool] | None = None
        """Asked before each renewal: a holder that was interrupted must not keep the lease for ever."""

    # --- acquire (§3.1) -------------------------------------------------------------------------------------

    def acquire(self) -> Self:
        """Take the lease, waiting up to `timeout_s` for another writer. Raises `LockContentionError`."""
        if self._held is not None:
            raise RuntimeError(f"the lease on {self.key} is held already: one Lease object is one holder")
        deadline = self.clock.steady() + self.timeout_s
        waits = pauses(0.05, min(1.0, self.ttl_s / 3))
        expected = self._etag
        if expected is None and self.likely_there:
            expected = self._wait_until_free(self._look(), deadline, waits).etag
        for attempt in itertools.count():
            try:
                seen = self._try(expected, deadline)
                if seen is None:
                    self._start_keep_alive()
                    return self
            except Exception:
                self._sent = None
                raise
            except BaseException:
                self.release()  # what was interrupted may have been written
                raise
            if attempt and self.clock.steady() > deadline:
                raise self._contention(seen)
            seen = self._wait_until_free(seen, deadline, waits)
            expected = seen.etag
        raise AssertionError("unreachable")

    def _wait_until_free(self, seen: Rejected, deadline: float, waits: Iterator[float]) -> Rejected:
        """Step 3: read again, with backoff, until it is free or time is up."""
        while not self._is_free(seen):
            left = deadline - self.clock.steady()
            if left <= 0:
                raise self._contention(seen)
            self.clock.sleep(min(next(waits), left))
            seen = self._look()
        return seen

    def _try(self, expected: str | None, deadline: float) -> Rejected | None:
        """Steps 1 and 4: create, or replace what was seen to be free. None if the lease is ours."""
        wall, steady = self.clock.wall(), self.clock.steady()
        process = new_runtime_id() if self.keep_alive else None  # without, whoever owns it may outlive this process
        record = LeaseRecord.starting(self.owner_id, wall, self.ttl_s, process)
        budget = max(deadline - steady, self.ttl_s / 3)
        self._sent = (record, writer_id := new_writer_id())
        try:
            outcome = self._write(record, expected, budget, writer_id)
        except CommitOutcomeUnknownError as error:
            raise StorageBackendError(f"could not acquire the lease {self.objects.url(self.key)}: {error}") from error
        if isinstance(outcome, Rejected):
            self._sent = None
            return outcome
        with self._lock:
            self._hold(record, outcome, steady)
            self.replaced = expected
        self._sent = None
        return None

    def _write(
        self, record: LeaseRecord, etag: str | None, budget_s: float, writer_id: str | None = None
    ) -> Committed | Rejected:
        """Whoever is found in our place after a lost answer has the lease: a buried write of ours does not
        count."""
        return conditional_put(
            self.objects,
            self.key,
            record.payload(),
            etag=etag,
            writer_id=writer_id,
            buried=lambda winner: False,
            budget_s=budget_s,
            clock=self.clock,
        )

    def _look(self) -> Rejected:
        """Step 2: read who holds it."""
        try:
            blob = self.objects.get(self.key)
        except ObjectNotFound:
            return Rejected(None, None)
        return Rejected(decode(blob.data), blob.etag)

    def _is_free(self, seen: Rejected) -> bool:
        """Gone, released, expired by its own word, of a process that has ended, or unchanged for a whole ttl under our
        eyes."""
        if seen.etag is None:
            return True
        record = LeaseRecord.read(seen.winner)
        if record is not None and (record.released or self.clock.wall() >= record.expires_at.timestamp()):
            return True
        if record is not None and record.holder_has_ended:
            return True
        now = self.clock.steady()
        if self._seen is None or self._seen[0] != seen.etag:
            self._seen = (seen.etag, now)
        ttl_s = record.lease_ttl_ms / 1000 if record is not None else self.ttl_s
        return now - self._seen[1] >= ttl_s

    def _contention(self, seen: Rejected) -> LockContentionError:
        record = LeaseRecord.read(seen.winner)
        who, then = "not readable", f"once it was unchanged for {self.ttl_s:g} s"
        if record is not None:
            who = f"held by {record.owner_id!r} until {record.expires_at.isoformat()}"
            then = f"in {max(0.0, record.expires_at.timestamp() - self.clock.wall()):.0f} s"
        return LockContentionError(
            f"the lease {self.objects.url(self.key)} is {who}, and did not become free within {self.timeout_s:g} s. "
            f"A living writer prolongs it, a dead one's ends {then}: try again, or raise {self.timeout_setting}"
        )

    def _hold(self, record: LeaseRecord, outcome: Committed, steady_sent: float) -> None:
        self._held = record
        self._etag = outcome.etag
        self._steady_expiry = steady_sent + self.ttl_s
        self._unsafe = None
        self._seen = None

    # --- keep alive (§3.2) ----------------------------------------------------------------------------------

    def renew(self) -> None:
        """Prolong the lease. If that fails for whatever reason the lease is unsafe from then on, and this
        raises `LeaseExpiredError`. The keep-alive thread calls it every third of the ttl."""
        with self._lock:
            held = self._held
            if held is None or self._unsafe is not None:
                raise LeaseExpiredError(self._unsafe or f"the lease on {self.key} is not held")
            steady = self.clock.steady()
            record = held.prolong(self.clock.wall(), self.ttl_s)
            budget = max(self._steady_expiry - self.ttl_s / 3 - steady, 0.0)
            try:
                outcome = self._write(record, self._etag, budget)
            except OntologiaError as error:
                self._unsafe = f"the lease on {self.key} could not be renewed: {error}"
                raise LeaseExpiredError(self._unsafe) from error
            if isinstance(outcome, Rejected):
                winner = LeaseRecord.read(outcome.winner)
                self._unsafe = f"the lease on {self.key} was taken over by {winner.owner_id if winner else 'another'!r}"
                raise LeaseExpiredError(self._unsafe)
            self._hold(record, outcome, steady)

    def _start_keep_alive(self) -> None:
        if not self.keep_alive:
            return
        self._stop = system().event()
        renew = partial(_renew_until_stopped, weakref.ref(self), self._stop, self.ttl_s / 3)
        system().start(renew, f"lease {self.key}")

    # --- guard (§3.3 step 6) --------------------------------------------------------------------------------

    @property
    def remaining_s(self) -> float:
        """How long the lease is certainly ours; 0 if it is not held."""
        held = self._held
        if held is None or self._unsafe is not None:
            return 0.0
        by_wall = held.expires_at.timestamp() - self.clock.wall()
        return max(0.0, min(self._steady_expiry - self.clock.steady(), by_wall))

    @property
    def expires_at(self) -> datetime | None:
        """When the lease runs out as others see it; None if it is not held."""
        return self._held.expires_at if self._held else None

    @property
    def held(self) -> bool:
        """Whether this object believes to hold the lease. Before a commit point, ask `guard`."""
        return self._held is not None

    def guard(self) -> None:
        """Raise `LeaseExpiredError` unless the lease is ours for another third of its ttl."""
        if self._held is None:
            raise LeaseExpiredError(f"the lease on {self.key} is not held")
        if self._unsafe is not None:
            raise LeaseExpiredError(self._unsafe)
        remaining = self.remaining_s
        if remaining < self.ttl_s / 3:
            raise LeaseExpiredError(
                f"the lease on {self.key} has {remaining:.3f} s left of {self.ttl_s:g} s, less than the margin of "
                "a third: nothing was committed, try again"
            )

    # --- release --------------------------------------------------------------------------------------------

    def release(self) -> bool:
        """Give the lease up if it is still ours; True if so. Never raises for the storage: what cannot be
        released expires, and a commit that has succeeded must not fail here (§3.3, post-CAS rule)."""
        if self._stop is not None:
            self._stop.set()
        with self._lock:
            outcome: Committed | None = None
            try:
                outcome = self._end()
            except OntologiaError as error:
                _log.warning("the lease on %s was not released and will expire: %s", self.key, error)
            except Exception:
                raise
            except BaseException:  # an interrupt waits until others can write; a second one does not
                with suppress(OntologiaError):
                    self._end()
                raise
            finally:
                self._held = self._sent = None
                self._etag = None if outcome is None else outcome.etag
            return outcome is not None

    def _end(self) -> Committed | None:
        """Say in the object that the lease is free; None if it is not ours."""
        held, etag = self._held, self._etag
        if held is None and self._sent is not None:  # the answer to its acquisition did not come: see who is there
            seen = self._look()
            if seen.winner is not None and seen.winner.get("writer_id") == self._sent[1]:
                held, etag = self._sent[0], seen.etag
        if held is None or etag is None:
            return None
        outcome = self._write(held.end(self.clock.wall()), etag, self.ttl_s / 3)
        return outcome if isinstance(outcome, Committed) else None

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        state = "held" if self._held else "not held"
        return f"Lease({self.objects.url(self.key)!r}, owner_id={self.owner_id!r}, {state})"


def _renew_until_stopped(lease_ref: weakref.ref[Lease], stop: Event, interval_s: float) -> None:
    """The keep-alive thread. It holds no reference to the lease: one that was dropped unreleased must
    expire."""
    while not stop.wait(interval_s):
        lease = lease_ref()
        if lease is None:
            return
        if lease.wanted is not None and not lease.wanted():
            lease.release()
            return
        try:
            lease.renew()
        except LeaseExpiredError as error:
            if not stop.is_set():
                _log.warning("%s", error)
            return
        del lease
