"""`Entity` and `Relation`: what people declare, and the rules a declaration must keep."""

from __future__ import annotations

import copy
import inspect
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Self, TypeVar, dataclass_transform

from ontologia.errors import MetadataUnavailableError
from ontologia.model.expressions import FieldExpr, Predicate, Side
from ontologia.model.fields import MISSING, Field, FieldOptions
from ontologia.model.schema import EarlierNames, FieldSchema, TypeRef, TypeSchema, check_name
from ontologia.model.typespec import build_type_spec, holds_tuples, json_native, render, scalar_of
from ontologia.model.validation import Validators, add_checks, row_adapter, value_adapter
from ontologia.model.values import json_decoder, key_text

if TYPE_CHECKING:
    from pydantic import TypeAdapter

KEY_SCALARS = ("str", "int", "date", "datetime")
UNIQUE_SCALARS = ("str", "int", "date", "datetime", "bytes")


@dataclass(frozen=True, slots=True)
class Meta:
    """Where a hydrated object came from. `removed` is set on a version of history that says that something went: it has
    the values that were there last."""

    commit_id: int
    type_name: str
    key: str | None = None
    left_key: str | None = None
    right_key: str | None = None
    instance_key: str | None = None
    removed: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """Which state an object was read from: the store and its branch, and whether it was a past state. `changed` says
    that fields were assigned since."""

    address: str
    past: bool = False
    changed: bool = False


