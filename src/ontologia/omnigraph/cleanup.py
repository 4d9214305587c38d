"""Forgetting old states: the most dangerous code here, so it deletes by lists of versions that nothing needs.

`find_roots` says what is needed. It looks after the candidates were listed, and under the lease of branch control.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from ontologia.errors import ValidationError
from ontologia.files.ages import parse_age
from ontologia.objects import utc_now
from ontologia.omnigraph.commits import ancestors_of, best_common
from ontologia.omnigraph.datasets import translate_errors
from ontologia.omnigraph.leases import CONTROL
from ontologia.omnigraph.manifest import CommitRecord, GraphManifest
from ontologia.omnigraph.names import ACTORS, COMMITS, MAIN, MANIFEST, RECOVERIES, branch_name, stored_branch
from ontologia.omnigraph.retired import forget_unneeded
from ontologia.omnigraph.snapshots import tags_of

if TYPE_CHECKING:
    from ontologia.omnigraph.graph import Graph

Lineage = tuple[str, str | None]  #: a dataset and a lineage of it


@dataclass
class CleanupReport:
    """Versions that were removed, or would be, per dataset and lineage; and forks of branches that are gone."""

    dry_run: bool
    versions: dict[str, list[int]] = field(default_factory=dict)
    forks: list[str] = field(default_factory=list)
    bytes_removed: int = 0

    @property
    def total(self) -> int:
        return sum(map(len, self.versions.values()))


def cleanup(graph: Graph, keep: int = 10, older_than: str | timedelta = "7d", *, dry_run: bool = True) -> CleanupReport:
    """Remove states that are beyond the newest `keep` commits of their branch and also older than `older_than`.

    A reader on an old state has `older_than` to finish. Recovery goes back by one commit, so at least that stays.
    """
    if keep < 1:
        raise ValidationError(f"keep is at least 1, the state that is current, not {keep}")
    age = older_than if isinstance(older_than, timedelta) else timedelta(seconds=parse_age(older_than))
    cutoff = utc_now() - age
    report = CleanupReport(dry_run)
    if dry_run:  # a preview writes nothing, not even a lease
        _clean(graph, keep, cutoff, report)
        return report
    graph.check_writable()
    with graph.leases.hold(CONTROL):  # no branch comes or goes, and no other cleanup runs
        _clean(graph, keep, cutoff, report)
    return report


def _clean(graph: Graph, keep: int, cutoff: datetime, report: CleanupReport) -> None:
    """Candidates are listed before roots are looked for: what is committed in between is a root, or no candidate."""
    _drop_forks(graph, report)
    stored = {lineage: _list_versions(graph, *lineage) for lineage in _list_lineages(graph)}
    graph.step("cleanup roots", "")
    roots = find_roots(graph, keep, cutoff, stored)
    for lineage, versions in sorted(stored.items(), key=str):
        newest = max(versions, default=0)
        needed = roots[lineage] | {newest}
        unneeded = [it for it, moment in sorted(versions.items()) if it not in needed and moment < cutoff]
        _remove(graph, *lineage, unneeded, report)


def _list_lineages(graph: Graph) -> list[Lineage]:
    """Every lineage of every dataset of the graph."""
    names = graph.branches()
    tables = {table.path for name in names for table in graph.publisher.manifest(name).tables.values()}
    found: list[Lineage] = [(MANIFEST, stored_branch(name)) for name in names]
    for path in (COMMITS, ACTORS, RECOVERIES, *sorted(tables)):
        if graph.datasets.find(path) is not None:
            found += [(path, None), *((path, branch) for branch in graph.datasets.branch_names(path))]
    return found


def _list_versions(graph: Graph, path: str, branch: str | None) -> dict[int, datetime]:
    dataset = graph.datasets.find(path, branch)
    if dataset is None:
        return {}
    with translate_errors("list versions of", dataset.uri):
        return {item["version"]: item["timestamp"].astimezone(UTC) for item in dataset.versions()}


# --- roots ---


def find_roots(
    graph: Graph, keep: int, cutoff: datetime, stored: Mapping[Lineage, Mapping[int, datetime]]
) -> Mapping[Lineage, set[int]]:
    """Every version that must stay, of every lineage. All maintenance that removes anything goes by this.

    A state is a version of `__manifest` on a branch. Needed are the newest commits of every branch and what is younger
    than the cutoff; what tags name; where branches began; the common ancestors of whatever can still be merged: every
    branch, and every branch that could be made from a state that stays. Of these states, and of those that deleted
    branches left behind, every table version; and what pending recoveries go back to.
    """
    roots: dict[Lineage, set[int]] = defaultdict(set)
    manifests = {name: graph.publisher.manifest(name) for name in graph.branches()}
    forks = graph.datasets.branches(MANIFEST)
    states: dict[str, set[int]] = {name: {manifest.version} for name, manifest in manifests.items()}
    for name in manifests:
        known = stored.get((MANIFEST, stored_branch(name)), {})
        states[name] |= {version for version, moment in known.items() if moment >= cutoff}
    for name, fork in forks.items():
        for branch in (branch_name(fork["parent_branch"]), name):  # a branch begins with its parent's number
            states.setdefault(branch, set()).add(fork["parent_version"])
    for branch, version in tags_of(graph).values():
        states.setdefault(branch, set()).add(version)
    for record in _find_kept_commits(graph, keep, cutoff, states):
        states.setdefault(record.branch, set()).add(record.manifest_version)
    for name, manifest in manifests.items():
        versions = _with_the_same_commit(graph, manifest, states[name], stored)
        roots[MANIFEST, stored_branch(name)] |= versions
        _add_pinned(manifest, versions, roots)
    for retired in graph.retired.list():
        for state in retired.states.values():
            for pin in state.pins:
                roots[pin.path, pin.branch].add(pin.version)
    for sidecar in graph.sidecars.pending():
        manifest = manifests.get(sidecar.branch, manifests[MAIN])
        for intent in sidecar.tables:
            if intent.table_key in manifest.tables:
                path = manifest.tables[intent.table_key].path
                roots[path, intent.table_branch] |= {intent.expected_version, intent.post_commit_pin}
    for path in {path for path, _ in stored} - {MANIFEST}:
        for branch, fork in graph.datasets.branches(path).items():
            roots[path, fork["parent_branch"]].add(fork["parent_version"])
            roots[path, branch].add(fork["parent_version"])
    return roots


def _find_kept_commits(
    graph: Graph, keep: int, cutoff: datetime, states: Mapping[str, set[int]]
) -> Iterable[CommitRecord]:
    """The newest commits of every branch, those after the cutoff, those of states that stay anyway; and the common
    ancestors of each of them with every branch."""
    heads, pool = graph.heads_and_commits()
    kept = {name for name, it in pool.items() if it.created_at >= cutoff}
    for head in heads.values():
        kept |= {record.graph_commit_id for record in islice(_first_parents(pool, head), keep)}
    for branch, versions in states.items():
        own = sorted((it.manifest_version, name) for name, it in pool.items() if it.branch == branch)
        for version in versions:
            place = bisect_right(own, (version, chr(0x10FFFF)))
            if place:
                kept.add(own[place - 1][1])
    known = {head: ancestors_of(pool, head) for head in heads.values()}
    bases = set()
    for commit in kept:
        earlier = ancestors_of(pool, commit) if any(commit not in ids for ids in known.values()) else set()
        for ids in known.values():
            if commit not in ids and (base := best_common(pool, earlier & ids)) is not None:
                bases.add(base.graph_commit_id)
    return [pool[commit] for commit in kept | bases]


def _first_parents(pool: Mapping[str, CommitRecord], start: str) -> Iterator[CommitRecord]:
    name: str | None = start
    while name is not None and name in pool:
        yield pool[name]
        name = pool[name].parent_commit_id


def _with_the_same_commit(
    graph: Graph, manifest: GraphManifest, versions: set[int], stored: Mapping[Lineage, Mapping[int, datetime]]
) -> set[int]:
    """These versions of `__manifest`, and those that it made of the same commits when it compacted itself."""
    begun = {it.manifest_version for it in graph.commit_log.pool(manifest.branch).values()}
    begun |= {manifest.head.manifest_version} if manifest.head is not None else set()
    ordered = sorted(begun)

    def commit_of(version: int) -> int:
        place = bisect_right(ordered, version)
        return ordered[place - 1] if place else 0

    kept = {commit_of(version) for version in versions}
    listed = stored.get((MANIFEST, stored_branch(manifest.branch)), {})
    return versions | {version for version in listed if commit_of(version) in kept}


def _add_pinned(manifest: GraphManifest, versions: set[int], roots: dict[Lineage, set[int]]) -> None:
    """What these states of a branch read, by the manifest version that published each pin."""
    for pins in manifest.history.values():
        for version in versions:
            visible = [pin for pin in pins if pin.published_at <= version]
            if visible:
                newest = visible[-1]
                roots[newest.path, newest.branch].add(newest.version)
        roots[pins[-1].path, pins[-1].branch].add(pins[-1].version)


# --- removal ---


def _remove(graph: Graph, path: str, branch: str | None, versions: list[int], report: CleanupReport) -> None:
    if not versions:
        return
    report.versions[f"{path}@{branch or MAIN}"] = versions
    if not report.dry_run:
        dataset = graph.datasets.open(path, branch)
        graph.step("cleanup", path)
        with translate_errors("clean up", dataset.uri):
            stats: Any = dataset.cleanup_old_versions(versions=versions, error_if_tagged_old_versions=False)
        report.bytes_removed += stats.bytes_removed


def _drop_forks(graph: Graph, report: CleanupReport) -> None:
    """Forks of branches that are gone, which their deletion could not remove; longest names first."""
    paths = {COMMITS} | {
        table.path for name in graph.branches() for table in graph.publisher.manifest(name).tables.values()
    }
    listed = [(path, name) for path in sorted(paths) for name in graph.datasets.branch_names(path)]
    alive = set(graph.datasets.branch_names(MANIFEST)) | forget_unneeded(graph, dry_run=report.dry_run)
    for path, name in sorted(listed, key=lambda item: (item[0], -len(item[1]), item[1])):
        if name not in alive:
            report.forks.append(f"{path}@{name}")
            if not report.dry_run:
                graph.step("cleanup fork", path)
                graph.datasets.drop_branch(path, name)
