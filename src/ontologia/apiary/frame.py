"""`Frame`: one table, as a user holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from ontologia.apiary import compaction, merging, rewriting, scan, vacuum, writing
from ontologia.apiary import history as past
from ontologia.apiary.conditions import Filter, condition
from ontologia.apiary.incoming import is_spark
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.results import RewriteResult, VacuumResult, VersionChange, WriteResult
from ontologia.apiary.state import FrameSnapshot
from ontologia.errors import OntologiaError, ValidationError
from ontologia.extras import need

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl


class Frame:
    """A partitioned table with versions.

    >>> frame = ap.frame("analytics.sensors.temperature")
    >>> frame.write(pa.table({"region": ["north"], "temp": [38.5]})).version
    1
    >>> frame.read(filter={"region": "north"}, columns=["temp"])

    Every change is one version; a reader sees all of it or nothing. Any retained version can be read again.
    """

    def __init__(self, name: FrameName, node: Callable[[], Node]) -> None:
        self.name = name
        self._started = node

    @property
    def _node(self) -> Node:
        return self._started()

    # --- what it is ----------------------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The columns. Those declared as not null say so."""
        fields = self._node.ledger(self.name).known().schema.fields
        return pa.schema([pa.field(field.name, field.arrow, field.nullable) for field in fields])

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self._node.ledger(self.name).known().partition_by

    @property
    def version(self) -> int:
        """The newest version, as of now."""
        return self._snapshot().version

    def stats(self) -> dict[str, Any]:
        """Rows, bytes, cells and partitions of the newest version, and how large its cells are."""
        return past.summary(self._node, self.name, self._snapshot())

    def history(self, limit: int | None = None) -> list[VersionChange]:
        """What each version added and removed, the newest first."""
        return past.changes(self._node, self.name, limit)

    def diff(self, a: int, b: int) -> past.VersionDifference:
        """What differs from version `a` to version `b`: cells, counts and, if asked for, the rows themselves."""
        return past.difference(self._node, self.name, a, b)

    # --- reading -------------------------------------------------------------------------------------------------

    def read(
        self, columns: Sequence[str] | None = None, filter: Filter | None = None, version: int | None = None
    ) -> pa.Table:
        """Rows as an Arrow table, in the order they were written.

        `filter` is `{column: value}` (a list means any of them), `[(column, operator, value), …]`, or a condition in
        SQL, as in `"temp > 40 AND region = 'north'"`. Cells that cannot match are not opened.
        """
        node = self._node
        node.admit_query()
        with node.reading(self.name, version) as snapshot:
            where = condition(filter, snapshot.schema)
            tasks = [lambda chamber: scan.read(node, self.name, snapshot, columns, where)]
            return node.bees.run(f"reading {self.name}", tasks)[0]

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """The rows as pandas has them; options as for `read`."""
        need("pandas", "to_pandas()")
        from ontologia.files.pandas_frames import pandas_frame

        return pandas_frame(self.read(**options))

    def to_polars(self, version: int | None = None) -> pl.LazyFrame:
        """A lazy frame that polars fills from the cells themselves. Cells of a bucket are fetched into the cache."""
        return scan.lazy_polars(self._node, self.name, self._snapshot(version))

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None, version: int | None = None
    ) -> duckdb.DuckDBPyRelation:
        """A relation of DuckDB over the cells themselves, to be filtered and joined on. Cells of a bucket are fetched
        into the cache."""
        return scan.duck_relation(self._node, self.name, self._snapshot(version), connection)

    def to_spark(
        self, columns: Sequence[str] | None = None, filter: Filter | None = None, version: int | None = None
    ) -> Any:
        """A DataFrame of Spark, for `Pipeline.load` and the like: executors read the cells. Options as for `read`."""
        from ontologia.apiary.distributed import on_spark

        return on_spark("dataframe")(self._node, self.name, self._snapshot(version), columns, filter)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for everything that reads Arrow: `pl.DataFrame(frame)`, `pa.table(frame)`, DuckDB's `FROM frame`."""
        return self.read().__arrow_c_stream__(requested_schema)

    # --- writing -------------------------------------------------------------------------------------------------

    def write(self, data: Any, *, backpressure: str = "block", timeout: float = 30.0) -> WriteResult:
        """Append rows as one version.

        `data` is a pyarrow Table or RecordBatchReader, a pandas, polars or Spark DataFrame, or a list of dicts. Types
        that fit are cast, extra columns are dropped with a warning, missing ones are null. While the colony is hot,
        the call waits up to `timeout` seconds, fails at once ("error"), or goes on ("ignore").
        """
        if is_spark(data):
            return cast("WriteResult", self._on_spark("write", data))
        return writing.append(self._node, self.name, data, backpressure, timeout)

    def overwrite(self, data: Any, *, backpressure: str = "block", timeout: float = 30.0) -> WriteResult:
        """Replace all rows by these, as one version."""
        if is_spark(data):
            return cast("WriteResult", self._on_spark("overwrite", data))
        return writing.overwrite(self._node, self.name, data, backpressure, timeout)

    def delete(self, filter: Filter) -> RewriteResult:
        """Remove the rows that satisfy a condition. Cells that have some are written anew without them."""
        return rewriting.delete(self._node, self.name, filter)

    def update(self, filter: Filter | None, changes: Mapping[str, Any]) -> RewriteResult:
        """Set columns of the rows that satisfy a condition, to values or to what `Computed("temp * 2")` gives."""
        return rewriting.update(self._node, self.name, filter, changes)

    def merge(self, data: Any, on: Sequence[str]) -> RewriteResult:
        """Update the rows whose `on` columns equal those of a given row, and append the given rows that match none.

        Columns that are not given keep their values. Two given rows with the same key, or a null in one, are an error.
        """
        return merging.merge(self._node, self.name, data, on)

    # --- care ----------------------------------------------------------------------------------------------------

    def compact(self, *, force: bool = False, engine: str = "local") -> RewriteResult:
        """Merge small cells, where the policy says so, or with `force` wherever a partition has more than one."""
        if engine == "spark":
            return cast("RewriteResult", self._on_spark("compact", force))
        if engine != "local":
            raise ValidationError(f"engine is local or spark, not {engine!r}")
        return compaction.compact(self._node, self.name, force=force)

    def vacuum(self, older_than: float | str = "7d", *, keep_versions: int = 1, apply: bool = True) -> VacuumResult:
        """Delete cells that no version of the last `older_than` has (seconds, or as "12h" and "7d"), nor any of the
        newest `keep_versions`. Versions from before can no longer be read."""
        return vacuum.vacuum(self._node, self.name, older_than, keep_versions=keep_versions, apply=apply)

    # --- as seen -------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        try:
            return past.describe(self._node, self.name, self._snapshot())
        except OntologiaError as problem:
            return f"Frame({str(self.name)!r}): {problem}"

    def _repr_html_(self) -> str:
        try:
            return past.describe_html(self._node, self.name, self._snapshot())
        except OntologiaError:
            return f"<div>{escape(repr(self))}</div>"

    def _snapshot(self, version: int | None = None) -> FrameSnapshot:
        return self._node.ledger(self.name).snapshot(version)

    def _on_spark(self, verb: str, argument: Any) -> Any:
        from ontologia.apiary.distributed import on_spark

        return on_spark(verb)(self._node, self.name, argument)
