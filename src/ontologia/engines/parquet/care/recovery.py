"""A head that is lost or damaged is made again from the manifests, which name their parents and never change."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ontologia.engines.forgetting import FORGET
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.log.log import Log
from ontologia.engines.parquet.log.records import CommitManifest, Head
from ontologia.engines.parquet.log.swapping import swap_head, written_meanwhile_error
from ontologia.errors import StorageBackendError, ValidationError
from ontologia.files.json_objects import now
from ontologia.objects import Lease, ObjectNotFound, Objects


@dataclass(frozen=True, slots=True)
class HeadRecovery:
    """The head that would be written, and why. `token` binds it to this state of the store.

    `is_certain` says whether something else proves that the commit was made: a commit is complete before its head is
    swapped, so that the last one may be one that nobody was told of.
    """

    commit_id: int
    manifest_path: str
    schema_manifest_path: str | None
    reason: str
    is_certain: bool
    token: str
    compacted_path: str | None = None
    """The record of what stands for files that are gone."""
    applied: bool = False


def plan_recovery(objects: Objects, manifest_path: str | None = None) -> HeadRecovery:
    """Find the newest commit whose chain is whole, or take the one that is named."""
    log = Log(objects)
    raw, reason, named = _read_damaged_head(log)
    manifests = _readable(log)
    chains = {path: chain for path in manifests if (chain := _chain(manifests, path)) is not None}
    if not chains:
        raise StorageBackendError(f"{objects.uri} has no commit whose chain of manifests is whole: restore a backup")
    proven = _proven(log, manifests) | ({named} if named is not None else set())
    path = _choose(objects, chains, proven) if manifest_path is None else manifest_path
    if path not in chains:
        raise ValidationError(f"{path} is not a manifest with a whole chain; there are {', '.join(sorted(chains))}")
    schemas = next((step for step in chains[path] if manifests[step].schemas is not None), None)
    token = hashlib.sha256(f"recover {objects.uri} {path} ".encode() + raw).hexdigest()[:32]
    record = _record(log, [manifests[step] for step in chains[path]])
    return HeadRecovery(manifests[path].commit_id, path, schemas, reason, path in proven, token, record)


def recover(objects: Objects, lease: Lease, token: str | None, manifest_path: str | None = None) -> HeadRecovery:
    """Write the head that was planned, while no writer is at work."""
    with lease:
        plan = plan_recovery(objects, manifest_path)
        if token != plan.token:
            raise ValidationError(f"{objects.uri}: recovering needs the token of a preview of this very state")
        head = Head(
            plan.commit_id,
            plan.manifest_path,
            now(),
            "onto-recover",
            plan.schema_manifest_path,
            compacted_path=plan.compacted_path,
        )
        found = objects.head(paths.HEAD)
        etag = None if found is None else found.etag
        swap_head(objects, paths.HEAD, head, etag=etag, lost=lambda _: written_meanwhile_error(objects))
    return HeadRecovery(**{name: getattr(plan, name) for name in HeadRecovery.__slots__} | {"applied": True})


def _read_damaged_head(log: Log) -> tuple[bytes, str, str | None]:
    """The bytes of the head, what is wrong with it, and the manifest it names. A good one needs no recovery."""
    try:
        raw = log.objects.get(paths.HEAD).data
    except ObjectNotFound:
        if not log.objects.exists(paths.ENGINE):
            raise ValidationError(f"there is no ontology at {log.objects.uri}, so there is none to recover") from None
        return b"", "it is missing", None
    try:
        head = log.head().head
    except StorageBackendError as problem:
        return raw, str(problem), None
    if head.manifest_path is None:
        raise ValidationError(f"the head of {log.objects.uri} says that nothing was committed: nothing to recover")
    try:
        manifest = log.manifest(head.manifest_path)
    except StorageBackendError as problem:
        return raw, str(problem), None
    if manifest.commit_id != head.commit_id:
        return raw, f"it says commit {head.commit_id}, and its manifest {manifest.commit_id}", None
    raise ValidationError(f"the head of {log.objects.uri} is well, at commit {head.commit_id}: nothing to recover")


def _readable(log: Log) -> dict[str, CommitManifest]:
    keys = [info.key for info in log.objects.list(paths.COMMITS) if info.key.endswith("/manifest.json")]

    def read(key: str) -> CommitManifest | None:
        try:
            return log.manifest(key)
        except StorageBackendError:
            return None

    found = zip(keys, log.objects.map(read, keys), strict=True)
    return {key: manifest for key, manifest in found if manifest is not None}


def _chain(manifests: dict[str, CommitManifest], path: str) -> list[str] | None:
    """The manifests from one back to the first commit; None where the chain breaks."""
    found: list[str] = []
    expected = manifests[path].commit_id
    step: str | None = path
    while step is not None:
        manifest = manifests.get(step)
        if manifest is None or manifest.commit_id != expected:
            return None
        found.append(step)
        step, expected = manifest.parent_manifest_path, expected - 1
    return found if expected == 0 else None


def _proven(log: Log, manifests: dict[str, CommitManifest]) -> set[str]:
    """The manifests that were committed for sure: a later one builds on them, or an index names their files."""
    found = {manifest.parent_manifest_path for manifest in manifests.values()} - {None}
    folders = {paths.folder_of(path): path for path in manifests}
    refs = {file.ref for manifest in manifests.values() for file in manifest.files}
    for ref in refs:
        try:
            entries = log.index(ref).index.entries
        except StorageBackendError:
            continue
        for entry in entries:
            attempt = paths.attempt_of(entry.path)
            if attempt is not None and attempt[1] in folders:
                found.add(folders[attempt[1]])
    return {path for path in found if path is not None}


def _record(log: Log, chain: list[CommitManifest]) -> str | None:
    """The record that the lost head named: the newest one whose files are there, of those that say what the chain says
    about where history begins. One whose writer died before its swap says no less of the files that are gone."""
    said = (m.metadata.get("base_commit_id") for m in chain if m.metadata.get("kind") == FORGET)
    base = next((base for base in said if isinstance(base, int)), 0)  # what users note is text
    there = {info.key for folder in (paths.COMMITS, paths.SNAPSHOTS) for info in log.objects.list(folder)}
    for info in sorted(log.objects.list(paths.COMPACTED), key=lambda info: info.modified, reverse=True):
        try:
            record = log.compacted(Head(0, None, "", "", compacted_path=info.key))
        except StorageBackendError:
            continue
        if record.base == base and record.files <= there:
            return info.key
    if base:
        raise StorageBackendError(
            f"history begins at commit {base} of {log.objects.uri}, and no whole record under {paths.COMPACTED} "
            "says what was there then: restore a backup"
        )
    return None


def _choose(objects: Objects, chains: dict[str, list[str]], proven: set[str]) -> str:
    newest = max(len(chain) for chain in chains.values())
    candidates = sorted(path for path, chain in chains.items() if len(chain) == newest)
    certain = [path for path in candidates if path in proven]
    if len(candidates) > 1 and len(certain) != 1:
        raise ValidationError(
            f"{objects.uri} has several attempts at commit {newest}, and nothing tells which one was made: choose with "
            f"--manifest {' or '.join(candidates)}"
        )
    return (certain or candidates)[0]
