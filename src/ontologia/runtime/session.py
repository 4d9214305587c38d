"""`Session`: a unit of work. `ensure` says what should be, `commit` makes it so."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

from ontologia.config import OntologiaConfig
from ontologia.engines.catalog import user_metadata
from ontologia.engines.dispatch import open_repository
from ontologia.engines.object_rows import identity_of
from ontologia.engines.repository import Repository
from ontologia.engines.transaction import removals_refused
from ontologia.errors import CommitOutcomeUnknownError, MetadataUnavailableError, OntologiaError, ValidationError
from ontologia.model import Declaration, Declared, Entity, Origin, Relation, TypeRef
from ontologia.model.values import abridge, encode_json
from ontologia.runtime.commit import WantedState, check_head, commit_state
from ontologia.runtime.events import open_event_store
from ontologia.runtime.events.records import StoredEvent, check_namespace
from ontologia.runtime.events.store import EventStore
from ontologia.runtime.events.types import Event
from ontologia.runtime.rows import RemovedRows, WantedRows, identity_from_key
from ontologia.runtime.store import Store, collect_declarations

if TYPE_CHECKING:
    from ontologia.runtime.events.feeds import CommitFeed
    from ontologia.runtime.events.loop import EventLoop
    from ontologia.runtime.events.schedules import Schedule

OnStale = Literal["error", "overwrite"]

_log = logging.getLogger(__name__)


class Session(Store):
    """Collects wanted state and commits it. As a context manager it commits on a clean exit and discards otherwise.

    >>> with Session("onto.db", entity_types=[Customer]) as session:          # doctest: +SKIP
    ...     session.ensure(Customer(id="c1", name="Alice"))

    `instance_metadata` describes the session where sessions that run are listed. A commit says the `namespace` of a
    session that was given one.

    An object that was read, and whose row somebody else has changed since, is refused with `StaleObjectError`;
    `on_stale="overwrite"` lets it replace what is there.
    """

    def __init__(
        self,
        datastore_uri: str | os.PathLike[str],
        namespace: str | None = None,
        *,
        entity_types: Iterable[type[Entity]] | None = None,
        relation_types: Iterable[type[Relation[Any, Any]]] | None = None,
        instance_metadata: Mapping[str, Any] | None = None,
        config: OntologiaConfig | None = None,
        on_stale: OnStale = "error",
    ) -> None:
        declarations = collect_declarations(entity_types, relation_types)
        if namespace is not None:
            check_namespace(namespace)
        _check_on_stale(on_stale)
        super().__init__(open_repository(datastore_uri, config=config, make_file=False), declarations)
        self._start(namespace, instance_metadata, on_stale, owns_repository=True)

    @classmethod
    def over(
        cls, repository: Repository, declarations: Mapping[TypeRef, Declaration], *, on_stale: OnStale = "error"
    ) -> Session:
        """A session on a repository that somebody else opened, and will close."""
        _check_on_stale(on_stale)
        session = cls.__new__(cls)
        Store.__init__(session, repository, declarations)
        session._start(None, None, on_stale, owns_repository=False)
        return session

    def _start(
        self,
        namespace: str | None,
        instance_metadata: Mapping[str, Any] | None,
        on_stale: OnStale,
        *,
        owns_repository: bool,
    ) -> None:
        self.on_stale = on_stale
        self.namespace = check_namespace(self.config.default_namespace if namespace is None else namespace)
        self._namespace_note = {} if namespace is None else {"namespace": namespace}
        self.instance_metadata = _check_description(instance_metadata)
        self._owns_repository = owns_repository
        self._metadata: dict[str, str] = {}
        self._wanted: dict[TypeRef, WantedRows] = {}
        self._rows_of: dict[type[Declared], WantedRows] = {}
        self._removed: dict[TypeRef, RemovedRows] = {}
        self._cause: dict[str, str] = {}
        self._is_repeated = False
        self._guard: Callable[[], None] | None = None
        self._loop: EventLoop | None = None

    def ensure(self, objects: Declared | Iterable[Declared], *, if_unchanged: bool = False) -> None:
        """Declare state: one entity or relation, or any number of them. The last word on an identity wins.

        With `if_unchanged`, the objects were read before, and their rows must still be as they were then, also where
        the session overwrites and where the objects are of a past state.
        """
        if isinstance(objects, Declared):
            self._want(objects, if_unchanged)
            return
        if isinstance(objects, (str, bytes, Mapping)) or not isinstance(objects, Iterable):
            raise TypeError(f"ensure() takes entities and relations, not {objects!r}")
        for obj in objects:
            self._want(obj, if_unchanged)

    def _want(self, obj: Declared, if_unchanged: bool) -> None:
        rows = self._rows_of.get(type(obj))
        if rows is None:
            rows = self._rows_of[type(obj)] = self._admit(obj)
        if if_unchanged or hasattr(obj, "__origin__"):
            is_ours, expected = self._expected_version(obj, if_unchanged)
            if is_ours:
                rows.add_read(obj, expected, changed=if_unchanged or getattr(obj, "__origin__").changed)  # noqa: B009
            else:
                rows.add(obj)
        else:
            rows.add(obj)
        if self._removed and rows.declaration.ref in self._removed:
            self._removed[rows.declaration.ref].forget(identity_of(obj))

    def _expected_version(self, obj: Declared, if_unchanged: bool = False) -> tuple[bool, int | None]:
        """Whether an object was read from this store, and the commit that its row must still be at, if any."""
        origin: Origin | None = getattr(obj, "__origin__", None)
        if origin is not None and origin.address == self.engine.address:
            is_checked = if_unchanged or (self.on_stale == "error" and not origin.past)
            return True, getattr(obj, "__commit_id__") if is_checked else None  # noqa: B009
        if if_unchanged and origin is not None:
            raise ValidationError(
                f"if_unchanged: {abridge(obj)} was read from {origin.address}, and this is {self.engine.address}; "
                "read it here first"
            )
        if if_unchanged:
            raise MetadataUnavailableError(
                f"if_unchanged: {abridge(obj)} was not read from a store, so it has no version: query it first"
            )
        return False, None

    def _admit(self, obj: Declared) -> WantedRows:
        """Where the rows of an object's class are collected; what does not belong here is refused."""
        if not isinstance(obj, Declared) or isinstance(obj, Event):
            hint = ": send an event with commit(event=…) or emit it" if isinstance(obj, Event) else ""
            raise TypeError(f"ensure() takes entities and relations, not {obj!r}{hint}")
        known = self._require_known(obj.__declaration__)
        return self._wanted.setdefault(known.ref, WantedRows(known))

    def _require_known(self, declaration: Declaration) -> Declaration:
        known = self._declarations.setdefault(declaration.ref, declaration)
        if known is not declaration and known.schema.fingerprint != declaration.schema.fingerprint:
            raise TypeError(f"two different classes are stored as {declaration.ref}: give one another name=")
        return known

    def remove(self, target: Declared | type[Declared], *keys: Any, cascade: bool = False) -> None:
        """Declare that something is no more: an object, or a class and the key of each.

        A relation is named by its ends, and its instance key if it has one: `remove(Knows, ("ann", "bob"))`. With
        `cascade`, the relations that end at a removed entity go too; else they stay, and dangle. What is not there is
        no mistake and writes nothing, and the last word on an identity wins. What was removed stays in history. An
        object that was read is removed as it was read: if its row was changed since, the commit is refused.
        Engines of version 1 keep every row, and refuse.

        >>> session.remove(Customer, "c1", "c2", cascade=True)          # doctest: +SKIP
        """
        cls = target if isinstance(target, type) else type(target)
        if not issubclass(cls, (Entity, Relation)) or cls in (Entity, Relation) or (keys and cls is not target):
            raise TypeError(f"remove() takes an entity or a relation, or a class of them and keys, not {target!r}")
        if cascade and not issubclass(cls, Entity):
            raise TypeError(f"cascade is for entities: nothing ends at {target!r}")
        if target is cls and not keys:
            raise TypeError(f"remove({cls.__name__}) names nothing: give the keys of those to remove")
        declaration = self._require_known(cls.__declaration__)
        if not self.engine.capabilities.removals:
            raise removals_refused(str(declaration.ref))
        removed = self._removed.setdefault(declaration.ref, RemovedRows(declaration))
        identities = [identity_from_key(declaration, key) for key in keys] or [identity_of(target)]  # type: ignore[arg-type]
        for identity in identities:
            removed.add(identity, cascade=cascade)
        if isinstance(target, Declared):
            is_ours, expected = self._expected_version(target)
            if is_ours:
                removed.add_read(target, expected)
        for identity in identities:
            if declaration.ref in self._wanted:
                self._wanted[declaration.ref].forget(identity)
        if cascade:
            for rows in self._wanted.values():
                rows.forget_ends(declaration.ref, {identity[0] for identity in identities})

    def add_commit_meta(self, key: str, value: str) -> None:
        """Put a note on the next commit."""
        self._metadata |= user_metadata({key: value})

    def commit(
        self,
        event: Event | Sequence[Event] | None = None,
        *,
        meta: Mapping[str, str] | None = None,
        if_head: int | None = None,
    ) -> int | None:
        """Write what differs from the store, as one commit. Returns its id, or None when nothing differs.

        When it fails, what was ensured stays pending, so that it can be tried again. An `event`, or several, go into
        the queue of the session's namespace if and only if the commit is made; where nothing differs, they go alone.

        With `if_head`, it is made only if that is still the newest commit, else it is a `HeadMismatchError`. Afterwards
        the objects that were read before are at the version that is stored now.
        """
        if if_head is not None and (isinstance(if_head, bool) or not isinstance(if_head, int)):
            raise TypeError(f"commit(if_head=…) takes a commit id, not {if_head!r}")
        if self._guard is not None:
            self._guard()
        events = [one.to_record(self.namespace) for one in _events(event)]
        metadata = self._namespace_note | self._cause | self._metadata | user_metadata(meta)
        pending = bool(self._wanted or self._removed)
        if events and pending:
            metadata |= self.events.announce(events, self.repository.get_head_commit_id)

        def within() -> None:
            if self._guard is not None:
                self._guard()
            if events:
                self.events.enqueue_within(events)

        commit_id = None
        if pending:
            wanted = {
                ref: WantedState(rows.declaration.schema, rows.table(), rows.read_objects())
                for ref, rows in self._wanted.items()
            }
            removed = {ref: rows.removals() for ref, rows in self._removed.items()}
            options: dict[str, Any] = {"if_head": if_head, "is_repeated": self._is_repeated}
            try:
                commit_id = commit_state(self.engine, wanted, metadata, removed=removed, within=within, **options)
            except CommitOutcomeUnknownError:
                self._is_repeated = True
                raise
        else:
            check_head(self.engine.catalog().head if if_head is not None else 0, if_head)
        if events:
            self._enqueue(events, commit_id)
        self.discard()
        if commit_id is not None:
            self.engine.tidy("commit")
        return commit_id

    def _enqueue(self, events: Sequence[StoredEvent], commit_id: int | None) -> None:
        """After the commit point, where nothing makes the call fail: what does not arrive now, the relay brings."""
        if commit_id is None:
            self.events.enqueue(events)
            return
        try:
            self.events.enqueue_after(events)
        except OntologiaError as problem:
            _log.warning("commit %d is done; its events will be queued by a session that runs: %s", commit_id, problem)

    def discard(self) -> None:
        """Forget what was ensured or removed and not committed."""
        self._wanted.clear()
        self._removed.clear()
        self._rows_of.clear()
        self._metadata.clear()
        self._is_repeated = False

    # --- events ---

    @contextmanager
    def guard(self, guard: Callable[[], None], cause: Mapping[str, str]) -> Iterator[None]:
        """Commits in the block ask `guard` first, and again just before the commit point; they say their `cause`."""
        self._guard, self._cause = guard, dict(cause)
        try:
            yield
        finally:
            self._guard, self._cause = None, {}

    @cached_property
    def events(self) -> EventStore:
        """The queue of this session's namespace."""
        return open_event_store(self.engine, self.namespace)

    def run(
        self,
        handlers: Sequence[Callable[..., Any]],
        schedules: Sequence[Schedule] | None = None,
        max_iterations: int | None = None,
        *,
        feeds: Sequence[CommitFeed] | None = None,
    ) -> int:
        """Handle the events of this session's namespace until `stop()`, Ctrl-C or SIGTERM; how many there were.

        With `max_iterations`, look for events so many times and return. Handlers run one after the other in this
        thread; run more sessions, here or elsewhere, to handle more at once.
        """
        from ontologia.runtime.events.loop import EventLoop

        if self._loop is not None:
            raise ValidationError("this session is running already: one session runs its handlers once")
        if self._wanted or self._removed:
            raise ValidationError("this session has state that is not committed: commit or discard it, then run")
        self._loop = EventLoop(self, self.events, handlers, schedules, feeds)
        try:
            return self._loop.run(max_iterations)
        finally:
            self._loop = None

    def stop(self) -> None:
        """End `run()` after the event that is being handled. May be called by a handler, or from another thread."""
        if self._loop is not None:
            self._loop.stop()

    def session(self) -> Self:
        """This session: an `Ontology` opens one, and a session is one already."""
        return self

    def close(self) -> None:
        """Let go of the store, if this session opened it. What was not committed is gone."""
        if self._owns_repository:
            super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        """Commit, or discard after an exception. The session stays open for the next block, until `close()`."""
        if problem[0] is None:
            self.commit()
        else:
            self.discard()


def _check_description(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a session says of itself to those who list sessions: anything that JSON can say."""
    try:
        return {_check_name(name): json.loads(encode_json(value)) for name, value in dict(metadata or {}).items()}
    except (TypeError, ValueError) as problem:
        raise ValidationError(f"instance_metadata is a mapping of names to JSON values: {problem}") from None


def _check_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is not a name")
    return name


def _check_on_stale(on_stale: object) -> None:
    if on_stale not in ("error", "overwrite"):
        raise ValidationError(f"on_stale is 'error' or 'overwrite', not {on_stale!r}")


def _events(given: Event | Sequence[Event] | None) -> list[Any]:
    found = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
    for event in found:
        if not isinstance(event, Event):
            raise TypeError(f"commit(event=…) takes an event, not {event!r}")
    return found
