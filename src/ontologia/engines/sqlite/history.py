"""The past of a SQLite store, read in the order of commits, which the tables have an index for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ontologia.engines import shares
from ontologia.engines.catalog import Commit, SchemaVersion
from ontologia.engines.documents import split_documents
from ontologia.engines.history import History, Past, PastShare
from ontologia.engines.sqlite import control
from ontologia.engines.sqlite.columnar import decode
from ontologia.errors import StorageBackendError
from ontologia.files.key_ranges import KeyRange, key_ranges
from ontologia.files.quoting import quote_name
from ontologia.model import COMMIT_ID, SUPERSEDED_BY, TypeRef
from ontologia.objects import Location
from ontologia.query.compiler import ResultColumn

if TYPE_CHECKING:
    import sqlite3

    import pyarrow as pa

    from ontologia.engines.sqlite.engine import SqliteEngine

ROWS_AT_ONCE = 5_000


class SqliteHistory(History):
    """What both layouts share: the log and the schemas."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine
        self._connections = engine.connections

    def past(self) -> Past:
        with self._connections.snapshot(), self._connections.use() as connection:
            head = control.head(connection)
            dropped = control.drops(connection)
            purged = frozenset(ref for ref in dropped if not self._has_rows(connection, ref))
            self._check_all_known(connection)
            return Past(head, control.schema_versions(connection), dropped, purged)

    def commits(self, after: int, up_to: int) -> Iterator[Commit]:
        while after < up_to:
            with self._connections.use() as connection:
                some = control.next_commits(connection, after, min(after + ROWS_AT_ONCE, up_to))
            yield from some
            after += ROWS_AT_ONCE

    def rows(self, version: SchemaVersion, after: int, up_to: int) -> Iterator[pa.Table]:
        # By commit alone: the index has the identity behind it, so that nothing is sorted.
        return self._select(version, f"{COMMIT_ID} > ? AND {COMMIT_ID} <= ? ORDER BY {COMMIT_ID}", (after, up_to))

    def commit_sizes(self) -> Mapping[int, int]:
        sizes: dict[int, int] = {}
        with self._connections.snapshot(), self._connections.use() as connection:
            for table in self._tables(connection):
                sql = f"SELECT {COMMIT_ID}, count(*) FROM {quote_name(table)} GROUP BY {COMMIT_ID}"
                for commit_id, rows in connection.execute(sql):
                    sizes[commit_id] = sizes.get(commit_id, 0) + rows
        return sizes

    def shares(self, version: SchemaVersion, commit_id: int) -> Sequence[PastShare]:
        key, cuts = quote_name(version.ref.identity[0]), []
        with self._connections.use() as connection:
            found = self._source(connection, version)
            if found is None:
                return ()
            source, where, _, values = found
            own = f"FROM {source} WHERE {where} {COMMIT_ID} = ?"
            ((rows,),) = connection.execute(f"SELECT count(*) {own}", (*values, commit_id))
            for offset in range(shares.ROWS_PER_SHARE, rows, shares.ROWS_PER_SHARE):
                sql = f"SELECT {key} {own} ORDER BY {key} LIMIT 1 OFFSET ?"
                cuts += [cut for (cut,) in connection.execute(sql, (*values, commit_id, offset))]
        engine = self._engine
        return [TableShare(type(engine), engine.location, version, commit_id, keys) for keys in key_ranges(cuts)]

    def rows_of_share(self, version: SchemaVersion, commit_id: int, keys: KeyRange) -> Iterator[pa.Table]:
        """The rows of a commit in a range of keys, in their order."""
        bounds = {
            f"{quote_name(version.ref.identity[0])} {sign} ?": key
            for sign, key in ((">=", keys.first), ("<", keys.end))
        }
        bounds = {condition: key for condition, key in bounds.items() if key is not None}
        conditions = " AND ".join((f"{COMMIT_ID} = ?", *bounds))
        order = ", ".join(map(quote_name, version.ref.identity))
        return self._select(version, f"{conditions} ORDER BY {order}", (commit_id, *bounds.values()))

    def _select(self, version: SchemaVersion, conditions: str, parameters: Sequence[Any]) -> Iterator[pa.Table]:
        with self._connections.use() as connection:
            found = self._source(connection, version)
            if found is None:
                return
            source, where, columns, values = found
            names = ", ".join(map(quote_name, (*version.ref.identity, COMMIT_ID, *columns)))
            cursor = connection.execute(
                f"SELECT {names} FROM {source} WHERE {where} {conditions}", (*values, *parameters)
            )
        while True:
            with self._connections.use():  # not while somebody else goes on with the rows, who may never come back
                rows = cursor.fetchmany(ROWS_AT_ONCE)
            if not rows:
                return
            yield self._table(version, columns, list(zip(*rows, strict=True)))

    @abstractmethod
    def _source(
        self, connection: sqlite3.Connection, version: SchemaVersion
    ) -> tuple[str, str, Sequence[str], Sequence[Any]] | None:
        """What stands behind FROM, conditions before the others, the columns behind the commit, and parameters."""

    @abstractmethod
    def _table(self, version: SchemaVersion, columns: Sequence[str], values: Sequence[Sequence[Any]]) -> pa.Table: ...

    @abstractmethod
    def _tables(self, connection: sqlite3.Connection) -> Sequence[str]:
        """The tables that have rows."""

    @abstractmethod
    def _has_rows(self, connection: sqlite3.Connection, ref: TypeRef) -> bool: ...

    def _check_all_known(self, connection: sqlite3.Connection) -> None:
        """Refuse rows of which nothing says how to read them."""


