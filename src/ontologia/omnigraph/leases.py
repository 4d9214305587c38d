"""Who may change a branch: one writer at a time, in this process and in all others (RFC 0004 §3.1).

A lease keeps writers, recovery and branch control out of each other's way. It does not decide what is committed: the
publish does, and it conflicts exactly. A lease that runs out too early costs work, never data.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ontologia.config import OntologiaConfig
from ontologia.errors import LockContentionError
from ontologia.objects import Lease, Lock, Objects, system
from ontologia.omnigraph.names import lease_key

CONTROL = "@control"  #: no branch can have this name: creating and deleting branches, and schema changes


class Leases:
    """The leases of one graph, one `Lease` object per branch, so that taking one again is a single request."""

    def __init__(self, objects: Objects, config: OntologiaConfig, owner_id: str) -> None:
        self._objects = objects
        self._config = config
        self._owner_id = owner_id
        self._guard = system().lock()
        self._leases: dict[str, tuple[Lock, Lease]] = {}

    @contextmanager
    def hold(self, branch: str, *, timeout_s: float | None = None) -> Iterator[Lease]:
        """Hold the lease of a branch; raises `LockContentionError` when it does not become free in time."""
        lock, lease = self._lease(branch)
        wait = self._config.s3_lock_timeout_ms / 1000 if timeout_s is None else timeout_s
        if not lock.acquire(timeout=wait):
            raise LockContentionError(
                f"another thread of {self._owner_id} has been writing to branch {branch} for more than {wait:g} s: "
                "try again, or raise OntologiaConfig.s3_lock_timeout_ms"
            )
        try:
            lease.timeout_s = wait
            with lease:
                yield lease
        finally:
            lock.release()

    def _lease(self, branch: str) -> tuple[Lock, Lease]:
        with self._guard:
            if branch not in self._leases:
                lease = Lease(
                    self._objects,
                    lease_key(branch),
                    self._config.s3_lease_ttl_ms / 1000,
                    owner_id=self._owner_id,
                    timeout_s=self._config.s3_lock_timeout_ms / 1000,
                    timeout_setting="OntologiaConfig.s3_lock_timeout_ms",
                )
                self._leases[branch] = (system().lock(), lease)
            return self._leases[branch]
