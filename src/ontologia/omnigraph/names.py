"""Names on disk: where a type's dataset lies, what a branch may be called, and ids that sort by time."""

from __future__ import annotations

import os
import re
import threading
import time
from urllib.parse import quote

from ontologia.errors import BranchError, ValidationError

MANIFEST = "__manifest"
COMMITS = "_graph_commits.lance"
ACTORS = "_graph_commit_actors.lance"
RECOVERIES = "_graph_commit_recoveries.lance"
SIDECARS = "__recovery"
LEASES = "__leases"
RETIRED = "__retired"

EMPTY = 3
"""The manifest version of a graph that was just made. A commit's number is its manifest version, counted from there."""
MAIN = "main"
SCHEMA_APPLY_LOCK = "__schema_apply_lock__"  #: of the original, which locks by a branch; we lock by a lease

_FOLDERS = {"node": "nodes", "edge": "edges"}
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def fnv1a64_hex(name: str) -> str:
    """FNV-1a, 64 bits, over the name's UTF-8 bytes: fixed in length and safe where case is not kept.

    >>> fnv1a64_hex("Person")
    '40d76f1f51639ec0'
    """
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def table_key(kind: str, name: str) -> str:
    """`node:Person`, `edge:Knows`."""
    if kind not in _FOLDERS:
        raise ValidationError(f"a graph has nodes and edges, not {kind!r}")
    return f"{kind}:{name}"


def table_path(key: str) -> str:
    """Where the dataset of a table lies below the root."""
    kind, _, name = key.partition(":")
    return f"{_FOLDERS[kind]}/{fnv1a64_hex(name)}"


def branch_path(path: str, branch: str | None) -> str:
    """Where Lance keeps a branch of a dataset; None is the main lineage."""
    return path if branch is None else f"{path}/tree/{branch}"


def stored_branch(branch: str) -> str | None:
    """A branch as rows name it: null for main."""
    return None if branch == MAIN else branch


def branch_name(stored: str | None) -> str:
    return MAIN if stored is None else stored


def lease_key(branch: str) -> str:
    return f"{LEASES}/{quote(branch, safe='')}.json"


def check_branch_name(name: str, existing: list[str]) -> str:
    """A name that a new branch may have, trimmed. Lance's own rules, and git's about prefixes."""
    if not isinstance(name, str) or not name.strip():
        raise BranchError("a branch needs a name")
    name = name.strip()
    segments = name.split("/")
    if name in (MAIN, SCHEMA_APPLY_LOCK):
        raise BranchError(f"{name!r} is a reserved branch name: choose another")
    if not all(_SEGMENT.fullmatch(segment) for segment in segments) or ".." in name or name.endswith(".lock"):
        raise BranchError(
            f"{name!r} cannot name a branch: use letters, digits, '.', '-' and '_' in parts joined by '/', "
            "no '..' and no ending '.lock'"
        )
    if name in existing:
        raise BranchError(f"branch {name!r} exists already: choose another name, or delete that one first")
    for other in existing:
        # Lance keeps branch a/b inside the folder of branch a: deleting one would take the other with it.
        if other.startswith(f"{name}/") or name.startswith(f"{other}/"):
            raise BranchError(f"{name!r} and the branch {other!r} would share a folder: choose another name")
    return name


class UlidSource:
    """ULIDs that never go back within a process: 48 bits of milliseconds, 80 bits of chance."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def new(self) -> str:
        with self._lock:
            value = (int(time.time() * 1000) << 80) | int.from_bytes(os.urandom(10))
            if value >> 80 <= self._last >> 80:
                value = self._last + 1
            self._last = value
        return "".join(_CROCKFORD[value >> shift & 31] for shift in range(125, -1, -5))


new_ulid = UlidSource().new
