"""Copies with history whose large commits executors write, and read again to compare. All else is the runtime's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ontologia.config import OntologiaConfig
from ontologia.engines.catalog import SchemaVersion
from ontologia.engines.history import PastShare, without_removals
from ontologia.engines.staging import Staging
from ontologia.files.data_files import DataFile
from ontologia.model import Declared
from ontologia.runtime import transfer
from ontologia.runtime.transfer import CopyReport
from ontologia.runtime.transfer.copying import Progress
from ontologia.runtime.transfer.digests import RowsDigest
from ontologia.spark.failures import explain_failures
from ontologia.spark.ranges import FEW_ROWS
from ontologia.spark.workers import PART, Message, part_messages, parts_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

WROTE = Message(PART)
HASHED = Message({"rows": "bigint", "total": "string"})


def copy_history(
    spark: SparkSession,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    above_rows: int = FEW_ROWS,
    engine_version: str | None = None,
    in_place: bool = False,
    dry_run: bool = False,
    types: Iterable[type[Declared]] = (),
    config: OntologiaConfig | None = None,
    progress: Progress | None = None,
) -> CopyReport:
    """What `ontologia.copy_history` does; commits of more than `above_rows` rows are copied and compared by executors.

    Into a SQLite file this process writes, and executors compare. A store of 0.3 and an export are read by this
    process alone.
    """
    return transfer.copy_history(
        source,
        target,
        engine_version=engine_version,
        in_place=in_place,
        dry_run=dry_run,
        types=types,
        config=config,
        progress=progress,
        workers=_Executors(spark, above_rows),
    )


@dataclass(frozen=True, slots=True)
class _Executors:
    """Spark's executors, a share of a commit to each task."""

    spark: SparkSession
    above_rows: int

    def takes(self, rows: int, place: str) -> bool:
        """A job takes longer than a small commit does, and a file of this machine is not reached from others."""
        is_reached = "://" in place or str(self.spark.conf.get("spark.master", "local")).startswith("local")
        return rows > self.above_rows and is_reached

    def write(self, shares: Sequence[PastShare], staging: Staging) -> list[DataFile]:
        with explain_failures(f"copying {staging.layout.ref}"):
            return parts_of(self._run(shares, WROTE, lambda share: part_messages(_write(share, staging))))

    def digest(self, version: SchemaVersion, shares: Sequence[PastShare]) -> RowsDigest:
        found = RowsDigest()
        with explain_failures(f"comparing {version.ref}"):
            for row in self._run(shares, HASHED, lambda share: [_hash(version, share)]):
                found.join(RowsDigest(row.rows, int(row.total, 16)))
        return found

    def _run(
        self,
        shares: Sequence[PastShare],
        message: Message,
        work: Callable[[PastShare], Sequence[Mapping[str, Any]]],
    ) -> list[Any]:
        def done(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in (number for batch in batches for number in batch.column(0).to_pylist()):
                yield message.batch(work(shares[number]))

        return self.spark.range(0, len(shares), 1, len(shares)).mapInArrow(done, message.ddl).collect()


def _write(share: PastShare, staging: Staging) -> list[DataFile]:
    """Write a share as parts. Removals come last, in a part of their own: only those have a column that marks them."""
    removals = []
    with staging.writer() as parts:
        for table in share.tables():
            kept, removed = without_removals(table)
            parts.add(kept)
            removals.append(removed)
        parts.remove(removals)
        return parts.finish()


def _hash(version: SchemaVersion, share: PastShare) -> dict[str, Any]:
    found = RowsDigest.of(version, share)
    return {"rows": found.rows, "total": f"{found.total:x}"}
