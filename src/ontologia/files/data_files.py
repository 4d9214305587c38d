"""A data file, as whoever wrote it recorded it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file in a store: its key, and its size, its rows and its hash where somebody wrote them down."""

    path: str
    size: int | None = None
    row_count: int | None = None
    content_sha256: str | None = None
