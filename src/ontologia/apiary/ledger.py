"""The ledger of one frame: an ordered sequence of entries, serialised by conditional puts (seed, "The Transaction
Ledger").

The state is kept and moved forward, so a commit costs one request and a read one probe for news, whatever the history.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from ontologia.apiary.entries import Action, Cell, Checkpoint, CreateFrame, Entry, decode, encode
from ontologia.apiary.names import CHECKPOINT, CHECKPOINTS, LEDGER, FrameName, number_text
from ontologia.apiary.numbering import newest_first, numbers_from
from ontologia.apiary.state import FrameSnapshot, FrameState, with_partitioning
from ontologia.apiary.types import FrameSchema
from ontologia.errors import (
    CommitOutcomeUnknownError,
    ConcurrentWriteError,
    CorruptFrameError,
    OntologiaError,
    UnknownNameError,
)
from ontologia.files.json_objects import WRONG_SHAPE
from ontologia.objects import (
    SYSTEM_CLOCK,
    Clock,
    Committed,
    ObjectNotFound,
    Objects,
    Rejected,
    conditional_put,
    pauses,
    system,
)

CHECKPOINT_EVERY = 100
COMMIT_BUDGET_S = 60.0
_PATIENCE = 5
_log = logging.getLogger(__name__)

Propose = Callable[[FrameState], Action]


class NoLedgerError(CorruptFrameError):
    """Whoever created the frame was stopped before its first entry was there."""


class Ledger:
    """The entries of one frame, from its folder. Safe to use from many threads."""

    def __init__(self, folder: Objects, name: FrameName, node_id: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self.folder = folder
        self.name = name
        self.node_id = node_id
        self.clock = clock
        self._lock = system().rlock()
        self._state: FrameState | None = None
        self._checkpoint_due = False

    # --- reading -------------------------------------------------------------------------------------------------

    def snapshot(self, version: int | None = None) -> FrameSnapshot:
        """The frame as it is now, or as it was at a version."""
        with self._lock:
            state = self._refresh()
            if version is None:
                return state.snapshot()
            if type(version) is not int or not 0 <= version <= state.version:
                raise UnknownNameError(
                    f"{self.name} has no version {version!r}; there are versions 0 to {state.version}"
                )
            if version == state.version:
                return state.snapshot()
        start = self._newest_checkpoint(at_most=version)
        return self._replay(start, self.entries(0 if start is None else start.version + 1, version)).snapshot()

    def known(self) -> FrameState:
        """The frame as it was last seen, for writers: a commit finds out what is new. It moves on with commits."""
        with self._lock:
            return self._state or self._refresh()

    def first_cell(self) -> Cell | None:
        """One of the cells that are there, or None. Where none is known, the store is asked."""
        with self._lock:
            state = self.known()
            return next(iter((state if state.cells else self._refresh()).cells.values()), None)

    def declared_schema(self) -> FrameSchema | None:
        """What the frame was created with; None if it has no ledger yet."""
        try:
            return self.known().schema
        except NoLedgerError:
            return None

    def version_at(self, moment: datetime) -> int:
        """The version that was the newest at an instant; one without a zone is in UTC."""
        instant = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        created = self._entry(0).timestamp
        if instant < created:
            raise UnknownNameError(f"{self.name} was created at {created}: it has no version of {instant}")
        return self.newest_before(instant, self.snapshot().version)

    def newest_before(self, instant: datetime, newest: int) -> int:
        """The last version up to an instant, of those up to `newest`, or 0. Found by halving; the clocks of writers may
        differ a little."""
        low, high = 0, newest
        while low < high:
            middle = (low + high + 1) // 2
            if self._entry(middle).timestamp <= instant:
                low = middle
            else:
                high = middle - 1
        return low

    def entries(self, first: int, last: int) -> list[Entry]:
        """The entries of these versions, both included, fetched side by side."""
        return self.folder.map(self._entry, range(first, last + 1))

    def _refresh(self) -> FrameState:
        if self._state is None:
            self._state = self._load()
        else:
            with self._moving():
                self._catch_up(self._state)
        return self._state

    def _load(self) -> FrameState:
        """Seed, "Reading the Ledger": the newest checkpoint, then the entries after it."""
        start = self._newest_checkpoint()
        first = 0 if start is None else start.version + 1
        numbers = numbers_from(self.folder, LEDGER, first)
        if start is None and not numbers:
            raise NoLedgerError(
                f"{self.name} has no ledger at {self.folder.url(LEDGER)}: create the frame again, with the same schema",
                context={"operation": "read", "url": self.folder.url(LEDGER)},
            )
        missing = sorted(set(range(first, numbers[-1] + 1)) - set(numbers)) if numbers else []
        if missing:
            raise self._gone(missing[0])
        self._checkpoint_due = self._checkpoint_due or len(numbers) >= CHECKPOINT_EVERY
        return self._replay(start, self.folder.map(self._entry, numbers))

    def _replay(self, start: Checkpoint | None, entries: Iterable[Entry]) -> FrameState:
        waiting = list(entries)
        if start is None:
            created = waiting.pop(0)
            if not isinstance(created.action, CreateFrame):
                raise CorruptFrameError(
                    f"{self.folder.url(self._key(0))} must create the frame, and does not",
                    context={"operation": "read", "url": self.folder.url(self._key(0))},
                )
            start = Checkpoint(created.version, created.action.schema, created.action.partition_by, ())
        elif start.partition_by is None:
            first = self._entry(0).action
            start = with_partitioning(start, first.partition_by if isinstance(first, CreateFrame) else ())
        state = FrameState.of(start)
        for entry in waiting:
            state.apply(entry)
        return state

    def _catch_up(self, state: FrameState) -> None:
        """Take in what others committed since. One probe if there is nothing; else more and more at once."""
        ahead = 1
        while True:
            wanted = range(state.version + 1, state.version + 1 + ahead)
            found = self.folder.map(self._entry_if_there, wanted)
            for entry in found:
                if entry is None:
                    return
                state.apply(entry)
            ahead = min(ahead * 2, self.folder.concurrency)

    def _newest_checkpoint(self, at_most: int | None = None) -> Checkpoint | None:
        """The newest that can be read. One that a crash cut short is passed over: the entries are the truth."""
        for number in newest_first(self.folder, f"{LEDGER}/{CHECKPOINTS}", CHECKPOINT):
            if at_most is not None and number > at_most:
                continue
            key = self._checkpoint_key(number)
            try:
                found = decode(self.folder.get(key).data, self.folder.url(key), Checkpoint.from_json)
                if found.version == number:
                    return found
                problem: OntologiaError = CorruptFrameError(f"{key} says that it is version {found.version}")
            except (CorruptFrameError, ObjectNotFound) as error:
                problem = error
            self._checkpoint_due = True
            _log.warning("a checkpoint of %s is left out: %s", self.name, problem)
        return None

    def _entry(self, version: int) -> Entry:
        found = self._entry_if_there(version)
        if found is None:
            raise self._gone(version)
        return found

    def _entry_if_there(self, version: int) -> Entry | None:
        """An entry. Other writers create a file and then fill it, so one that cannot be read yet is read again."""
        key = self._key(version)
        waits = pauses(0.02, 0.2)
        for attempt in range(_PATIENCE):
            try:
                entry = decode(self.folder.get(key).data, self.folder.url(key), Entry.from_json)
            except ObjectNotFound:
                return None
            except CorruptFrameError:
                if attempt == _PATIENCE - 1:
                    raise
                self.clock.sleep(next(waits))
                continue
            if entry.version != version:
                raise CorruptFrameError(
                    f"{self.folder.url(key)} says that it is version {entry.version}",
                    context={"operation": "read", "url": self.folder.url(key)},
                )
            return entry
        raise AssertionError("unreachable")

    def _gone(self, version: int) -> CorruptFrameError:
        url = self.folder.url(self._key(version))
        return CorruptFrameError(
            f"version {version} is part of the history of {self.name}, and its ledger entry is gone: {url}. "
            "Restore it from a backup; nothing can be read or written without it",
            context={"operation": "read", "url": url},
        )

    # --- writing -------------------------------------------------------------------------------------------------

    def create(self, schema: FrameSchema, partition_by: tuple[str, ...]) -> None:
        """Write version 0, unless it is there."""
        entry = self._entry_for(0, CreateFrame(schema, partition_by), None)
        conditional_put(self.folder, self._key(0), entry.to_json(), etag=None, encode=encode, clock=self.clock)

    def create_if_missing(self, schema: FrameSchema, partition_by: tuple[str, ...]) -> None:
        """Write version 0 for somebody who was stopped before. A ledger that cannot be read is not a missing one."""
        try:
            self.known()
        except NoLedgerError:
            self.create(schema, partition_by)
        except CorruptFrameError:
            return  # said when it is read from, or written to

    def commit(self, propose: Propose, operation: str | None = None, ahead: Sequence[str] = ()) -> Entry:
        """Seed, "Commit Protocol": read the version, put the next one if nobody has, else look again and retry.

        `propose` is asked anew for every attempt, with the state it would be committed on, and raises if it cannot
        be. The cells it names are written before, at the paths `ahead`; only the entry is tried again.

        An error means that no entry names the cells and none will, so that they can be taken back, but for
        `CommitOutcomeUnknownError`. What fails once the entry is there is logged and raises nothing.
        """
        deadline = self.clock.steady() + COMMIT_BUDGET_S
        waits = pauses(0.001, 0.05)
        with self._lock:
            state = self._state or self._refresh()
            while True:
                entry = self._entry_for(state.version + 1, propose(state), operation)
                outcome = self._put_entry(entry, ahead)
                if isinstance(outcome, Committed):
                    self._settle(state, entry)
                    return entry
                with self._moving():
                    self._take_in(state, outcome)
                if self.clock.steady() > deadline:
                    raise ConcurrentWriteError(
                        f"{self.name}: other writers committed first for {COMMIT_BUDGET_S:g} s, the last of them "
                        f"version {state.version}. Nothing was committed: try again"
                    )
                self.clock.sleep(next(waits))

    def _put_entry(self, entry: Entry, ahead: Sequence[str]) -> Committed | Rejected:
        key = self._key(entry.version)
        try:
            return conditional_put(
                self.folder, key, entry.to_json(), etag=None, encode=encode, clock=self.clock, after=ahead
            )
        except OntologiaError:
            raise
        except Exception as problem:  # such as no memory, at any point of the way
            raise CommitOutcomeUnknownError(
                f"{self.name}: the commit of version {entry.version} was cut short ({problem!r}), and it is not known "
                f"whether {self.folder.url(key)} was written. Delete no cell; read the frame to see what it has"
            ) from problem

    def _settle(self, state: FrameState, entry: Entry) -> None:
        """The entry is there: nothing that goes wrong from here on makes the commit fail."""
        try:
            with self._moving():
                state.apply(entry)
            self._checkpoint_if_due(state)
        except Exception as problem:
            self._checkpoint_due = True
            _log.warning("%s stays without a checkpoint at version %d: %r", self.name, entry.version, problem)

    @contextmanager
    def _moving(self) -> Iterator[None]:
        """A state that was left between two versions, for whatever reason, is not kept: the next look reads it anew."""
        try:
            yield
        except BaseException:
            self._state = None
            raise

    def _take_in(self, state: FrameState, lost: Rejected) -> None:
        if lost.winner is not None:
            url = self.folder.url(self._key(state.version + 1))
            try:
                state.apply(Entry.from_json(lost.winner))
            except WRONG_SHAPE as problem:
                raise CorruptFrameError(f"{url} is malformed: {problem!r}", context={"url": url}) from problem
        self._catch_up(state)

    def _entry_for(self, version: int, action: Action, operation: str | None) -> Entry:
        now = datetime.fromtimestamp(self.clock.wall(), UTC)
        return Entry(version, now, self.node_id, action, operation)

    def _checkpoint_if_due(self, state: FrameState) -> None:
        """Seed, "Checkpointing". One that cannot be written is left to the next commit."""
        if state.version % CHECKPOINT_EVERY and not self._checkpoint_due:
            return
        self._put_checkpoint(state)
        self._checkpoint_due = False

    def write_checkpoint(self) -> None:
        """A checkpoint of the newest version, whatever its number."""
        with self._lock:
            self._put_checkpoint(self._refresh())

    def _put_checkpoint(self, state: FrameState) -> None:
        self.folder.put(self._checkpoint_key(state.version), encode(state.checkpoint().to_json()))

    def _checkpoint_key(self, version: int) -> str:
        return f"{LEDGER}/{CHECKPOINTS}/{CHECKPOINT}{number_text(version)}.json"

    def _key(self, version: int) -> str:
        return f"{LEDGER}/{number_text(version)}.json"
