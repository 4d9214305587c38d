"""One commit in the making: the protocol of writing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ontologia.engines.catalog import Catalog, SchemaVersion, TypeLayout
from ontologia.errors import RemovalsUnsupportedError, ValidationError
from ontologia.model import TypeRef, TypeSchema

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.engines.staging import Staging
    from ontologia.files.data_files import DataFile


class Transaction(ABC):
    """One commit in the making, under the write lock. Nothing is visible before `publish`."""

    catalog: Catalog
    unique_fields: ClassVar[bool] = False  #: whether it holds rows to what a schema says is unique

    @property
    @abstractmethod
    def commit_id(self) -> int:
        """The id this commit will have."""

    def keep(self) -> None:  # noqa: B027
        """Keep the transaction open after the calling function returns. Without this it is rolled back then."""

    @abstractmethod
    def current(self, schema: TypeSchema, keys: pa.Table) -> pa.Table:
        """The latest rows of these identities: identity, commit and fields, in one read."""

    @abstractmethod
    def scan(self, ref: TypeRef) -> Iterator[tuple[int, pa.Table]]:
        """The latest row of every identity as stored, in batches of one schema version each."""

    @abstractmethod
    def recorded(self, ref: TypeRef) -> list[SchemaVersion]:
        """The versions of a type's schema, with those of this transaction."""

    @abstractmethod
    def record(self, schema: TypeSchema, schema_version_id: int | None = None) -> int:
        """Write a schema down as a version of its type, the next one by default; the same again is that version."""

    @abstractmethod
    def activate(self, schema: TypeSchema, schema_version_id: int | None = None) -> TypeLayout:
        """Make a schema current from this commit on: for a new type, or as a new version of a known one."""

    def ensure_indexes(self, layout: TypeLayout, schema: TypeSchema) -> None:  # noqa: B027
        """Make the indexes that the schema asks for, in engines that have any."""

    def layout_for(self, schema: TypeSchema) -> TypeLayout:
        """Where rows of a type go. A new type becomes known; one whose class has new indexes gets them."""
        if schema.unique and not self.unique_fields:
            raise unique_refused(schema)
        layout = self.catalog.layouts.get(schema.ref)
        if layout is None:
            return self.activate(schema)
        if not set(schema.indexed) <= set(layout.schema.indexed):
            self.record(schema, layout.schema_version_id)
            self.ensure_indexes(layout, schema)
        return layout

    @abstractmethod
    def append(self, layout: TypeLayout, rows: pa.Table) -> None:
        """Add rows (identity and fields, as storage names them) to this commit."""

    @abstractmethod
    def staging(self, layout: TypeLayout) -> Staging:
        """Where others write rows of a type for this commit, and in which form. It can be sent to them."""

    @abstractmethod
    def adopt(self, layout: TypeLayout, parts: Sequence[DataFile]) -> None:
        """Make what was written into `staging` rows of this commit."""

    def remove(self, layout: TypeLayout, rows: pa.Table) -> None:
        """Take rows in force away, in engines that can: the state has them no more, the history does.

        They come as `current` gives them, and before the rows of their type that are appended.
        """
        raise removals_refused(str(layout.ref))

    @abstractmethod
    def drop(self, ref: TypeRef, *, purge: bool) -> None:
        """Make a type's rows unreachable; `purge` also deletes what is stored of it."""

    @abstractmethod
    def publish(self, metadata: Mapping[str, Any]) -> int:
        """The commit point: all of it becomes visible, or none. Returns the commit id.

        A commit has one row of an identity at most: one that writes it twice, or writes and removes it, is refused.
        """


def dropped_type_error(ref: TypeRef) -> ValidationError:
    return ValidationError(f"{ref} was dropped; it takes no new rows. Declare it under another name")


def removals_refused(what: str) -> ValidationError:
    return RemovalsUnsupportedError(
        f"{what} cannot be removed here: engine v1 keeps every row. Move the data to a store of engine v2 with onto "
        "export and onto import, or say in a field what is over"
    )


def written_twice(ref: TypeRef, identity: Sequence[str] | None) -> ValidationError:
    """What is said of an identity that a commit would have two rows of; None where nobody knows which it is."""
    named = "an identity" if identity is None else repr("/".join(filter(None, identity)))
    return ValidationError(
        f"{ref}: {named} would be written or removed twice in one commit, which has one row of each at most. Nothing "
        "was written: look for it in what is loaded, and load it once"
    )


def unique_refused(schema: TypeSchema) -> ValidationError:
    names = ", ".join(f"{schema.ref.name}.{name}" for name in schema.unique)
    return ValidationError(f"{names}: only a graph holds fields to unique=True; leave it out for this store")
