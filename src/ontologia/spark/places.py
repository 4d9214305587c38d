"""Where executors stage the parts of a commit, and how these become part of it."""

from __future__ import annotations

import hashlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ontologia.engines.base import Transaction, TypeLayout
from ontologia.engines.parquet.engine import S3Repository
from ontologia.engines.parquet.write.commit import ParquetTransaction
from ontologia.engines.rowwise import RowwiseRepository
from ontologia.errors import ValidationError
from ontologia.files.data_files import DataFile
from ontologia.spark.reading import uri_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Place(ABC):
    """Where parts are staged, and how they become part of the commit."""

    @abstractmethod
    def folder(self, layout: TypeLayout) -> str: ...

    @abstractmethod
    def take(self, layout: TypeLayout, parts: Sequence[DataFile]) -> None: ...


class AttemptFolder(Place):
    """On object storage parts are written where they will stay."""

    def __init__(self, transaction: ParquetTransaction) -> None:
        self.transaction = transaction

    def folder(self, layout: TypeLayout) -> str:
        return self.transaction.staging(layout)

    def take(self, layout: TypeLayout, parts: Sequence[DataFile]) -> None:
        if parts:
            digest = hashlib.sha256("".join(sorted(part.path for part in parts)).encode()).hexdigest()
            self.transaction.adopt(layout, parts, digest)


class Spool(Place):
    """An embedded file has one writer: parts are staged beside it, and the driver appends them."""

    def __init__(self, transaction: Transaction, root: Path) -> None:
        self.transaction = transaction
        self.root = root

    def folder(self, layout: TypeLayout) -> str:
        return f"spool/{layout.ref.kind}-{layout.ref.name}/"

    def take(self, layout: TypeLayout, parts: Sequence[DataFile]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = [*layout.ref.identity, *(column.physical for column in layout.schema.columns)]
        for part in parts:
            for batch in pq.ParquetFile(self.root / part.path).iter_batches(columns=names, batch_size=131_072):
                self.transaction.append(layout, pa.Table.from_batches([batch]))


@contextmanager
def place_of(transaction: Transaction, staging: str) -> Iterator[Place]:
    """The place for a transaction's parts; `staging` is the store's staging area."""
    if isinstance(transaction, ParquetTransaction):
        yield AttemptFolder(transaction)
        return
    root = Path(staging.removeprefix("file://"))
    try:
        yield Spool(transaction, root)
    finally:
        shutil.rmtree(root / "spool", ignore_errors=True)
        if root.exists() and not any(root.iterdir()):
            root.rmdir()


def check_reach(spark: SparkSession, repository: RowwiseRepository) -> None:
    """Executors on other machines cannot reach a file of this one."""
    if isinstance(repository, S3Repository):
        return
    if repository.storage_info()["db_path"] == ":memory:":
        raise ValidationError("a store in memory cannot be loaded by Spark: use a file")
    master = str(spark.conf.get("spark.master", "local"))
    if not master.startswith("local"):
        raise ValidationError(
            f"executors on a cluster ({master}) cannot reach the file {uri_of(repository)}: "
            "load into object storage, or run with master local[*]"
        )