@dataclass(frozen=True, slots=True)
class TableShare(PastShare):
    """A range of the keys of a commit in a file, which whoever reads it opens for itself."""

    kind: type[SqliteEngine]
    location: Location
    version: SchemaVersion
    commit_id: int
    keys: KeyRange

    def tables(self) -> Iterator[pa.Table]:
        with self.kind(self.location.uri, self.location.settings) as engine:
            for rows in engine.history().rows_of_share(self.version, self.commit_id, self.keys):
                yield rows.drop_columns([COMMIT_ID])


def _keys_and_commit(version: SchemaVersion, values: Sequence[Sequence[Any]]) -> dict[str, Any]:
    import pyarrow as pa

    identity = version.ref.identity
    found: dict[str, Any] = {name: pa.array(values[place], pa.string()) for place, name in enumerate(identity)}
    return found | {COMMIT_ID: pa.array(values[len(identity)], pa.int64())}


class DocumentHistory(SqliteHistory):
    """v1: one table per kind, each row a document."""

    def _source(
        self, connection: sqlite3.Connection, version: SchemaVersion
    ) -> tuple[str, str, Sequence[str], Sequence[Any]]:
        kind = version.ref.kind
        # The plus keeps SQLite from using the primary key, which would make it sort all of a type.
        where = f"+{kind}_type = ? AND schema_version_id = ? AND"
        return f"{kind}_history", where, ("fields_json",), (version.ref.name, version.schema_version_id)

    def _table(self, version: SchemaVersion, columns: Sequence[str], values: Sequence[Sequence[Any]]) -> pa.Table:
        import pyarrow as pa

        found = _keys_and_commit(version, values)
        fields = version.schema.columns
        for column, read in zip(fields, split_documents(fields, values[-1]), strict=True):
            found[column.physical] = pa.array(read, column.arrow_type)
        return pa.table(found)

    def _tables(self, connection: sqlite3.Connection) -> Sequence[str]:
        return ("entity_history", "relation_history")

    def _has_rows(self, connection: sqlite3.Connection, ref: TypeRef) -> bool:
        sql = f"SELECT 1 FROM {ref.kind}_history WHERE {ref.kind}_type = ? LIMIT 1"
        return connection.execute(sql, (ref.name,)).fetchone() is not None

    def _check_all_known(self, connection: sqlite3.Connection) -> None:
        for kind in ("entity", "relation"):
            lost = connection.execute(
                f"SELECT DISTINCT h.{kind}_type, h.schema_version_id FROM {kind}_history h WHERE NOT EXISTS "
                f"(SELECT 1 FROM schema_versions v WHERE v.type_kind = '{kind}' AND v.type_name = h.{kind}_type "
                "AND v.schema_version_id = h.schema_version_id)"
            ).fetchone()
            if lost is not None:
                raise StorageBackendError(f"{kind}:{lost[0]} has rows of version {lost[1]}, whose schema is not stored")


class TableHistory(SqliteHistory):
    """v2: one table per type and schema version."""

    def _source(
        self, connection: sqlite3.Connection, version: SchemaVersion
    ) -> tuple[str, str, Sequence[str], Sequence[Any]] | None:
        table = self._engine.table_of(connection, version.ref, version.schema_version_id)
        if not table:  # dropped with its history
            return None
        columns = [column.physical for column in version.schema.columns]
        if SUPERSEDED_BY in {row[1] for row in connection.execute(f"PRAGMA table_info({quote_name(table)})")}:
            columns.append(SUPERSEDED_BY)  # there are removals
        return quote_name(table), "", columns, ()

    def _table(self, version: SchemaVersion, columns: Sequence[str], values: Sequence[Sequence[Any]]) -> pa.Table:
        import pyarrow as pa

        from ontologia.files.arrays import array_of

        found = _keys_and_commit(version, values)
        by_name = dict(zip(columns, values[len(found) :], strict=True))
        for column in version.schema.columns:
            read = decode(ResultColumn(column.physical, column.scalar), by_name[column.physical])
            found[column.physical] = array_of(read, column.arrow_type)
        if SUPERSEDED_BY in by_name:
            found[SUPERSEDED_BY] = array_of(by_name[SUPERSEDED_BY], pa.int64())
        return pa.table(found)

    def _tables(self, connection: sqlite3.Connection) -> Sequence[str]:
        return [name for (name,) in connection.execute("SELECT DISTINCT table_name FROM type_layout_catalog")]

    def _has_rows(self, connection: sqlite3.Connection, ref: TypeRef) -> bool:
        sql = "SELECT 1 FROM type_layout_catalog WHERE type_kind = ? AND type_name = ? LIMIT 1"
        return connection.execute(sql, (ref.kind, ref.name)).fetchone() is not None
