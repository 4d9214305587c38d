"""Laying out a prefix, and starting it over (RFC 0004 §7, RFC 0009 §4.1)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from ontologia.engines.features import Stamp
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.log.records import Head
from ontologia.engines.parquet.log.schemas import KnownTypes
from ontologia.engines.parquet.log.swapping import swap_head
from ontologia.errors import ValidationError
from ontologia.files.json_objects import encode, now, parse
from ontologia.objects import ConditionFailed, Lease, ObjectNotFound, Objects, new_uuid, prove_conditions


def read_version(objects: Objects) -> str:
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

    return parse(blob.data, objects.url(paths.ENGINE), read)


def use_feature(objects: Objects, feature: str) -> None:
    """Stamp a store with what it is about to use, before anything of it can be seen."""
    while True:
        try:
            blob = objects.get(paths.ENGINE)
        except ObjectNotFound:  # older than stamps (RFC 0009 §7.1)
            _create(objects, paths.ENGINE, plan_objects("v1")[paths.ENGINE])
            continue
        body = parse(blob.data, objects.url(paths.ENGINE), dict)
        stamp = Stamp.read(str(body["engine_version"]))
        if feature in stamp.features:
            return
        try:
            objects.put_if_match(
                paths.ENGINE, encode({**body, "engine_version": str(stamp.using([feature]))}), blob.etag
            )
        except ConditionFailed:
            continue  # somebody else stamped it, or laid it out anew


def plan_objects(engine_version: str) -> dict[str, bytes]:
    """What an empty store consists of; the head comes last, because it makes the store exist."""
    found = {
        paths.ENGINE: encode({"backend": "s3", "engine_version": engine_version, "created_at": now()}),
        paths.TYPES: encode(KnownTypes(updated_at=now()).body()),
    }
    if engine_version == "v2":
        found[paths.LAYOUTS] = encode({"layouts": []})
    found[paths.HEAD] = encode(Head(0, None, now(), "onto-init").body())
    return found


def check_free(objects: Objects) -> None:
    """Refuse a prefix that holds an ontology, or anything else but what an initialization leaves when it is cut off."""
    if objects.exists(paths.HEAD):
        raise ValidationError(
            f"{objects.uri} holds an ontology already; re-initialize it with force=True, which empties it"
        )
    leftovers = {paths.ENGINE, paths.TYPES, paths.LAYOUTS, paths.lock()}
    for info in objects.list():
        if info.key not in leftovers and not info.key.startswith(paths.PROBES):
            hint = "; initialize it with force to empty it" if is_half_empty(objects) else "; choose another prefix"
            raise ValidationError(f"{objects.uri} is not empty (it has {info.key}){hint}")


def is_half_empty(objects: Objects) -> bool:
    """Whether this is an ontology whose re-initialization was cut off: it has a stamp, and no head any more."""
    return objects.exists(paths.ENGINE) and not objects.exists(paths.HEAD)


def initialize(objects: Objects, engine_version: str) -> list[str]:
    """Lay out an empty store. Of several who try at once, one succeeds.

    Nothing is ever replaced here: one who is slow must not put an old stamp or an empty list over what the others have
    begun to use. So the first stamp stands, and the head makes the store exist.
    """
    prove_conditions(objects)
    check_free(objects)
    writes = plan_objects(engine_version)
    for key, body in writes.items():
        if key != paths.HEAD:
            _create(objects, key, body)
    if (stamped := read_version(objects)) != engine_version:
        raise ValidationError(
            f"{objects.url(paths.ENGINE)} says {stamped}, from an initialization beside this one or one that was cut "
            f"off: initialize with engine version {stamped}, or with force"
        )
    first = Head(0, None, now(), "onto-init", store_id=new_uuid().hex)
    swap_head(
        objects,
        paths.HEAD,
        first,
        etag=None,
        lost=lambda _: ValidationError(f"{objects.uri} was initialized by somebody else just now"),
    )
    return list(writes)


def _create(objects: Objects, key: str, body: bytes) -> None:
    try:
        objects.put_if_absent(key, body)
    except ConditionFailed:
        return


def reset_token(objects: Objects) -> str:
    """Binds a re-initialization to exactly what would be lost."""
    key = paths.ENGINE if is_half_empty(objects) else paths.HEAD
    blob = objects.get(key)
    return hashlib.sha256(f"reset {objects.uri} {blob.etag}".encode() + blob.data).hexdigest()[:32]


def reset(objects: Objects, engine_version: str, lease: Lease) -> list[str]:
    """Empty the prefix and lay it out anew, while no writer is at work.

    The head goes first, so that nobody reads a store half gone, and the stamp last, so that a reset that was cut off is
    known for what it is and can be done again.
    """
    prove_conditions(objects)
    with lease:
        _create(objects, paths.ENGINE, plan_objects("v1")[paths.ENGINE])
        objects.delete(paths.HEAD)
        kept = (paths.HEAD, paths.ENGINE, lease.key)
        objects.delete_many([info.key for info in objects.list() if info.key not in kept])
        objects.delete(paths.ENGINE)
        return initialize(objects, engine_version)
