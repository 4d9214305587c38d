"""Table formats that upsert as a commit does: find the rows by their key, replace those that differ, commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

Upsert = Callable[[pa.Table], None]


def upserts(root: str, catalog: Path, table: pa.Table) -> Iterator[tuple[str, Upsert]]:
    """The rows as a table of each format below `root`, a directory or a bucket, and what upserts some into it."""
    yield "delta-rs: merge", _delta(f"{root}/delta", table)
    yield "PyIceberg: upsert", _iceberg(f"{root}/iceberg", catalog, table)


def _delta(uri: str, table: pa.Table) -> Upsert:
    write_deltalake(uri, table)

    def upsert(rows: pa.Table) -> None:
        merger = DeltaTable(uri).merge(rows, "s.entity_key = t.entity_key", source_alias="s", target_alias="t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    return upsert


def _iceberg(uri: str, catalog: Path, table: pa.Table) -> Upsert:
    reached = (
        {"s3.endpoint": os.environ["AWS_ENDPOINT_URL"], "s3.region": os.environ["AWS_REGION"]}
        if uri.startswith("s3:")
        else {}
    )
    tables = SqlCatalog("bench", uri=f"sqlite:///{catalog}", warehouse=uri, **reached)
    tables.create_namespace("bench")
    stored = tables.create_table("bench.customer", schema=_without_times(table).schema)
    stored.append(_without_times(table))

    def upsert(rows: pa.Table) -> None:
        stored.upsert(_without_times(rows), join_cols=["entity_key"])

    return upsert


def _without_times(table: pa.Table) -> pa.Table:
    """The columns that PyIceberg takes as they are."""
    return table.select([field.name for field in table.schema if not pa.types.is_timestamp(field.type)])