class _Attribute:
    """A class attribute that is an expression on the class; instances keep their values in `__dict__`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type[Declared]) -> Any:
        if instance is not None:
            raise AttributeError(f"{owner.__name__} object has no value for {self.name!r}")
        return owner.__declaration__.expression(self.name)


class Declaration:
    """Everything known about a declared class: options at once, types as soon as their names can be resolved."""

    def __init__(
        self, cls: type[Declared], ref: TypeRef, options: dict[str, FieldOptions], names: Mapping[str, Any]
    ) -> None:
        self.cls = cls
        self.ref = ref
        self.options = options
        self.endpoints: tuple[type[Entity], type[Entity]] | None = None
        self.renamed_from: str | None = None
        self._names = names
        self._schema: TypeSchema | None = None
        self.validators = Validators(cls, [*options, *(("left_key", "right_key") if ref.kind == "relation" else ())])
        self._adapter: TypeAdapter[dict[str, Any]] | None = None
        self._expressions: dict[tuple[str, Side | None], FieldExpr[Any]] = {}
        self._value_adapters: dict[str, TypeAdapter[Any]] = {}

    @cached_property
    def primary_key(self) -> str | None:
        return next((name for name, options in self.options.items() if options.primary_key), None)

    @cached_property
    def instance_key(self) -> str | None:
        return next((name for name, options in self.options.items() if options.instance_key), None)

    @cached_property
    def identity_fields(self) -> tuple[str, ...]:
        """The fields that make an object this one, under the names that the class gives them."""
        if self.ref.kind == "relation":
            return ("left_key", "right_key", *([] if self.instance_key is None else [self.instance_key]))
        return () if self.primary_key is None else (self.primary_key,)

    @property
    def stored(self) -> dict[str, FieldOptions]:
        """The fields with columns of their own; keys of a relation are identity."""
        return {name: options for name, options in self.options.items() if not options.instance_key}

    @property
    def validates_rows(self) -> bool:
        """Whether a row must be seen as a whole to be valid: values alone do not tell."""
        return self.validators.of_rows

    def annotations(self) -> dict[str, Any]:
        hints = typing.get_type_hints(self.cls, localns=dict(self._names), include_extras=True)
        return {name: _unwrap(hints[name]) for name in self.options}

    def checked_annotations(self, *, in_row: bool = False) -> dict[str, Any]:
        """The annotations with all that the class demands of values; of single values, or `in_row` of a whole row."""
        found = self.annotations()
        if any(self.options[name].constraints for name in found):
            from pydantic import Field as Constraints

            for name, annotation in found.items():
                said = self.options[name].constraints
                found[name] = Annotated[annotation, Constraints(**said)] if said else annotation
        if self.validators:
            return {
                name: self.validators.extend(annotation, name, self._names, in_row=in_row)
                for name, annotation in found.items()
            }
        return found

    @property
    def schema(self) -> TypeSchema:
        if self._schema is None:
            self._schema = self._build_schema()
        return self._schema

    def _build_schema(self) -> TypeSchema:
        specs = {}
        for name, annotation in self.annotations().items():
            try:
                specs[name] = build_type_spec(annotation, names=self._names)
            except TypeError as problem:
                raise TypeError(f"{self.cls.__name__}.{name}: {problem}") from None
        for key, role, allowed in (
            (self.primary_key, "primary key", KEY_SCALARS),
            (self.instance_key, "instance key", ("str",)),
        ):
            if key is not None and specs[key].get("name") not in allowed:
                raise TypeError(f"{self.cls.__name__}.{key}: the {role} must be {' or '.join(allowed)}, and never None")
        fields = tuple(
            FieldSchema(name, specs[name], options.primary_key, options.index, options.dimensions, options.unique)
            for name, options in self.stored.items()
        )
        self._check_indexes(fields)
        self._check_unique(fields)
        if self.endpoints is None:
            return TypeSchema(self.ref, fields, earlier=self._earlier_names())
        left, right = (endpoint.__declaration__.ref.name for endpoint in self.endpoints)
        return TypeSchema(self.ref, fields, left, right, self.instance_key, earlier=self._earlier_names())

    def _earlier_names(self) -> EarlierNames:
        fields = {name: item.renamed_from for name, item in self.options.items() if item.renamed_from is not None}
        ends = [endpoint.__declaration__ for endpoint in self.endpoints or ()]
        renamed = {end.ref.name: end.renamed_from for end in ends if end.renamed_from is not None}
        return EarlierNames(self.renamed_from, fields, renamed)

    def _check_indexes(self, fields: tuple[FieldSchema, ...]) -> None:
        """Text is searched in text, and neighbours are found among lists of numbers."""
        for field in fields:
            scalar, _ = scalar_of(field.spec)
            if field.index == "fts" and scalar != "str":
                raise TypeError(f'{self.cls.__name__}.{field.name}: index="fts" is for text, not {render(field.spec)}')
            if field.index == "vector" and render(field.spec).removesuffix(" | None") != "list[float]":
                raise TypeError(
                    f'{self.cls.__name__}.{field.name}: index="vector" is for list[float], not {render(field.spec)}'
                )

    def _check_unique(self, fields: tuple[FieldSchema, ...]) -> None:
        """Values that are compared exactly: not numbers with a fraction, and no structures."""
        for field in fields:
            scalar, _ = scalar_of(field.spec)
            if field.unique and scalar not in UNIQUE_SCALARS:
                kinds, given = ", ".join(UNIQUE_SCALARS), render(field.spec)
                raise TypeError(f"{self.cls.__name__}.{field.name}: unique=True is for {kinds}, not {given}")

    @property
    def adapter(self) -> TypeAdapter[dict[str, Any]]:
        """Pydantic's validator for the class: keyword arguments in, a checked `__dict__` out."""
        return self._adapter or self.make_adapter()

    def make_adapter(self) -> TypeAdapter[dict[str, Any]]:
        """Make the validator now, if there is none yet."""
        if self._adapter is None:
            self._adapter = self._build_adapter()
        return self._adapter

    def _build_adapter(self) -> TypeAdapter[dict[str, Any]]:
        members: dict[str, tuple[Any, FieldOptions]] = {}
        if self.ref.kind == "relation":
            for name in ("left_key", "right_key"):
                key = self.validators.extend(str, name, self._names, in_row=True)
                members[name] = (add_checks(key, "endpoint_key"), FieldOptions())
        for name, annotation in self.checked_annotations(in_row=True).items():
            members[name] = (add_checks(annotation, self._scalar(name)), self.options[name])
        return row_adapter(self.cls.__name__, members, self._names, self.validators.of_row())

    def _scalar(self, name: str) -> str | None:
        if name in ("left_key", "right_key"):
            return "endpoint_key"
        return "instance_key" if name == self.instance_key else self.schema.by_name[name].scalar

    def value_adapter(self, name: str) -> TypeAdapter[Any]:
        """The validator of one field alone."""
        if name not in self._value_adapters:
            annotation = self.checked_annotations().get(name, str)
            self._value_adapters[name] = value_adapter(add_checks(annotation, self._scalar(name)), self._names)
        return self._value_adapters[name]

    def row_validators(self) -> dict[str, Any]:
        """Validators for fields whose values say more than their column's type does: structure or constraints."""
        annotations = self.checked_annotations()
        constrained = {name for name, annotation in annotations.items() if _is_constrained(annotation)}
        return {
            column.physical: self.value_adapter(column.name).validator
            for column in self.schema.columns
            if column.scalar is None or column.name in constrained
        }

    def default_of(self, name: str) -> Any:
        """A field's default, checked as every value is."""
        return self.value_adapter(name).validate_python(self.options[name].make_default())

    def json_decoder(self, name: str) -> Any:
        """A function from JSON text to the field's value."""
        native = json_native(self.schema.by_name[name].spec) and not holds_tuples(self.annotations()[name], self._names)
        return json_decoder() if native else self.value_adapter(name).validate_json

    def expression(self, name: str, side: Side | None = None) -> FieldExpr[Any]:
        found = self._expressions.get((name, side))
        if found is None:
            column = self.schema.by_name.get(name)
            found = self._expressions[name, side] = FieldExpr(self.ref, name, column, side=side)
        return found


