"""Laying out a prefix, and starting it over (RFC 0004 §7, RFC 0009 §4.1)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from ontologia.engines.parquet import paths
from ontologia.engines.parquet.records import Head, KnownTypes, encoded, now, parsed
from ontologia.errors import StorageBackendError, ValidationError
from ontologia.objects import ConditionFailed, ObjectNotFound, Objects, prove_conditions

ENGINE_VERSIONS = ("v1", "v2")


def stored_version(objects: Objects) -> str:
    """The engine version a prefix is stamped with; one without a stamp is v1 (RFC 0009 §7.1)."""
    try:
        blob = objects.get(paths.ENGINE)
    except ObjectNotFound:
        return "v1"

    def read(body: Mapping[str, object]) -> str:
        if body["backend"] != "s3":
            raise ValidationError(
                f"{objects.uri} is in use by the engine {body['backend']!r}; open it with that, or use another prefix"
            )
        return str(body["engine_version"])

    return parsed(blob.data, objects.url(paths.ENGINE), read)


def planned_objects(engine_version: str) -> dict[str, bytes]:
    """What an empty store consists of; the head comes last, because it makes the store exist."""
    found = {
        paths.ENGINE: encoded({"backend": "s3", "engine_version": engine_version, "created_at": now()}),
        paths.TYPES: encoded(KnownTypes(updated_at=now()).body()),
    }
    if engine_version == "v2":
        found[paths.LAYOUTS] = encoded({"layouts": []})
    found[paths.HEAD] = encoded(Head(0, None, now(), "onto-init").body())
    return found


def check_free(objects: Objects) -> None:
    """Refuse a prefix that holds an ontology, or anything else."""
    if objects.exists(paths.HEAD):
        raise ValidationError(f"{objects.uri} holds an ontology already; re-initialize it with force, which empties it")
    leftovers = {paths.ENGINE, paths.TYPES, paths.LAYOUTS}  # of an initialization that was cut off
    for info in objects.list():
        if info.key not in leftovers:
            raise ValidationError(f"{objects.uri} is not empty (it has {info.key}); choose another prefix")


def initialize(objects: Objects, engine_version: str) -> list[str]:
    """Lay out an empty store. Of several who try at once, one succeeds."""
    prove_conditions(objects)
    check_free(objects)
    writes = planned_objects(engine_version)
    for key, body in writes.items():
        if key != paths.HEAD:
            objects.put(key, body)
    try:
        objects.put_if_absent(paths.HEAD, writes[paths.HEAD])
    except ConditionFailed:
        raise ValidationError(f"{objects.uri} was initialized by somebody else just now") from None
    if stored_version(objects) != engine_version:
        raise StorageBackendError(f"{objects.uri} was initialized by two at once with different engine versions")
    return list(writes)


def reset_token(objects: Objects) -> str:
    """Binds a re-initialization to exactly what would be lost."""
    blob = objects.get(paths.HEAD)
    return hashlib.sha256(f"reset {objects.uri} {blob.etag}".encode() + blob.data).hexdigest()[:32]


def reset(objects: Objects, engine_version: str) -> list[str]:
    """Empty the prefix and lay it out anew. The head goes first, so that nobody reads a store half gone."""
    objects.delete(paths.HEAD)
    objects.delete_many([info.key for info in objects.list() if info.key != paths.HEAD])
    return initialize(objects, engine_version)
