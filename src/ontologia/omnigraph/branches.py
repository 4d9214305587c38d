"""Branches and tags of a graph. A branch is a Lance branch of `__manifest` and one of the commit graph; tables fork
when the branch first writes to them."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ontologia.errors import BranchError, OntologiaError, ValidationError
from ontologia.omnigraph.commits import ancestors_of, walk
from ontologia.omnigraph.datasets import translate_errors
from ontologia.omnigraph.leases import CONTROL
from ontologia.omnigraph.names import (
    COMMITS,
    MAIN,
    MANIFEST,
    SCHEMA_APPLY_LOCK,
    branch_name,
    check_branch_name,
    stored_branch,
)
from ontologia.omnigraph.retired import retire
from ontologia.omnigraph.snapshots import resolve, tags_of

if TYPE_CHECKING:
    from lance import LanceDataset

    from ontologia.omnigraph.graph import Graph
    from ontologia.omnigraph.manifest import GraphManifest

TAG = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Branch:
    """A branch: where it came from and where it is."""

    name: str
    parent: str | None
    forked_at: int | None  #: the parent's manifest version
    created_at: datetime | None
    head: str | None


def list_branches(graph: Graph) -> list[Branch]:
    known = graph.datasets.branches(MANIFEST)
    found = []
    for name in graph.branches():
        head = graph.publisher.manifest(name).head
        commit = None if head is None else head.graph_commit_id
        if name == MAIN:
            found.append(Branch(name, None, None, None, commit))
        else:
            fork = known[name]
            created = datetime.fromtimestamp(fork["create_at"], UTC)
            found.append(Branch(name, branch_name(fork["parent_branch"]), fork["parent_version"], created, commit))
    return found


def check_new_branch(
    graph: Graph, name: str, source: str = MAIN, main: LanceDataset | None = None
) -> tuple[str, GraphManifest]:
    """Refuse a name that is taken or cannot be one, and a source that is not there. The name, trimmed, and the state
    that the branch starts from."""
    known = graph.datasets.branch_names(MANIFEST)
    name = check_branch_name(name, known)
    if source == MAIN:
        return name, graph.publisher.manifest_in(main or graph.datasets.open(MANIFEST), MAIN)
    if source in known and source != SCHEMA_APPLY_LOCK:
        return name, graph.publisher.manifest(source)
    return name, resolve(graph, source)


def create_branch(graph: Graph, name: str, source: str = MAIN) -> str:
    """Fork `__manifest` (the authority), then the commit graph. Nothing is copied, and no table is touched."""
    graph.check_writable()
    with graph.leases.hold(CONTROL):
        datasets = graph.datasets
        manifest = datasets.open(MANIFEST)
        name, origin = check_new_branch(graph, name, source, manifest)
        parent = stored_branch(origin.branch)
        graph.step("branch manifest", name)
        datasets.make_branch(manifest, MANIFEST, name, parent, origin.version)
        try:
            graph.step("branch commits", name)
            log = datasets.open(COMMITS, parent)
            trunk = log if parent is None else datasets.open(COMMITS)
            datasets.make_branch(trunk, COMMITS, name, parent, log.version)
        except Exception:
            graph.datasets.drop_branch(MANIFEST, name)
            raise
    return name


def delete_branch(graph: Graph, name: str) -> None:
    """Delete a branch: its entry in `__manifest` first, which is the deletion; what remains goes now or at cleanup.

    What other branches need of it, because they merged it, is written down before."""
    graph.check_writable()
    with graph.leases.hold(CONTROL):
        check_deletable(graph, name)
        with graph.leases.hold(name):
            check_deletable(graph, name)  # again: it may have got a child or a tag before we had its lease
            graph.recovery.recover_branch(name)
            tables = list(graph.publisher.manifest(name).tables.values())
            retire(graph, name)
            graph.step("delete manifest", name)
            graph.datasets.drop_branch(MANIFEST, name)
            for path in [COMMITS, *(table.path for table in tables)]:
                graph.step("delete fork", path)
                _drop_quietly(graph, path, name)


def find_unmerged(graph: Graph, name: str) -> list[str]:
    """The commits that no other branch has, not by a merge either, newest first: what deleting this one loses."""
    graph.check_branch(name)
    heads, pool = graph.heads_and_commits()
    others = set().union(*(ancestors_of(pool, head) for branch, head in heads.items() if branch != name))
    return [it.graph_commit_id for it in walk(pool, heads.get(name)) if it.graph_commit_id not in others]


def check_deletable(graph: Graph, name: str) -> None:
    """Refuse to delete what is not there, or what others need."""
    if name == MAIN:
        raise BranchError("main cannot be deleted")
    graph.check_branch(name)
    known = graph.datasets.branches(MANIFEST)
    children = sorted(other for other, fork in known.items() if fork["parent_branch"] == name)
    if children:
        raise BranchError(f"branch {name!r} is the parent of {', '.join(children)}: delete those first")
    tagged = sorted(tag for tag, (branch, _) in tags_of(graph).items() if branch == name)
    if tagged:
        raise BranchError(f"branch {name!r} has the tags {', '.join(tagged)}: delete those first")
    for other in graph.branches():
        if other != name:
            used = [pin.key for pin in graph.publisher.manifest(other).pins.values() if pin.branch == name]
            if used:
                raise BranchError(f"branch {other!r} still reads {', '.join(used)} from {name!r}: delete it first")


def _drop_quietly(graph: Graph, path: str, name: str) -> None:
    try:
        if graph.datasets.find(path) is not None and name in graph.datasets.branches(path):
            graph.datasets.drop_branch(path, name)
    except OntologiaError as problem:
        _log.warning("a fork of the deleted branch %s is left at %s until the next cleanup: %s", name, path, problem)


def create_tag(graph: Graph, name: str, reference: str | int | None = None) -> None:
    """Name a commit. Its state is kept until the tag is deleted, whatever is cleaned up."""
    graph.check_writable()
    with graph.leases.hold(CONTROL):
        if not isinstance(name, str) or not TAG.fullmatch(name) or ".." in name or name.endswith(".lock"):
            raise ValidationError(f"{name!r} cannot name a tag: use letters, digits, '.', '-' and '_'")
        if name in graph.branches() or name in tags_of(graph):
            raise ValidationError(f"there is a branch or a tag {name!r} already: choose another name")
        manifest = resolve(graph, reference)
        dataset = graph.datasets.open(MANIFEST)
        with translate_errors("tag", dataset.uri):
            dataset.tags.create(name, (stored_branch(manifest.branch), manifest.version))


def delete_tag(graph: Graph, name: str) -> None:
    graph.check_writable()
    with graph.leases.hold(CONTROL):
        if name not in tags_of(graph):
            raise ValidationError(f"there is no tag {name!r}")
        dataset = graph.datasets.open(MANIFEST)
        with translate_errors("untag", dataset.uri):
            dataset.tags.delete(name)