def _unwrap(hint: Any) -> Any:
    """`Annotated[str, Field]` is how `Field[str]` looks at run time; other metadata stays."""
    if typing.get_origin(hint) is Annotated:
        inner, *metadata = typing.get_args(hint)
        kept = [item for item in metadata if item is not Field]
        return Annotated[inner, *kept] if kept else inner
    return hint


def _is_constrained(annotation: Any) -> bool:
    """Whether an annotation says more than a type: itself, or a member of its union."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(map(_is_constrained, typing.get_args(annotation)))
    return typing.get_origin(annotation) in (Annotated, typing.Literal)


@dataclass_transform(kw_only_default=True, field_specifiers=(Field, FieldOptions))
class Declared:
    """What entities and relations share: validated construction, value equality, and a way to expressions."""

    __slots__ = ("__checking__", "__commit_id__", "__dict__", "__origin__", "__removed__", "__weakref__")

    __declaration__: ClassVar[Declaration]

    def __init__(self, /, **values: Any) -> None:
        self.__dict__ = self.__declaration__.adapter.validator.validate_python(values)

    @classmethod
    def model_validate(cls, values: Mapping[str, Any]) -> Self:
        """Build from a mapping, with the same checks as the constructor."""
        return cls(**values)

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """What the constructor takes, as JSON Schema, with limits and descriptions."""
        return cls.__declaration__.adapter.json_schema()

    def model_dump(self) -> dict[str, Any]:
        """The values as plain Python data, a relation's keys among them: `model_validate` takes it back."""
        found: dict[str, Any] = self.__declaration__.adapter.dump_python(self.__dict__)
        return found

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """A copy, with other values where `update` has them, all of them checked. Of an object that was read, the copy
        was read at the same version."""
        copied = copy.copy(self)
        copied.__dict__ = self.__declaration__.adapter.validator.validate_python({**self.__dict__, **(update or {})})
        copied._note_change(self.__dict__)
        return copied

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__") and name.endswith("__"):  # slots, which copies and unpickled objects set
            object.__setattr__(self, name, value)
            return
        if name not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        before, declaration = dict(self.__dict__), self.__declaration__
        if getattr(self, "__checking__", False):  # in a model validator, which all of it is on its way through
            self.__dict__[name] = declaration.value_adapter(name).validator.validate_python(value)
            return
        checked = declaration.adapter.validator.validate_python({**before, name: value})
        self.__dict__.update(checked if declaration.validates_rows else {name: checked[name]})
        self._note_change(before)

    def _note_change(self, before: Mapping[str, Any]) -> None:
        """A past state that is changed is no longer a past state; under another key, an object is a new one."""
        origin: Origin | None = getattr(self, "__origin__", None)
        if origin is None:
            return
        values, declaration = self.__dict__, self.__declaration__
        if any(values[name] != before[name] for name in declaration.identity_fields):
            del self.__origin__, self.__commit_id__  # type: ignore[attr-defined]
        elif not origin.changed and values != before:
            object.__setattr__(self, "__origin__", Origin(origin.address, changed=True))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    def _commit_id(self) -> int:
        try:
            return self.__commit_id__  # type: ignore[attr-defined, no-any-return]
        except AttributeError:
            raise MetadataUnavailableError(
                f"this {type(self).__name__} was not read from a store, so it has no commit: query it first"
            ) from None

    def _is_removed(self) -> bool:
        return getattr(self, "__removed__", False)


