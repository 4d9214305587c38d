"""`OntologiaConfig`: what an operator may tune. Credentials never live here."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class OntologiaConfig:
    """Settings of a runtime. Every value has a default that suits one machine.

    `max_batch_size` is the number of rows one commit may write. `lock_timeout_ms` is how long a writer waits for
    another one on an embedded file; `s3_lock_timeout_ms` is the same for a bucket. `cache_directory` holds copies of
    immutable files from a bucket, up to `cache_max_bytes`; by default it is the user's cache folder. The console hands
    maintenance that touches more than `spark_above_rows` rows to Spark.
    """

    max_batch_size: int = 10_000
    runtime_id: str | None = None
    lock_timeout_ms: int = 5_000
    s3_region: str | None = None
    s3_endpoint_url: str | None = None
    s3_lock_timeout_ms: int = 5_000
    s3_lease_ttl_ms: int = 30_000
    s3_request_timeout_s: float = 10.0
    s3_duckdb_memory_limit: str = "256MB"
    cache_directory: str | None = None
    cache_max_bytes: int = 2 << 30
    spark_above_rows: int = 5_000_000
    default_namespace: str = "default"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (int, float)) and value <= 0:
                raise ValueError(f"OntologiaConfig.{field.name} must be positive, not {value!r}")


def new_runtime_id() -> str:
    """A name for this process in commits and locks, readable and unique."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
