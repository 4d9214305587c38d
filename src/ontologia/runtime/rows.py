"""What a session was told, as one Arrow table per type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ontologia.engines.object_rows import identity_of, identity_of_values, table_of, transpose
from ontologia.errors import ValidationError
from ontologia.model import Declaration, Declared, TypeRef, key_text
from ontologia.model.columns import Column
from ontologia.model.keys import parse_identity
from ontologia.model.typespec import ambiguous
from ontologia.model.values import abridge, copy_nested
from ontologia.runtime.removals import Removals
from ontologia.runtime.staleness import Identity, ReadObjects

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T", bound=Declared)


def identity_from_key(declaration: Declaration, key: Any) -> tuple[str, ...]:
    """An identity from what a caller calls a key: a value, or for a relation its ends and instance key."""
    ends = [end.__declaration__.schema for end in declaration.endpoints or ()]
    return parse_identity(declaration.schema, key, ends)


class WantedRows:
    """The rows of one type that a session was given, column by column. The last row of an identity wins.

    No Python object is kept per row: a hundred thousand of them would set off full garbage collections.
    """

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration
        self._primary_key = declaration.primary_key
        self._places: dict[Any, int] = {}
        self._columns: list[list[Any]] = [[] for _ in declaration.schema.names]
        self._appends = [
            (name, column.append)
            for name, column in zip(declaration.schema.names, self._columns, strict=True)
            if declaration.schema.by_name[name].scalar is not None
        ]
        self._structured = [
            (name, check, self._columns[declaration.schema.names.index(name)].append)
            for name, check in structured_checks(declaration)
        ]
        self._validate = declaration.adapter.validator.validate_python if declaration.validates_rows else None
        self._count = 0
        self._read: dict[int, Declared] = {}
        self._expected: dict[int, int] = {}
        self._changed: set[int] = set()

    def add(self, obj: Declared) -> None:
        """Take the values as they are now: an object that is changed afterwards declares nothing new."""
        values = obj.__dict__ if self._validate is None else self._validate(dict(obj.__dict__))
        identity = (
            identity_of_values(self.declaration, values)
            if self._primary_key is None
            else key_text(values[self._primary_key])
        )
        try:
            for name, check, append in self._structured:
                append(check(values[name]))
        except ValueError:
            for column in self._columns:
                del column[self._count :]
            raise _refusal(self.declaration, values) from None
        for name, append in self._appends:
            append(values[name])
        self._places[identity] = self._count
        self._count += 1

    def add_read(self, obj: Declared, expected: int | None, *, changed: bool) -> None:
        """Take an object that was read from this store; its row must still be at the expected commit, if any."""
        self.add(obj)
        self._read[self._count - 1] = obj
        if expected is not None:
            self._expected[self._count - 1] = expected
            if changed:
                self._changed.add(self._count - 1)

    def read_objects(self) -> ReadObjects:
        """The objects whose values count, of those that were read."""
        if not self._read:
            return ReadObjects()
        read, expected = self._read, self._expected
        return ReadObjects(
            {identity: read[place] for identity, place in self._places.items() if place in read},
            {identity: expected[place] for identity, place in self._places.items() if place in expected},
            {identity for identity, place in self._places.items() if place in self._changed},
        )

    def forget(self, identity: tuple[str, ...]) -> None:
        """Take back what was said of an identity."""
        self._places.pop(identity if self._primary_key is None else identity[0], None)

    def forget_ends(self, entity: TypeRef, keys: set[str]) -> None:
        """Take back what was said of relations that end at these entities."""
        schema = self.declaration.schema
        places = [place for place, end in enumerate((schema.left, schema.right)) if end == entity.name]
        for identity in [it for it in self._places if any(it[place] in keys for place in places)]:
            del self._places[identity]

    def table(self) -> pa.Table:
        identities, columns = list(self._places), self._columns
        if len(identities) < self._count:
            last = self._places.values()
            columns = [[column[place] for place in last] for column in columns]
        if self._primary_key is not None:
            return table_of(self.declaration, [identities], columns)
        return table_of(self.declaration, transpose(identities, len(self.declaration.ref.identity)), columns)


def structured_checks(declaration: Declaration) -> list[tuple[str, Callable[[Any], Any]]]:
    """For each structured field, a function from its value to one that is valid and nobody else's.

    Lists and dicts can be changed in place, unseen by their object, before it is handed over and after.
    """
    return [
        (column.name, _check_and_copy(declaration, column))
        for column in declaration.schema.columns
        if column.scalar is None
    ]


def _check_and_copy(declaration: Declaration, column: Column) -> Callable[[Any], Any]:
    """Pydantic copies what it looks into, and hands on what may be anything."""
    check: Callable[[Any], Any] = declaration.value_adapter(column.name).validator.validate_python
    return (lambda value: copy_nested(check(value))) if ambiguous(column.spec) else check


def snapshot_of(obj: T, checks: Sequence[tuple[str, Callable[[Any], Any]]]) -> T:
    """An object with the values that one has now, whatever becomes of it; `checks` are those of its class."""
    declaration, values = obj.__declaration__, dict(obj.__dict__)
    if declaration.validates_rows:
        values = declaration.adapter.validator.validate_python(values)
    try:
        for name, check in checks:
            values[name] = check(values[name])
    except ValueError:
        raise _refusal(declaration, values) from None
    copy = object.__new__(type(obj))
    copy.__dict__ = values
    return copy


def _refusal(declaration: Declaration, values: Mapping[str, Any]) -> ValidationError:
    """Which value is wrong, and how."""
    from pydantic import ValidationError as Problems

    for name, check in structured_checks(declaration):
        try:
            check(values[name])
        except Problems as found:
            first = found.errors(include_url=False)[0]
            where = ".".join(map(str, (declaration.ref, name, *first["loc"])))
            return ValidationError(f"{where}: {first['msg']}, and it is {abridge(first['input'])}")
    raise AssertionError("a value was refused, and is taken now")


class RemovedRows:
    """The identities of one type that a session was told are no more."""

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration
        self._identities: dict[tuple[str, ...], None] = {}
        self._cascading: dict[str, None] = {}
        self._read: dict[tuple[str, ...], tuple[Declared, int | None]] = {}

    def add_read(self, obj: Declared, expected: int | None) -> None:
        """Remember of an object that is to go where it was read; its row must still be at the expected commit."""
        self._read[identity_of(obj)] = (obj, expected)

    def add(self, identity: tuple[str, ...], *, cascade: bool = False) -> None:
        """`cascade` takes relations along, also where it was said before and not again."""
        self._identities[identity] = None
        self._read.pop(identity, None)
        if cascade:
            self._cascading[identity[0]] = None

    def forget(self, identity: tuple[str, ...]) -> None:
        """It shall be there after all. Relations that were to go with it still go: those to come are ensured anew."""
        self._identities.pop(identity, None)

    def removals(self) -> Removals:
        """All that was said, as a commit takes it."""
        keys = identity_table(self.declaration.ref, list(self._identities))
        read = ReadObjects()
        for identity, (obj, expected) in self._read.items():
            if identity in self._identities:
                key: Identity = identity if len(identity) > 1 else identity[0]
                read.objects[key] = obj
                if expected is not None:
                    read.expected[key] = expected
        return Removals(self.declaration.schema, keys, list(self._cascading), read)


def identity_table(ref: TypeRef, identities: Sequence[Sequence[str]]) -> pa.Table:
    """The identity columns alone."""
    import pyarrow as pa

    columns = transpose(identities, len(ref.identity))
    return pa.table({name: pa.array(keys, pa.string()) for name, keys in zip(ref.identity, columns, strict=True)})
