"""Where objects lie under the prefix (RFC 0004 §2.1–§2.3, §6; RFC 0009 §4)."""

from __future__ import annotations

import re

from ontologia.engines.locks import WRITE_LOCK
from ontologia.errors import ValidationError
from ontologia.files.names import encode_name
from ontologia.model import Kind, TypeRef

HEAD = "meta/head.json"
COPY = "meta/copy.json"
"""The head of a copy in the making, beside which there is none, or that of the store it is to replace."""
ENGINE = "meta/engine.json"
TYPES = "meta/schema/types.json"
DROPPED = "meta/schema/dropped.json"
VERSIONS = "meta/schema/versions/"
LAYOUTS = "meta/type_layout_catalog.json"
COMMITS = "commits/"
SNAPSHOTS = "snapshots/"
STAGING = "staging/"
INDICES = "meta/indices/"
COMPACTED = "meta/compacted/"
"""Records of files that are gone, because a snapshot has their rows; the head names the one in force."""
LOCKS = "meta/locks/"
PROBES = ("_probe/", "meta/probe-")  # where the proof of conditions leaves its object, now and in older releases

LONGEST_NAME = 200
"""In bytes, encoded: a file name ends at 255, and there is more to it than the name."""
_PLURAL: dict[Kind, str] = {"entity": "entities", "relation": "relations"}
_ATTEMPT = re.compile(r"commits/(\d+)-([0-9a-f]+)/")


def check_name(ref: TypeRef) -> None:
    """Refuse a type whose name makes no key: found here, before anything is written."""
    if len(encode_name(ref.name).encode()) > LONGEST_NAME:
        raise ValidationError(f"{ref.kind} {ref.name[:40]!r}… cannot be kept in a bucket: its name is too long")


def _folder(ref: TypeRef) -> str:
    return f"{_PLURAL[ref.kind]}/{encode_name(ref.name)}"


def lock(name: str = WRITE_LOCK) -> str:
    return f"{LOCKS}{encode_name(name)}.json"


def index(ref: TypeRef) -> str:
    return f"{INDICES}{_folder(ref)}.json"


def versions(ref: TypeRef) -> str:
    return f"{VERSIONS}{_folder(ref)}.json"


def attempt(commit_id: int, attempt_id: str) -> str:
    """The folder of one attempt at a commit. Attempts never share a key, so they cannot overwrite each other."""
    return f"{COMMITS}{commit_id}-{attempt_id}/"


def manifest(folder: str) -> str:
    return f"{folder}manifest.json"


def folder_of(manifest_path: str) -> str:
    return manifest_path.removesuffix("manifest.json")


def attempt_of(key: str) -> tuple[int, str] | None:
    """The commit id and the folder an object belongs to, if it is part of an attempt."""
    found = _ATTEMPT.match(key)
    return None if found is None else (int(found[1]), found[0])


def data_v1(folder: str, ref: TypeRef, version: int) -> str:
    return f"{folder}{_folder(ref)}.parquet"


def data_v2(folder: str, ref: TypeRef, version: int) -> str:
    return f"{folder}{_folder(ref)}/v{version}.parquet"


def snapshot_v1(ref: TypeRef, version: int, first: int, last: int) -> str:
    return f"{SNAPSHOTS}{_folder(ref)}-{first}-{last}.parquet"


def may_be_of(key: str, ref: TypeRef) -> bool:
    """Whether a data file may have rows of a type, by its path. One whose path says no type may."""
    found = re.match(r"(?:commits/[^/]+|snapshots)/((?:entities|relations)/.*)", key)
    if found is None:
        return True
    behind = found[1].removeprefix(_folder(ref))
    return behind != found[1] and re.match(r"/|\.parquet$|-\d+-\d+", behind) is not None


def another(snapshot: str, attempt_id: str) -> str:
    """Another name for a snapshot of the same range."""
    return f"{snapshot.removesuffix('.parquet')}-{attempt_id}.parquet"


def snapshot_v2(ref: TypeRef, version: int, first: int, last: int) -> str:
    return f"{SNAPSHOTS}{_folder(ref)}/v{version}-{first}-{last}.parquet"
