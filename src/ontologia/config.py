"""`OntologiaConfig`: what an operator may tune. Credentials never live here."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Literal

from ontologia.errors import without_passwords

AUTO_COMPACT = ("loads", "commits", "never")
_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "str": (str,),
    "str | None": (str, type(None)),
}
"""What a setting may be, by its annotation."""
_NAMED = re.compile(r"(?P<host>.+)-(?P<process>[1-9]\d*)-(?P<numbering>[0-9a-f]{6})[0-9a-f]{6}")
"""How `new_runtime_id` names a process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OntologiaConfig:
    """Settings of a runtime. Every value has a default that suits one machine; those of `s3_region` and
    `s3_endpoint_url` are read from `ONTOLOGIA_S3_REGION` and `ONTOLOGIA_S3_ENDPOINT_URL`.

    `max_batch_size` is the number of rows one commit may write. `lock_timeout_ms` is how long a writer waits for
    another one on an embedded file; `s3_lock_timeout_ms` is the same for a bucket. `cache_directory` holds copies of
    immutable files from a bucket, up to `cache_max_bytes`; by default it is the user's cache folder. The console hands
    maintenance that touches more than `spark_above_rows` rows to Spark. Without `sync_files`, writes to a directory do
    not wait for the disk: what was acknowledged survives the end of the process, but no power failure.

    Small files of a bucket are merged once a type has `compact_after_commits` of them, or `compact_after_bytes` in
    them: after imports, pipelines and, beside whoever made them, commits of sessions (`auto_compact="commits"`), only
    after imports and pipelines (`"loads"`), or never by itself (`"never"`).

    Events: a worker looks for work every `event_poll_interval_ms`, claims up to `event_claim_limit` at once for
    `event_claim_lease_ms`, and handles up to `max_events_per_iteration` before it looks after its other duties. A
    handler that fails is tried again after `event_backoff_base_ms`, doubled up to `event_backoff_max_ms`, and
    `event_max_attempts` times in all. An event may descend from others through `max_event_chain_depth` generations.
    Handled events are kept for `event_retention_ms`. A session says every `session_heartbeat_interval_ms` that it
    lives, and counts as gone after `session_ttl_ms` of silence.
    """

    max_batch_size: int = 10_000
    runtime_id: str | None = None
    lock_timeout_ms: int = 5_000
    s3_region: str | None = field(default_factory=lambda: os.environ.get("ONTOLOGIA_S3_REGION"))
    s3_endpoint_url: str | None = field(default_factory=lambda: os.environ.get("ONTOLOGIA_S3_ENDPOINT_URL"))
    s3_lock_timeout_ms: int = 5_000
    s3_lease_ttl_ms: int = 30_000
    s3_request_timeout_s: float = 10.0
    s3_duckdb_memory_limit: str = "256MB"
    cache_directory: str | None = None
    cache_max_bytes: int = 2 << 30
    sync_files: bool = True
    spark_above_rows: int = 5_000_000
    auto_compact: Literal["loads", "commits", "never"] = "commits"
    compact_after_commits: int = 100
    compact_after_bytes: int = 32 << 20
    default_namespace: str = "default"
    event_poll_interval_ms: int = 1_000
    event_claim_limit: int = 100
    max_events_per_iteration: int = 1_000
    event_claim_lease_ms: int = 30_000
    event_retention_ms: int = 7 * 86_400_000
    session_heartbeat_interval_ms: int = 5_000
    session_ttl_ms: int = 60_000
    event_max_attempts: int = 10
    event_backoff_base_ms: int = 250
    event_backoff_max_ms: int = 30_000
    max_event_chain_depth: int = 20

    def __repr__(self) -> str:
        settings = ", ".join(f"{item.name}={getattr(self, item.name)!r}" for item in fields(self))
        return without_passwords(f"OntologiaConfig({settings})")

    def __post_init__(self) -> None:
        folder: object = self.cache_directory
        if isinstance(folder, os.PathLike):
            object.__setattr__(self, "cache_directory", os.fspath(folder))
        if self.auto_compact not in AUTO_COMPACT:
            raise ValueError(f"OntologiaConfig.auto_compact is {' or '.join(AUTO_COMPACT)}, not {self.auto_compact!r}")
        for item in fields(self):
            if item.name != "auto_compact":
                _check(item.name, getattr(self, item.name), _TYPES[str(item.type)])


def _check(name: str, value: object, types: tuple[type, ...]) -> None:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise TypeError(f"OntologiaConfig.{name} must be {types[0].__name__}, not {value!r}")
    if isinstance(value, (int, float)) and bool not in types and not value > 0:
        raise ValueError(f"OntologiaConfig.{name} must be positive, not {value!r}")


def new_runtime_id() -> str:
    """A name for this process in commits and locks, readable and unique."""
    return f"{socket.gethostname()}-{os.getpid()}-{_numbering()}{secrets.token_hex(3)}"


@cache
def _numbering() -> str:
    """Where numbers of processes mean what they mean here: containers may have the same name, and number apart."""
    try:
        known = os.readlink("/proc/self/ns/pid") + Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:  # a system without containers: a name is that of a machine
        known = ""
    return hashlib.sha256(known.encode()).hexdigest()[:6]


def has_ended(runtime_id: str) -> bool:
    """Whether a name is that of a process of this machine, or this container, that is no more. False where it cannot
    be known."""
    found = _NAMED.fullmatch(runtime_id)
    if found is None or (found["host"], found["numbering"]) != (socket.gethostname(), _numbering()):
        return False
    try:
        os.kill(int(found["process"]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
