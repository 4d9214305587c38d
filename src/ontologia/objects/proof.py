"""Proof at first write: does this store honour conditions, or does it only accept them?

Some gateways ignore `If-None-Match` and `If-Match` and overwrite. On such a store two writers would both be
told that they committed. So before the first write of a process to a store, both conditions are tried on a
probe object.
"""

from __future__ import annotations

import logging
import threading
import uuid

from ontologia.errors import OntologiaError, StorageBackendError
from ontologia.objects.failures import ConditionFailed
from ontologia.objects.store import Objects

_log = logging.getLogger(__name__)
_proven: set[str] = set()
_lock = threading.Lock()


def prove_conditions(objects: Objects) -> None:
    """Refuse, with `StorageBackendError`, a store that ignores conditions. Once per store and process: five
    requests.

    The probe is `_probe/<random>.json` and is removed again; without the right to delete, it stays and is harmless.
    Names that start with `_` are nobody's: at the root of frames, a folder `meta` would be a hive.
    """
    if objects.identity in _proven:
        return
    with _lock:
        if objects.identity in _proven:
            return
        key = f"_probe/{uuid.uuid4().hex}.json"
        try:
            _probe(objects, key)
        finally:
            try:
                objects.delete(key)
            except OntologiaError as error:
                _log.warning("the probe object stays behind: %s", error)
        _proven.add(objects.identity)


def _probe(objects: Objects, key: str) -> None:
    first = objects.put_if_absent(key, b'{"probe": 1}')
    try:
        objects.put_if_absent(key, b'{"probe": 2}')
    except ConditionFailed:
        pass
    else:
        raise _ignored(objects, key, "If-None-Match", "created an object that exists")
    try:
        objects.put_if_match(key, b'{"probe": 3}', first)
    except ConditionFailed as error:
        raise StorageBackendError(
            f"{objects.uri} refused a put on the version it had just returned ({first}), so compare-and-swap "
            "cannot work there: use a store with working conditional writes (If-Match)",
            context={"operation": "prove_conditions", "url": objects.url(key), "kind": "conditions_broken"},
        ) from error
    try:
        objects.put_if_match(key, b'{"probe": 4}', first)
    except ConditionFailed:
        return
    raise _ignored(objects, key, "If-Match", "replaced a version that was gone")


def _ignored(objects: Objects, key: str, header: str, what: str) -> StorageBackendError:
    return StorageBackendError(
        f"{objects.uri} ignores the {header} condition: it {what}. Two writers could overwrite each other "
        "unseen, so nothing is written there. Use a store that honours conditional writes (AWS S3, GCS, MinIO, "
        "SeaweedFS, …), not a gateway that drops them",
        context={"operation": "prove_conditions", "url": objects.url(key), "kind": "conditions_ignored"},
    )
