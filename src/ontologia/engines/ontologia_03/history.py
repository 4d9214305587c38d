"""The past of a store of 0.3.

Its rows lie by identity, not by commit, so each schema version is translated into a table and read from there in order.
A version that 0.3 recorded only to say the same in more words is one with the version before it, as when it is read. Of
a type that was dropped, 0.3 keeps no schema: its rows stay behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from ontologia.engines.catalog import Commit, SchemaVersion
from ontologia.engines.history import Declared, History, Past
from ontologia.engines.ontologia_03.rows import arrow_schema, tables
from ontologia.engines.ontologia_03.schemas import agrees
from ontologia.engines.ontologia_03.source import Source, StoredVersion
from ontologia.errors import StorageBackendError
from ontologia.model import COMMIT_ID, TypeRef

if TYPE_CHECKING:
    from ontologia.files.duck import Duck


class History03(History):
    """The past of a store of 0.3, through its source."""

    def __init__(self, source: Source, duck: Duck, declared: Declared) -> None:
        self._source = source
        self._duck = duck
        self._declared = declared

    def past(self) -> Past:
        migrations = self._source.migrations()
        versions: list[SchemaVersion] = []
        for group in self._groups():
            last = group[-1]
            numbers = [version.number for version in group]
            noted = [migrations[last.ref, number] for number in numbers if (last.ref, number) in migrations]
            activation = min(noted, default=self._source.first_commit(last.ref, numbers)) or None
            versions += [self._read_version(version, activation if version is last else None) for version in group]
        return Past(self._source.head(), versions)

    def commits(self, after: int, up_to: int) -> Iterator[Commit]:
        return reversed([commit for commit in self._source.commits() if after < commit.id <= up_to])

    def rows(self, version: SchemaVersion, after: int, up_to: int) -> Iterator[pa.Table]:
        numbers = next(
            [member.number for member in group]
            for group in self._groups()
            if (group[-1].ref, group[-1].number) == (version.ref, version.schema_version_id)
        )
        stored = self._source.rows(version.ref, numbers, after, up_to)
        found = tables(self._source.where, version.schema, stored)
        complete = (self._complete(version, table) for table in found)
        order = (COMMIT_ID, *version.ref.identity)
        yield from self._duck.sort_rows(arrow_schema(version.schema), complete, order)

    def _read_version(self, version: StoredVersion, activation: int | None) -> SchemaVersion:
        """A version. A class is taken at its word where 0.3 forgot what a type looks like inside."""
        known, schema = self._declared.get(version.ref), version.schema
        if known is not None and agrees(schema, known.schema):
            schema = known.schema
        return SchemaVersion(version.ref, version.number, schema, version.created_at, activation)

    def _groups(self) -> list[list[StoredVersion]]:
        """Versions of each type, oldest first, those together that say the same."""
        found: list[list[StoredVersion]] = []
        before: TypeRef | None = None
        for version in sorted(self._source.versions(), key=lambda version: (version.ref, version.number)):
            if version.reason == "type_spec_upgrade" and version.ref == before:
                found[-1].append(version)
            else:
                found.append([version])
            before = version.ref
        return found

    def _complete(self, version: SchemaVersion, rows: pa.Table) -> pa.Table:
        """0.3 filled in the default of a field when it read a row without it; only a class knows what that is."""
        for column in version.schema.columns:
            found = rows.column(column.physical)
            if column.nullable or not found.null_count:
                continue
            known = self._declared.get(version.ref)
            default = None if known is None else known.defaults.get(column.name)
            if default is None:
                raise StorageBackendError(
                    f"{self._source.where}: rows of {version.ref}, version {version.schema_version_id}, do not have "
                    f"the field {column.name}, which an upgrader of 0.3 left out: name the classes, whose default "
                    "stands for it (--models, or types=)",
                    context={"operation": "copy", "type": str(version.ref)},
                )
            place = rows.column_names.index(column.physical)
            rows = rows.set_column(place, rows.field(place), found.fill_null(pa.scalar(default, column.arrow_type)))
        return rows
