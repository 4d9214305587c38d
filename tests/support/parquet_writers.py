"""What the processes of the race do: commit rows of their own, and write down what was acknowledged."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ontologia import OntologiaConfig, open_repository
from ontologia.engines.parquet.engine import ParquetEngine
from ontologia.errors import CommitOutcomeUnknownError, ConcurrentWriteError, StorageBackendError
from ontologia.objects import requests
from ontologia.testing.crash import crash_point
from support.parquet_shop import AheadClock, Customer, Product, commit


def write(uri: str, journal: str, seconds: float, clock_off_s: float, cache: str) -> None:
    """Commit until time is up. A line per commit: the id, or None where it is not known."""
    name = Path(journal).stem
    config = OntologiaConfig(
        runtime_id=f"{name}-{os.getpid()}", s3_lock_timeout_ms=5_000, s3_lease_ttl_ms=1_500, cache_directory=cache
    )
    repository = open_repository(storage_uri=uri, config=config)
    assert isinstance(repository.engine, ParquetEngine)
    if clock_off_s:
        repository.engine.lease.clock = AheadClock(clock_off_s)
    end = time.monotonic() + seconds
    number = 0
    with open(journal, "a", encoding="utf-8") as lines:
        while time.monotonic() < end:
            number += 1
            key = f"{name}-{os.getpid()}-{number}"
            rows = [Customer(id=key, name=name, age=number), Product(sku="shared", price=float(time.time_ns() % 10**9))]
            try:
                commit_id = commit(repository, rows, who=key)
            except CommitOutcomeUnknownError:
                commit_id = None
            except (ConcurrentWriteError, StorageBackendError):
                continue
            lines.write(json.dumps([key, commit_id]) + "\n")
            lines.flush()
            os.fsync(lines.fileno())
            time.sleep(0.005)
    repository.close()


def name_requests() -> None:
    """Make every request a point to die at: "before put_if_match meta/head.json"; attempts are called by their number."""

    def at(request: requests.Request, call: Callable[[], Any]) -> Any:
        name = re.sub(r"commits/(\d+)-\w+/", r"commits/\1/", str(request))
        crash_point(f"before {name}")
        answer = call()
        crash_point(f"after {name}")
        return answer

    requests.interceptors.append(at)


def commit_one(uri: str, cache: str) -> int | None:
    """One commit, for being killed in."""
    name_requests()
    config = OntologiaConfig(s3_lease_ttl_ms=800, s3_lock_timeout_ms=5_000, cache_directory=cache)
    with open_repository(storage_uri=uri, config=config) as repository:
        assert isinstance(repository.engine, ParquetEngine)
        return commit(repository, [Customer(id="killed", name="Kim"), Product(sku="killed")], who="killed")


def migrate_one(uri: str, cache: str) -> None:
    """One migration, for being killed in."""
    name_requests()
    from ontologia.runtime.session import Session
    from support.parquet_shop import CustomerWithEmail

    config = OntologiaConfig(s3_lease_ttl_ms=800, s3_lock_timeout_ms=5_000, cache_directory=cache)
    with Session(uri, entity_types=[CustomerWithEmail, Product], config=config) as session:
        session.migrate(dry_run=False, force=True, meta={"who": "killed"})


def compact_one(uri: str, cache: str) -> None:
    """One compaction, for being killed in."""
    name_requests()
    config = OntologiaConfig(s3_lease_ttl_ms=800, s3_lock_timeout_ms=5_000, cache_directory=cache)
    with open_repository(storage_uri=uri, config=config) as repository:
        repository.compact(apply=True)


def vacuum_one(uri: str, cache: str) -> None:
    """One vacuum of compacted files, for being killed in."""
    name_requests()
    config = OntologiaConfig(s3_lease_ttl_ms=800, s3_lock_timeout_ms=5_000, cache_directory=cache)
    with open_repository(storage_uri=uri, config=config) as repository:
        repository.vacuum(0, apply=True, compacted=True)


def forget_one(uri: str, cache: str) -> None:
    """History before the second commit is given up, for being killed in."""
    from ontologia.runtime import forgetting

    name_requests()
    config = OntologiaConfig(s3_lease_ttl_ms=800, s3_lock_timeout_ms=5_000, cache_directory=cache)
    with open_repository(storage_uri=uri, config=config) as repository:
        plan = forgetting.preview(repository.engine, 2)
        forgetting.apply(repository.engine, plan, plan.token)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), sys.argv[5])
