"""Locks by name, which callers take in a store; on object storage they are leases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from ontologia.errors import LockContentionError, OntologiaError
from ontologia.objects import Lease, Objects

WRITE_LOCK = "ontology_write"


class Locks(ABC):
    """The locks of one store."""

    @abstractmethod
    def acquire(self, name: str, owner_id: str, ttl_ms: int) -> bool:
        """Take a lock if it is free, expired, or held by this owner."""

    @abstractmethod
    def renew(self, name: str, owner_id: str, ttl_ms: int) -> bool:
        """Hold a lock longer; False when it is no longer ours."""

    @abstractmethod
    def release(self, name: str, owner_id: str) -> bool:
        """Give a lock back; False when it was no longer ours."""


class LeasedLocks(Locks):
    """The locks that this process holds for others. Whoever holds one renews it; nothing is renewed for them."""

    def __init__(self, objects: Objects, key_of: Callable[[str], str], check_open: Callable[[], None]) -> None:
        self._objects = objects
        self._key_of = key_of
        self._check_open = check_open
        self._held: dict[tuple[str, str], Lease] = {}

    def acquire(self, name: str, owner_id: str, ttl_ms: int) -> bool:
        self._check_open()
        known = self._held.get((name, owner_id))
        if known is not None and known.held and self.renew(name, owner_id, ttl_ms):
            return True
        key = self._key_of(name)
        lease = Lease(self._objects, key, ttl_ms / 1000, owner_id=owner_id, timeout_s=0, keep_alive=False)
        try:
            lease.acquire()
        except LockContentionError:
            return False
        self._held[name, owner_id] = lease
        return True

    def renew(self, name: str, owner_id: str, ttl_ms: int) -> bool:
        lease = self._held.get((name, owner_id))
        if lease is None:
            return False
        lease.ttl_s = ttl_ms / 1000
        try:
            lease.renew()
        except OntologiaError:
            return False
        return True

    def release(self, name: str, owner_id: str) -> bool:
        lease = self._held.pop((name, owner_id), None)
        return lease is not None and lease.release()
