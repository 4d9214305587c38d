"""What tasks staged, as files that the driver reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ontologia.errors import StorageBackendError
from ontologia.files.scratch import Scratch
from ontologia.files.sorting import find_repeated
from ontologia.objects import ObjectNotFound
from ontologia.runtime.intake.comparing import occurs_twice
from ontologia.spark.writing.plan import WritePlan
from ontologia.spark.writing.shares import StagedShare


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """The rows that tasks found to differ, and by task the identities of those that are as stored."""

    parts: list[Path]
    seen: list[list[Path]]
    scratch: Path
    """A folder that lasts as long as the files."""

    @property
    def all(self) -> list[Path]:
        return [*self.parts, *(file for files in self.seen for file in files)]


@contextmanager
def staged_files(plan: WritePlan, shares: Sequence[StagedShare]) -> Iterator[StagedFiles]:
    """Staged files: in place where the store is a directory, else fetched for the while."""
    objects = plan.staging.open_objects()
    with Scratch("staged") as folder:

        def fetched(key: str) -> Path:
            found: Any = objects.local_path(key)
            if found is not None and Path(found).exists():
                return Path(found)
            place = Path(folder, key.rpartition("/")[2])
            place.write_bytes(objects.get(key).data)
            return place

        try:
            keys = [key for share in shares for key in (*share.parts, *share.seen)]
            files = dict(zip(keys, objects.map(fetched, keys), strict=True))
        except ObjectNotFound as missing:
            raise StorageBackendError(
                f"a task staged {missing.url}, and it is not there: executors on other machines cannot write beside "
                "a local file. Write into object storage, or run with master local[*]",
                context={"operation": "write", "url": missing.url},
            ) from missing
        parts = [files[key] for share in shares for key in share.parts]
        staged = StagedFiles(parts, [[files[key] for key in share.seen] for share in shares], Path(folder))
        _check_met_once(plan, shares, staged)
        yield staged


def _check_met_once(plan: WritePlan, shares: Sequence[StagedShare], staged: StagedFiles) -> None:
    """Refuse an identity that two tasks have, one of them as it is stored: of rows that differ, all come together."""
    if any(staged.seen) and sum(bool(share.parts or share.seen) for share in shares) > 1:
        twice = find_repeated(staged.all, plan.schema.ref.identity)
        if twice.num_rows:
            raise occurs_twice(twice, plan.schema.ref)
