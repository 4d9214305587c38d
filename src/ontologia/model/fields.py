"""`Field`: how a field is declared. `Field[str]` annotates, `Field(primary_key=True)` says more about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, overload

from ontologia.model.expressions import FieldExpr

T = TypeVar("T")

IndexKind = Literal["btree", "bitmap", "fts", "vector"]
INDEX_KINDS = ("btree", "bitmap", "fts", "vector")


class _Missing:
    def __repr__(self) -> str:
        return "<required>"


MISSING: Any = _Missing()


class FieldOptions:
    """What a declaration says about a field besides its type."""

    __slots__ = (
        "constraints",
        "default",
        "default_factory",
        "dimensions",
        "index",
        "instance_key",
        "primary_key",
        "renamed_from",
        "unique",
    )

    def __init__(
        self,
        default: Any = MISSING,
        *,
        default_factory: Callable[[], Any] | None = None,
        primary_key: bool = False,
        instance_key: bool = False,
        index: bool | IndexKind = False,
        dimensions: int | None = None,
        unique: bool = False,
        renamed_from: str | None = None,
        description: str | None = None,
        ge: Any = None,
        gt: Any = None,
        le: Any = None,
        lt: Any = None,
        multiple_of: float | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        pattern: str | None = None,
    ) -> None:
        if default is not MISSING and default_factory is not None:
            raise TypeError("a field takes default or default_factory, not both")
        if not isinstance(index, bool) and index not in INDEX_KINDS:
            raise TypeError(f"index is True, False or one of {', '.join(INDEX_KINDS)}, not {index!r}")
        if (index == "vector") != (dimensions is not None):
            raise TypeError('index="vector" comes with dimensions=, the length that every vector has, and only it does')
        self.default = default
        self.default_factory = default_factory
        self.primary_key = primary_key
        self.instance_key = instance_key
        self.index = index
        self.dimensions = dimensions
        self.unique = unique
        self.renamed_from = renamed_from
        limits = {"ge": ge, "gt": gt, "le": le, "lt": lt, "multiple_of": multiple_of}
        lengths = {"min_length": min_length, "max_length": max_length, "pattern": pattern}
        said = {"description": description, **limits, **lengths}
        self.constraints = {name: value for name, value in said.items() if value is not None}
        """What Pydantic's own `Field` is told."""

    @property
    def required(self) -> bool:
        return self.default is MISSING and self.default_factory is None

    def make_default(self) -> Any:
        return self.default_factory() if self.default_factory is not None else self.default

    def __repr__(self) -> str:
        said = {name: getattr(self, name) for name in self.__slots__}
        said |= said.pop("constraints")
        shown = (f"{name}={value!r}" for name, value in said.items() if value is not MISSING)
        return f"Field({', '.join(text for text in shown if not text.endswith(('=None', '=False')))})"


if TYPE_CHECKING:

    class Field(FieldOptions, Generic[T]):
        """Seen by a type checker: a class gives the expression, an instance the value."""

        @overload
        def __get__(self, instance: None, owner: type) -> FieldExpr[T]: ...
        @overload
        def __get__(self, instance: object, owner: type) -> T: ...
        def __get__(self, instance: object | None, owner: type) -> Any: ...
        def __set__(self, instance: object, value: T) -> None: ...

else:

    class Field(FieldOptions):
        """Declare a field: `age: Field[int] = Field(default=0, index=True)`; a bare value is a default.

        `primary_key` marks an entity's identity, `instance_key` tells parallel relations between the same
        endpoints apart, `index` asks the engine for an index that queries use. A graph knows kinds of them: "btree",
        "bitmap", "fts" for text that is searched, and "vector", with `dimensions`, for nearest neighbours; it also
        holds rows to `unique`: no two have the same value, however they came to be there. Null does not count.
        `renamed_from` is what the field was called before: a migration carries its values over. `ge`, `gt`, `le`,
        `lt`, `multiple_of`, `min_length`, `max_length` and `pattern` limit its values as Pydantic's do, and
        `description` says what it is.
        """

        __slots__ = ()

        def __class_getitem__(cls, item: Any) -> Any:
            return Annotated[item, cls]
