"""Proof at first write: does this store honour conditions, or does it only accept them?

Some gateways ignore `If-None-Match` and `If-Match` and overwrite. On such a store two writers would both be
told that they committed. So before the first write of a process to a store, both conditions are tried: on a probe
object, or on one that was just replaced, which takes two requests in place of five.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ontologia.errors import OntologiaError, StorageBackendError
from ontologia.objects.failures import ConditionFailed
from ontologia.objects.store import Objects
from ontologia.objects.system import new_uuid

_log = logging.getLogger(__name__)
PROOF_HOLDS_S = 86_400.0
_proven: set[str] = set()
_lock = threading.Lock()


def prove_conditions(objects: Objects, remember_in: Path | None = None) -> None:
    """Refuse, with `StorageBackendError`, a store that ignores conditions. Once per store and process: five
    requests. With a folder to remember it in, a bucket is asked by one process of this machine a day.

    The probe is `_probe/<random>.json` and is removed again; without the right to delete, it stays and is harmless.
    Names that start with `_` are nobody's: at the root of frames, a folder `meta` would be a hive.
    """

    def probe() -> None:
        key = f"_probe/{new_uuid().hex}.json"
        try:
            _probe(objects, key)
        finally:
            try:
                objects.delete(key)
            except OntologiaError as error:
                _log.warning("the probe object stays behind: %s", error)

    _prove_once(objects, remember_in, probe)


def prove_conditions_on(objects: Objects, key: str, replaced: str, remember_in: Path | None = None) -> None:
    """The same, with an object whose version `replaced` we have just replaced on condition, and which may be damaged:
    that this was accepted is half of the proof, and what is tried here must be refused."""
    _prove_once(objects, remember_in, lambda: _try_what_must_be_refused(objects, key, replaced))


def _prove_once(objects: Objects, remember_in: Path | None, prove: Callable[[], None]) -> None:
    if objects.identity in _proven:
        return
    with _lock:
        if objects.identity in _proven:
            return
        note = None if remember_in is None else _note(objects, remember_in)
        if note is None or not _is_recent(note):
            prove()
            if note is not None:
                with suppress(OSError):  # it is proven again by the next process
                    note.parent.mkdir(parents=True, exist_ok=True)
                    note.touch()
        _proven.add(objects.identity)


def _note(objects: Objects, folder: Path) -> Path | None:
    """The file whose age says when a bucket was last proven; None for stores of this machine, which are quick."""
    if objects.local_path("x") is not None or objects.identity.startswith("memory:"):
        return None
    return folder / "proofs" / hashlib.sha256(objects.identity.encode()).hexdigest()[:40]


def _is_recent(note: Path) -> bool:
    try:
        return 0 <= time.time() - note.stat().st_mtime < PROOF_HOLDS_S
    except OSError:
        return False


def _probe(objects: Objects, key: str) -> None:
    first = objects.put_if_absent(key, b'{"probe": 1}')
    try:
        objects.put_if_match(key, b'{"probe": 2}', first)
    except ConditionFailed as error:
        raise StorageBackendError(
            f"{objects.uri} refused a put on the version it had just returned ({first}), so compare-and-swap "
            "cannot work there: use a store with working conditional writes (If-Match)",
            context={"operation": "prove_conditions", "url": objects.url(key), "kind": "conditions_broken"},
        ) from error
    _try_what_must_be_refused(objects, key, first)


def _try_what_must_be_refused(objects: Objects, key: str, replaced: str) -> None:
    """Create an object that exists, and replace a version of it that is gone."""
    try:
        objects.put_if_absent(key, b'{"probe": 3}')
    except ConditionFailed:
        pass
    else:
        raise _ignored_error(objects, key, "If-None-Match", "created an object that exists")
    try:
        objects.put_if_match(key, b'{"probe": 4}', replaced)
    except ConditionFailed:
        return
    raise _ignored_error(objects, key, "If-Match", "replaced a version that was gone")


def _ignored_error(objects: Objects, key: str, header: str, what: str) -> StorageBackendError:
    return StorageBackendError(
        f"{objects.uri} ignores the {header} condition: it {what}. Two writers could overwrite each other "
        "unseen, so nothing is written there. Use a store that honours conditional writes (AWS S3, GCS, MinIO, "
        "SeaweedFS, …), not a gateway that drops them",
        context={"operation": "prove_conditions", "url": objects.url(key), "kind": "conditions_ignored"},
    )
