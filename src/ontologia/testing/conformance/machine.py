"""The life of a store as a state machine: commits, removals, questions, reopening, compaction, vacuum, migrations,
drops, and history that is given up, beside the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ontologia.errors import ValidationError
from ontologia.model import Declared, Entity, Field, Predicate, Relation, TypeRef, left, right
from ontologia.query.builder import QueryRoot
from ontologia.runtime.drop import DropPreview
from ontologia.runtime.migration import MigrationResult
from ontologia.runtime.session import Session
from ontologia.testing.conformance.answers import make_plain, take_answer
from ontologia.testing.conformance.case import EngineCase, StoreUnderTest
from ontologia.testing.conformance.forgetting import forget
from ontologia.testing.reference import ReferenceStore

KEYS = st.sampled_from(("a", "b", "c"))
MODES = st.sampled_from(("as_of", "history_since", "with_history"))
Row = dict[str, Any]


class Counted(Entity, name="Account"):
    """A first shape of the type that migrates."""

    id: Field[str] = Field(primary_key=True)
    n: Field[int] = Field(default=0)


class Noted(Entity, name="Account"):
    """A second shape: one more field, reached without an upgrader from the first."""

    id: Field[str] = Field(primary_key=True)
    n: Field[int] = Field(default=0)
    note: Field[str | None] = Field(default=None, index=True)


class Worded(Entity, name="Account"):
    """A third shape: a field of another type."""

    id: Field[str] = Field(primary_key=True)
    n: Field[str]
    tags: Field[list[int]] = Field(default_factory=list)


class Other(Entity):
    """A type that may be dropped."""

    id: Field[str] = Field(primary_key=True)
    n: Field[int] = Field(default=0)


class Link(Relation[Other, Other]):
    """A relation that may be dropped with its ends."""

    slot: Field[str] = Field(instance_key=True)
    n: Field[int] = Field(default=0)


LINK = Link.__declaration__.ref
SHAPES: tuple[type[Any], ...] = (Counted, Noted, Worded)


def _upgrade(shape: type[Any]) -> Callable[[Row], Row]:
    def step(row: Row) -> Row:
        number = row["n"]
        if shape is Worded:
            return {"id": row["id"], "n": str(number), "tags": [len(str(number))]}
        return {"id": row["id"], "n": int(number)}

    return step


def _look_back(
    root: QueryRoot,
    start: str,
    cls: type[Any],
    mode: str,
    commit: int,
    steps: Mapping[tuple[str, int], Callable[[Row], Row]] | None = None,
    where: Sequence[Predicate] = (),
) -> Any:
    query = getattr(root, start)(cls).where(*where)
    query = query.with_history() if mode == "with_history" else getattr(query, mode)(commit)
    return (query if steps is None else query.across_versions(steps)).collect()


class StoreMachine(RuleBasedStateMachine):
    """Does to a store and to the reference model the same, and compares them after every step."""

    def __init__(self, engine: EngineCase) -> None:
        super().__init__()
        self._engine = engine
        self._stack = ExitStack()
        self.reference = ReferenceStore()
        self.shape: type[Any] = Counted
        self.steps: dict[tuple[str, int], Callable[[Row], Row]] = {}

    @initialize()
    def create(self) -> None:
        self.store: StoreUnderTest = self._stack.enter_context(self._engine.create_store())
        self.session: Session = self._open()

    def _open(self) -> Session:
        return self.store.session(self.shape, Other, Link)

    # --- what happens ---

    def _commit(self, objects: list[Declared]) -> None:
        self.session.ensure(objects)
        if {obj.__declaration__.ref for obj in objects} & self.reference.dropped:
            try:
                self.session.commit()
            except ValidationError:
                self.session.discard()
                return
            raise AssertionError("a dropped type took new rows")
        assert self.session.commit() == self.reference.commit(objects)

    @rule(rows=st.lists(st.tuples(KEYS, st.integers(0, 2)), min_size=1, max_size=3))
    def commit_accounts(self, rows: list[tuple[str, int]]) -> None:
        number: type = str if self.shape is Worded else int
        self._commit([self.shape(id=key, n=number(n)) for key, n in rows])

    @rule(rows=st.lists(st.tuples(KEYS, st.integers(0, 2)), min_size=1, max_size=3))
    def commit_others(self, rows: list[tuple[str, int]]) -> None:
        self._commit([Other(id=key, n=n) for key, n in rows])

    @rule(rows=st.lists(st.tuples(KEYS, KEYS, st.integers(0, 1)), min_size=1, max_size=3))
    def commit_links(self, rows: list[tuple[str, str, int]]) -> None:
        self._commit([Link(left_key=one, right_key=other, slot="s", n=n) for one, other, n in rows])

    @precondition(lambda self: self.session.engine.capabilities.removals)
    @rule(keys=st.lists(KEYS, min_size=1, max_size=2, unique=True), kept=KEYS, others=st.booleans())
    def remove(self, keys: list[str], kept: str, others: bool) -> None:
        """Entities go, and in the same commit one comes or stays."""
        cls: type[Any] = Other if others else self.shape
        ref = cls.__declaration__.ref
        if ref in self.reference.dropped:
            return
        stays = cls(id=kept, n="7" if cls is Worded else 7)
        self.session.remove(cls, *keys)
        self.session.ensure(stays)
        gone = [(ref, (key,)) for key in keys if key != kept]
        assert self.session.commit() == self.reference.commit([stays], gone)

    @precondition(lambda self: self.session.engine.capabilities.removals)
    @rule(ends=st.lists(st.tuples(KEYS, KEYS), min_size=1, max_size=4, unique=True))
    def remove_links(self, ends: list[tuple[str, str]]) -> None:
        if LINK in self.reference.dropped:
            return
        self.session.remove(Link, *((*pair, "s") for pair in ends))
        assert self.session.commit() == self.reference.commit([], [(LINK, (*pair, "s")) for pair in ends])

    @precondition(lambda self: self.session.engine.capabilities.object_storage)
    @rule(vacuum=st.booleans())
    def compact(self, vacuum: bool) -> None:
        self.session.repository.compact(apply=True)
        if vacuum:
            self.session.repository.vacuum(0, apply=True, compacted=True)

    @precondition(lambda self: self.session.engine.capabilities.forgetting and self.reference.head)
    @rule(back=st.integers(0, 8))
    def forget(self, back: int) -> None:
        forget(max(self.reference.head - back, self.reference.base, 1), self.session, self.reference)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.session = self._open()

    @rule(shape=st.sampled_from(SHAPES), through_token=st.booleans())
    def migrate(self, shape: type[Any], through_token: bool) -> None:
        self.shape = shape
        self.session = self._open()
        layout = self.reference.layouts.get(shape.__declaration__.ref)
        steps = {} if layout is None else {("Account", layout.version): _upgrade(shape)}
        self.steps |= steps
        how: dict[str, Any] = {"force": True}
        if through_token:
            preview: Any = self.session.migrate(upgraders=steps)
            how = {"token": preview.token}
        before = self.reference.head
        found = self.session.migrate(dry_run=False, upgraders=steps, allow_discard=True, **how)
        assert isinstance(found, MigrationResult)
        self.reference.migrate([shape.__declaration__], steps)
        assert found.commit_id == (None if self.reference.head == before else self.reference.head)

    @precondition(lambda self: TypeRef("entity", "Other") in self.reference.layouts)
    @rule(purge=st.booleans())
    def drop_others(self, purge: bool) -> None:
        preview = self.session.drop_types(["Other"], cascade_relations=True, purge_history=purge)
        assert isinstance(preview, DropPreview)
        commit_id = self.session.drop_types(
            ["Other"], cascade_relations=True, purge_history=purge, dry_run=False, token=preview.token
        )
        assert commit_id == self.reference.drop(preview.types, purge=purge)

    # --- what must hold ---

    @rule(commit=st.integers(0, 12), mode=MODES, across=st.booleans())
    def look_back(self, commit: int, mode: str, across: bool) -> None:
        steps = self.steps if across and self.session.engine.capabilities.past_versions else None
        for start, cls in (("entities", self.shape), ("entities", Other), ("relations", Link)):
            self._compare(partial(_look_back, start=start, cls=cls, mode=mode, commit=commit, steps=steps))

    @rule(commit=st.integers(0, 12), mode=MODES, n=st.integers(0, 2))
    def ask_about_ends(self, commit: int, mode: str, n: int) -> None:
        for test in (left(Link).n == n, ~(right(Link).n == n), left(Link).is_missing()):
            self._compare(partial(_look_back, start="relations", cls=Link, mode=mode, commit=commit, where=(test,)))

    def _compare(self, ask: Callable[[QueryRoot], Any]) -> None:
        found, expected = (take_answer(partial(ask, asked.query())) for asked in (self.session, self.reference))
        assert make_plain(found) == make_plain(expected)
        assert getattr(found, "diagnostics", None) == getattr(expected, "diagnostics", None)

    @rule()
    def follow_links(self) -> None:
        found, expected = (
            root.entities(Other).via(Link).via(Link).with_history().collect()
            for root in (self.session.query(), self.reference.query())
        )
        assert make_plain(found) == make_plain(expected)

    @invariant()
    def every_type_has_the_history_of_the_reference_model(self) -> None:
        if not hasattr(self, "session"):
            return
        for start, cls in (("entities", self.shape), ("entities", Other), ("relations", Link)):
            found, expected = (
                (getattr(root, start)(cls).collect(), getattr(root, start)(cls).with_history().collect())
                for root in (self.session.query(), self.reference.query())
            )
            assert make_plain(found) == make_plain(expected)

    @invariant()
    def the_log_is_that_of_the_reference_model(self) -> None:
        if not hasattr(self, "session"):
            return
        assert [entry["id"] for entry in self.session.list_commits(limit=None)] == [*range(self.reference.head, 0, -1)]
        head = self.reference.head
        assert self.session.list_commit_changes(head) == self.reference.list_commit_changes(head)
        base = self.reference.base
        assert take_answer(lambda: self.session.list_commit_changes(base)) == take_answer(
            lambda: self.reference.list_commit_changes(base)
        )

    def teardown(self) -> None:
        self._stack.close()
