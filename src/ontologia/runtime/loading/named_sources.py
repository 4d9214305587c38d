"""What a load may name as its source, by a path or an address, and what can be seen of it before anybody reads it."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping
from pathlib import Path

from ontologia.apiary.names import FrameName
from ontologia.errors import UnreadableFileError, ValidationError
from ontologia.runtime.loading.sources import ENDINGS, OnlySpark, files_of, suffix_of

FEW_BYTES = 8 << 20
"""Up to this, files are looked at sooner by one process than by jobs of Spark."""


def format_of(source: str, format: str | None = None) -> str:
    """What a source is, as said or by its suffix. A local file that is not there is refused before Spark starts."""
    if source.startswith("jdbc:"):
        return "jdbc"
    kind = ENDINGS.get((format or suffix_of(source)).lower())
    if kind is None:
        raise ValidationError(f"{source}: say what it is with format='csv' (or json, parquet, orc)")
    if "://" not in source and not glob.glob(source) and not Path(source).exists():
        raise UnreadableFileError(f"{source}: there is no such file")
    return kind


def check_source(source: str, format: str | None = None, options: Mapping[str, str] | None = None) -> str:
    """What a source is; all that is wrong with it and can be seen without Spark is said."""
    if format == "frame":
        FrameName.parse((options or {}).get("frame", ""))
        return "frame"
    kind = format_of(source, format)
    if kind == "jdbc" and not (options or {}).keys() & {"dbtable", "query"}:
        raise ValidationError(f"{source}: say which table, with the option dbtable or query")
    return kind


def are_few_bytes(sources: Iterable[str]) -> bool:
    """Whether sources are small files of this machine, which Spark reads sooner than it starts."""
    try:
        return sum(file.stat().st_size for source in sources for file in files_of(source)) <= FEW_BYTES
    except OnlySpark:  # a folder, or another machine's
        return False