class Entity(Declared):
    """A thing with identity. Subclass it and declare fields; exactly one is the primary key.

    >>> class Customer(Entity):
    ...     id: Field[str] = Field(primary_key=True)
    ...     name: Field[str]
    >>> Customer(id="c1", name="Alice")
    Customer(id='c1', name='Alice')
    """

    __slots__ = ()

    __entity_name__: ClassVar[str]
    __entity_fields__: ClassVar[Mapping[str, FieldOptions]]

    def __init_subclass__(cls, *, name: str | None = None, renamed_from: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        declaration = declare(cls, TypeRef("entity", name or cls.__name__), defining_names(), renamed_from)
        keys = [field for field, options in declaration.options.items() if options.primary_key]
        if len(keys) != 1:
            found = "none" if not keys else " and ".join(keys)
            raise TypeError(f"{cls.__name__}: an entity has exactly one primary key, found {found}")
        for field, options in declaration.options.items():
            if options.instance_key:
                raise TypeError(f"{cls.__name__}.{field}: instance_key is for relations; an entity has a primary_key")
        cls.__entity_name__ = declaration.ref.name
        cls.__entity_fields__ = declaration.options
        compile_now(declaration)

    def meta(self) -> Meta:
        """The commit this object was read at and its identity."""
        declaration = self.__declaration__
        key = key_text(self.__dict__[declaration.primary_key or ""])
        return Meta(Declared._commit_id(self), declaration.ref.name, key=key, removed=Declared._is_removed(self))


L = TypeVar("L", bound=Entity)
R = TypeVar("R", bound=Entity)


class Relation(Declared, Generic[L, R]):
    """A typed connection between two entities, by their keys: `class Sub(Relation[Customer, Product])`."""

    __slots__ = ("__left__", "__right__")

    __relation_name__: ClassVar[str]
    __relation_fields__: ClassVar[Mapping[str, FieldOptions]]

    if TYPE_CHECKING:
        left_key: Field[str]
        right_key: Field[str]

    def __init_subclass__(cls, *, name: str | None = None, renamed_from: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        declaration = declare(cls, TypeRef("relation", name or cls.__name__), defining_names(), renamed_from)
        declaration.endpoints = _endpoints(cls)
        keys = [field for field, options in declaration.options.items() if options.instance_key]
        for field, options in declaration.options.items():
            if options.primary_key:
                raise TypeError(f"{cls.__name__}.{field}: primary_key is for entities; a relation has endpoints")
            if options.instance_key and not options.required:
                raise TypeError(f"{cls.__name__}.{field}: an instance key is required, so it takes no default")
        if len(keys) > 1:
            raise TypeError(f"{cls.__name__}: at most one instance key, found {' and '.join(keys)}")
        cls.__relation_name__ = declaration.ref.name
        cls.__relation_fields__ = declaration.stored
        for field in ("left_key", "right_key"):
            setattr(cls, field, _Attribute(field))
        compile_now(declaration)

    @property
    def instance_key(self) -> str:
        """Tells parallel relations between the same endpoints apart; empty where none is declared."""
        name = self.__declaration__.instance_key
        return "" if name is None else self.__dict__[name]

    @property
    def left(self) -> L | None:
        """The left entity, when a query hydrated it."""
        return getattr(self, "__left__", None)

    @property
    def right(self) -> R | None:
        """The right entity, when a query hydrated it."""
        return getattr(self, "__right__", None)

    def meta(self) -> Meta:
        """The commit this object was read at and its identity."""
        return Meta(
            Declared._commit_id(self),
            self.__declaration__.ref.name,
            left_key=self.__dict__["left_key"],
            right_key=self.__dict__["right_key"],
            instance_key=self.instance_key if self.__declaration__.instance_key is not None else None,
            removed=Declared._is_removed(self),
        )


def meta(obj: Entity | Relation[Any, Any]) -> Meta:
    """`obj.meta()`, also for a class that has a field of that name."""
    return Entity.meta(obj) if isinstance(obj, Entity) else Relation.meta(obj)


def left(relation: type[Relation[Any, Any]]) -> Endpoint:
    """The left entity of a relation in a filter: `left(Sub).tier == "Gold"`."""
    return Endpoint(relation, "left")


def right(relation: type[Relation[Any, Any]]) -> Endpoint:
    """The right entity of a relation in a filter: `right(Sub).price > 10`."""
    return Endpoint(relation, "right")


class Endpoint:
    """The fields of a relation's endpoint, as expressions."""

    __slots__ = ("_declaration", "_side")

    def __init__(self, relation: type[Relation[Any, Any]], side: Side) -> None:
        declaration = getattr(relation, "__declaration__", None)
        if declaration is None or declaration.endpoints is None:
            raise TypeError(f"{side}() takes a relation class, not {relation!r}")
        self._side: Side = side
        self._declaration: Declaration = declaration.endpoints[side == "right"].__declaration__

    if TYPE_CHECKING:

        def is_missing(self) -> Predicate:
            """There is no such entity: it was removed, or never was. `left(Sub).is_missing()` finds what dangles."""

    def __getattr__(self, name: str) -> Any:
        if name in self._declaration.options:
            return self._declaration.expression(name, self._side)
        if name == "is_missing":  # a field of that name comes first
            return self._declaration.expression(self._declaration.primary_key or "", self._side).is_null
        raise AttributeError(f"{self._declaration.cls.__name__} has no field {name!r}")


_RESERVED = {"relation": {"left_key", "right_key", "left", "right", "instance_key"}, "entity": set[str]()}


def declare(
    cls: type[Declared], ref: TypeRef, names: Mapping[str, Any], renamed_from: str | None = None
) -> Declaration:
    """Collect the options of a class's own fields and of those it inherits."""
    try:
        check_name(ref.name, "a stored type")
        for name in inspect.get_annotations(cls):
            check_name(name, "a field")
    except ValueError as problem:
        raise TypeError(f"{cls.__name__}: {problem}") from None
    inherited = getattr(cls, "__declaration__", None)
    options: dict[str, FieldOptions] = dict(inherited.options) if inherited is not None else {}
    own = inspect.get_annotations(cls)
    for name, annotation in own.items():
        if _is_class_variable(annotation) or (name.startswith("__") and name.endswith("__")):
            continue
        if name in _RESERVED[ref.kind]:
            raise TypeError(f"{cls.__name__}.{name}: every relation has {name!r} already; choose another field name")
        value = cls.__dict__.get(name, MISSING)
        options[name] = value if isinstance(value, FieldOptions) else FieldOptions(value)
    for name, value in list(cls.__dict__.items()):
        if isinstance(value, FieldOptions) and name not in own:
            raise TypeError(f"{cls.__name__}.{name}: a field needs an annotation, such as {name}: Field[str] = …")
    for name in options:
        setattr(cls, name, _Attribute(name))
    _check_earlier_names(cls, ref, options, renamed_from)
    declaration = Declaration(cls, ref, options, {**(inherited._names if inherited else {}), **names})
    declaration.renamed_from = renamed_from
    cls.__declaration__ = declaration
    return declaration


def _check_earlier_names(
    cls: type[Declared], ref: TypeRef, options: Mapping[str, FieldOptions], renamed_from: str | None
) -> None:
    """An earlier name is one that is free now, and that one field at most had."""
    if renamed_from is not None and (not isinstance(renamed_from, str) or renamed_from in ("", ref.name)):
        raise TypeError(f"{cls.__name__}: renamed_from is the name that the type had before, not {renamed_from!r}")
    taken: dict[str, str] = {}
    for name, item in options.items():
        old = item.renamed_from
        if old is None:
            continue
        if not isinstance(old, str) or not old:
            raise TypeError(f"{cls.__name__}.{name}: renamed_from is the name that the field had before, not {old!r}")
        if old in options:
            raise TypeError(f"{cls.__name__}.{name}: renamed_from={old!r}, and there is a field {old!r} still")
        if old in taken:
            raise TypeError(f"{cls.__name__}: {taken[old]} and {name} cannot both be what {old!r} was before")
        taken[old] = name


def compile_now(declaration: Declaration) -> None:
    """Check types now if their names are known; a name that is declared later is looked up at first use."""
    try:
        _ = declaration.schema
    except NameError:
        return


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.startswith(("ClassVar", "typing.ClassVar"))
    return annotation is ClassVar or typing.get_origin(annotation) is ClassVar


def _endpoints(cls: type) -> tuple[type[Entity], type[Entity]]:
    for base in cls.__mro__:
        for generic in getattr(base, "__orig_bases__", ()):
            arguments = typing.get_args(generic)
            if typing.get_origin(generic) is Relation and len(arguments) == 2:
                if all(isinstance(argument, type) and issubclass(argument, Entity) for argument in arguments):
                    return arguments[0], arguments[1]
                raise TypeError(f"{cls.__name__}: a relation joins two entity classes, not {arguments!r}")
    raise TypeError(f"{cls.__name__}: say what it joins, as in class {cls.__name__}(Relation[Customer, Product])")


def defining_names() -> dict[str, Any]:
    """The local names around a class statement in a function, so that its annotations can use them."""
    frame = sys._getframe(2)
    return {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)
