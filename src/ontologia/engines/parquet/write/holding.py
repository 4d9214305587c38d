"""Holding the write lease of a bucket (RFC 0004 §3.1): one thread of a process, and one process of all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ontologia.config import OntologiaConfig
from ontologia.engines.parquet import paths
from ontologia.errors import LockContentionError, StorageBackendError, UninitializedStorageError
from ontologia.objects import Lease, Objects, prove_conditions, prove_conditions_on

if TYPE_CHECKING:
    from ontologia.engines.parquet.engine import ParquetEngine


def write_lease(objects: Objects, settings: OntologiaConfig, owner_id: str) -> Lease:
    """The lease under which whoever writes works."""
    return Lease(
        objects,
        paths.lock(),
        settings.s3_lease_ttl_ms / 1000,
        owner_id=owner_id,
        timeout_s=settings.s3_lock_timeout_ms / 1000,
        timeout_setting="OntologiaConfig.s3_lock_timeout_ms",
    )


@contextmanager
def hold_lease(engine: ParquetEngine) -> Iterator[Lease]:
    """Wait for the turn of this thread, then for the lease."""
    engine.check_open()
    if not engine.lease.likely_there:
        _prove_conditions(engine)
    engine.tidying.wait()  # which ends soon, and is no other writer to give up on
    timeout_s = engine.config.s3_lock_timeout_ms / 1000
    if not engine.turn.take(timeout_s):
        raise LockContentionError(
            f"another thread of {engine.runtime_id} has been writing for more than {timeout_s:g} s: try again, or "
            "raise OntologiaConfig.s3_lock_timeout_ms"
        )
    try:
        if engine.lease.held:
            engine.lease.release()  # a call that was interrupted left it behind
        with engine.lease, _leaving_no_lock_alone(engine):
            _prove_conditions(engine)
            yield engine.lease
    finally:
        engine.turn.give_back()


def _prove_conditions(engine: ParquetEngine) -> None:
    """See that the store honours conditions: on the lock, where that was just replaced on condition."""
    lease, remembered = engine.lease, engine.reader.cache.directory
    if lease.held and lease.replaced is not None:
        prove_conditions_on(engine.objects, lease.key, lease.replaced, remembered)
    else:
        prove_conditions(engine.objects, remembered)


@contextmanager
def _leaving_no_lock_alone(engine: ParquetEngine) -> Iterator[None]:
    """Where somebody deleted the store since it was opened, take back the lock, which would be all there is."""
    try:
        yield
    except UninitializedStorageError:
        with suppress(StorageBackendError):  # what is told is that the store is gone
            engine.objects.delete(engine.lease.key)
        raise
