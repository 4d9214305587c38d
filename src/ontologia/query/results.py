"""From rows to what was asked for: typed objects, paths, tables."""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ontologia.model import Declaration, Declared, Entity, Origin, Relation, TypeRef, TypeSchema, key_text
from ontologia.model.typespec import accepts_none
from ontologia.query.plan import Plan, Window

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.query.query import Made, QuerySource

T = TypeVar("T")
R = TypeVar("R")

HISTORY_FORGOTTEN = "history_forgotten"
"""The reason of a diagnostic: versions from before the commit at which history begins were given up."""


class Result(list[T]):
    """A list of results that also carries diagnostics (RFC 0009 §2.3)."""

    __slots__ = ("diagnostics",)

    def __init__(self, items: Iterable[T] = (), diagnostics: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(items)
        self.diagnostics = list(diagnostics)


@dataclass(frozen=True, slots=True)
class StoredTable:
    """The rows of one schema version, under the columns that it had; `schema` knows the name of the type then."""

    schema: TypeSchema
    schema_version_id: int
    table: pa.Table


@dataclass(frozen=True, slots=True)
class Path:
    """One way through a traversal: where it started, the relation of every step, and all entities on the way, the one
    where it started first."""

    source: Entity
    relations: list[Relation[Any, Any]] = field(default_factory=list)
    entities: list[Entity] = field(default_factory=list)

    @property
    def end(self) -> Entity:
        return self.entities[-1]


class Hydrator(Generic[T]):
    """Builds objects of one class from the columns of a result, without validating them again.

    Rows were validated when they were written, under the schema version that is read.
    """

    @classmethod
    def of(cls, declared: type[T], start: int = 0) -> Hydrator[T]:
        """The hydrator for a class whose columns begin at a position."""
        return _hydrator(declared, start)  # type: ignore[arg-type]

    def __init__(self, cls: type[T], start: int) -> None:
        declaration = cls.__declaration__  # type: ignore[attr-defined]
        self.cls = cls
        self.commit = start
        names: list[str] = []
        positions: list[int] = []
        if declaration.ref.kind == "relation":
            names += ["left_key", "right_key"]
            positions += [start + 1, start + 2]
            if declaration.instance_key is not None:
                names.append(declaration.instance_key)
                positions.append(start + 3)
            start += 3
        self._decoders: list[tuple[int, Callable[[Any], Any]]] = []
        self._defaults: list[tuple[int, Callable[[], Any]]] = []
        for number, column in enumerate(declaration.schema.columns, start + 1):
            if column.scalar is None:
                self._decoders.append((len(names), declaration.json_decoder(column.name)))
            if not declaration.options[column.name].required and not accepts_none(column.spec):
                self._defaults.append((len(names), partial(declaration.default_of, column.name)))
            names.append(column.name)
            positions.append(number)
        self._positions = positions
        self._made = _maker(cls, names)
        self.identity = (
            (self.commit, self.commit + 1, self.commit + 2, self.commit + 3)
            if declaration.ref.kind == "relation"
            else (self.commit, positions[names.index(declaration.primary_key or "")])
        )
        """The columns by which two rows are the same version of the same thing."""
        self.end = start + len(declaration.schema.columns) + 1

    def hydrate_shared(self, columns: Sequence[Sequence[Any]], origin: Origin) -> list[T]:
        """An object for each row; rows that are there several times, as in paths, have the same one."""
        if not columns:
            return []
        numbers: dict[tuple[Any, ...], int] = {}
        places = [
            numbers.setdefault(row, len(numbers))
            for row in zip(*(columns[position] for position in self.identity), strict=True)
        ]
        if len(numbers) == len(places):
            return self.objects(columns, origin=origin)
        first: dict[int, int] = {}
        for place, number in enumerate(places):
            first.setdefault(number, place)
        own = range(self.commit, self.end)
        distinct = [
            [columns[column][place] for place in first.values()] if column in own else () for column in range(self.end)
        ]
        objects = self.objects(distinct, origin=origin)
        return [objects[number] for number in places]

    def all_of(self, source: QuerySource, plan: Plan) -> Made[T]:
        """The objects of a plan. Its columns come and go in parts, while the objects that are made stay."""
        make = partial(self.objects, origin=source.origin(plan.window), removals=plan.shows_removals)
        return make_at_once(lambda asked: source.made_of(asked, make), plan)

    def objects(self, columns: Sequence[Sequence[Any]], *, origin: Origin, removals: bool = False) -> list[T]:
        """The objects of a result; with `removals`, its column after theirs says which of them are removals."""
        if not columns:
            return []
        found = make_at_once(partial(self._objects, origin), columns)
        if removals and any(columns[self.end]):
            set_removed = Declared.__dict__["__removed__"].__set__
            for obj, removed in zip(found, columns[self.end], strict=True):
                if removed:
                    set_removed(obj, True)
        return found

    def _objects(self, origin: Origin, columns: Sequence[Sequence[Any]]) -> list[T]:
        values = [columns[position] for position in self._positions]
        for place, decode in self._decoders:
            values[place] = [None if value is None else decode(value) for value in values[place]]
        for place, default in self._defaults:
            if None in values[place]:  # a row of Ontologia 0.3 that does not have the field
                values[place] = [default() if value is None else value for value in values[place]]
        return self._made(origin, columns[self.commit], *values)


def _maker(cls: type[T], names: Sequence[str]) -> Callable[..., list[T]]:
    """A function that makes objects from their commits and the columns of these fields.

    It is written for the class, as those of data classes are: with the names in its text, the fields of an object are
    made in one step, in less than half the time.
    """
    values = [f"v{number}" for number in range(len(names))]
    fields = ", ".join(f"{name!r}: {value}" for name, value in zip(names, values, strict=True))
    text = f"""
def made(origin, commits, {", ".join(f"{value}s" for value in values)}):
    found = []
    append = found.append
    for commit, {", ".join(values)} in zip(commits, {", ".join(f"{value}s" for value in values)}, strict=True):
        obj = new(cls)
        set_dict(obj, {{{fields}}})
        set_commit(obj, commit)
        set_origin(obj, origin)
        append(obj)
    return found
"""
    known: dict[str, Any] = {
        "__name__": __name__,
        "cls": cls,
        "new": object.__new__,
        "set_dict": Declared.__dict__["__dict__"].__set__,
        "set_commit": Declared.__dict__["__commit_id__"].__set__,
        "set_origin": Declared.__dict__["__origin__"].__set__,
    }
    exec(text, known)
    made: Callable[..., list[T]] = known["made"]
    return made


def make_at_once(make: Callable[[R], T], rows: R) -> T:
    """What `make` makes of rows. While many objects are made that all stay, the garbage collector would look at them
    again and again, and find nothing: it rests.

    No context manager: Ctrl-C on the way into its exit would leave the collector off for good. Of several threads, only
    one that found it running stops it, and starts it again.
    """
    was_running = gc.isenabled()
    try:
        if was_running:
            gc.disable()
        return make(rows)
    finally:
        if was_running:
            gc.enable()


@lru_cache(maxsize=512)
def _hydrator(cls: type[Any], start: int) -> Hydrator[Any]:
    return Hydrator(cls, start)


def place_ends(relations: Sequence[Any], lefts: Sequence[Entity], rights: Sequence[Entity]) -> None:
    """Give relations the entities they join."""
    set_left, set_right = Relation.__dict__["__left__"].__set__, Relation.__dict__["__right__"].__set__
    for relation, left, right in zip(relations, lefts, rights, strict=True):
        set_left(relation, left)
        set_right(relation, right)


def attach_endpoints(
    source: QuerySource, declaration: Declaration, relations: Sequence[Any], plan: Plan
) -> list[dict[str, Any]]:
    """Give every relation the entities it joins, as they were in the state that was read.

    One read per endpoint type. Where the rows are versions, each gets its endpoints as of its own commit. Returns what
    is to be said of the endpoints' types.
    """
    said: list[dict[str, Any]] = []
    if not relations:
        return said
    assert declaration.endpoints is not None
    window = plan.window
    reading = window if window.deduplicated else Window("history")
    for side, cls in zip(("left", "right"), declaration.endpoints, strict=True):
        place = Relation.__dict__[f"__{side}__"].__set__
        keys = {relation.__dict__[f"{side}_key"] for relation in relations}
        versions, diagnostics = _versions(source, cls, keys, plan.change(window=reading))
        # What was given up is said of the relations; in the first state that is left, so are the ends.
        base = next((item["base_commit_id"] for item in diagnostics if item["reason"] == HISTORY_FORGOTTEN), 0)
        said += [item for item in diagnostics if item not in said and item["reason"] != HISTORY_FORGOTTEN]
        for relation in relations:
            known = versions.get(relation.__dict__[f"{side}_key"])
            if known is None:
                place(relation, None)
            elif window.deduplicated:
                place(relation, known[-1])
            else:
                before = bisect_right(known, max(relation.__commit_id__, base), key=Declared._commit_id)
                end = known[before - 1] if before else None
                place(relation, None if getattr(end, "__removed__", False) else end)
    return said


def _versions(
    source: QuerySource, cls: type[Entity], keys: set[str], asked: Plan
) -> tuple[dict[str, list[Entity]], list[dict[str, Any]]]:
    import pyarrow as pa

    declaration = cls.__declaration__
    schemas = {declaration.ref: declaration.schema}
    plan = Plan(declaration.ref, schemas, asked.window, keyed=True, across=asked.across)
    wanted = pa.table({"entity_key": pa.array(sorted(keys), pa.string())})
    versions: dict[str, list[Entity]] = {}
    fetched = source.fetch(plan, wanted)
    hydrator = Hydrator.of(cls)
    for entity in hydrator.objects(fetched.columns, origin=source.origin(asked.window), removals=plan.shows_removals):
        key = key_text(entity.__dict__[declaration.primary_key or ""])
        versions.setdefault(key, []).append(entity)
    said = [_of_another_type(item, declaration.ref) for item in fetched.diagnostics]
    return versions, said


def _of_another_type(diagnostic: dict[str, Any], ref: TypeRef) -> dict[str, Any]:
    """A diagnostic of the type a plan was about, in a result about another one."""
    if diagnostic["reason"] not in ("commit_before_activation", "history_before_activation", "type_dropped"):
        return diagnostic
    return {"reason": diagnostic["reason"], "type": str(ref), **diagnostic}
