"""Forgetting old states: the most dangerous code here, so it deletes by lists of versions that nothing needs.

Needed are: the newest commits of every branch and all younger than the cutoff; what tags name; where branches were
forked; the common bases of all pairs of branches; and every table version that any of those pins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import TYPE_CHECKING, Any

from ontologia.errors import ValidationError
from ontologia.files.ages import parse_age
from ontologia.omnigraph.commits import merge_base
from ontologia.omnigraph.datasets import translate_errors
from ontologia.omnigraph.leases import CONTROL
from ontologia.omnigraph.manifest import GraphManifest
from ontologia.omnigraph.names import COMMITS, MAIN, MANIFEST, branch_name, stored_branch
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
    """Remove states that are beyond the newest `keep` of their branch and also older than `older_than`.

    A reader on an old state has `older_than` to finish. Recovery goes back by one commit, so at least that stays.
    """
    if keep < 1:
        raise ValidationError(f"keep is at least 1, the state that is current, not {keep}")
    age = older_than if isinstance(older_than, timedelta) else timedelta(seconds=parse_age(older_than))
    cutoff = datetime.now(UTC) - age
    report = CleanupReport(dry_run)
    if dry_run:  # a preview writes nothing, not even a lease
        _clean(graph, keep, cutoff, report)
        return report
    graph.check_writable()
    with graph.leases.hold(CONTROL):  # no branch comes or goes, and no other cleanup runs
        _clean(graph, keep, cutoff, report)
    return report


def _clean(graph: Graph, keep: int, cutoff: datetime, report: CleanupReport) -> None:
    _forks(graph, report)
    needed = _find_needed(graph, keep, cutoff)
    for (path, branch), versions in sorted(needed.items(), key=str):
        _versions(graph, path, branch, versions, cutoff, report)


def _find_needed(graph: Graph, keep: int, cutoff: datetime) -> Mapping[Lineage, set[int]]:
    """Every version that must stay, of every dataset and lineage."""
    needed: dict[Lineage, set[int]] = defaultdict(set)
    manifests = {name: graph.publisher.manifest(name) for name in graph.branches()}
    states: dict[str, set[int]] = {name: _recent(graph, name, keep, cutoff) for name in manifests}
    for name, fork in graph.datasets.branches(MANIFEST).items():
        states.setdefault(branch_name(fork["parent_branch"]), set()).add(fork["parent_version"])
        states.setdefault(name, set()).add(fork["parent_version"])  # a branch begins with its parent's number
    for branch, version in tags_of(graph).values():
        states.setdefault(branch, set()).add(version)
    for branch, version in _bases(graph, manifests):
        states.setdefault(branch, set()).add(version)
    for branch, versions in states.items():
        if branch in manifests:
            needed[MANIFEST, stored_branch(branch)] |= versions
            _add_pinned(manifests[branch], versions, needed)
    paths = {table.path for manifest in manifests.values() for table in manifest.tables.values()}
    for path in paths:
        for branch, fork in graph.datasets.branches(path).items():
            if branch in manifests:
                needed[path, fork["parent_branch"]].add(fork["parent_version"])
                needed[path, branch].add(fork["parent_version"])
    return needed


def _recent(graph: Graph, branch: str, keep: int, cutoff: datetime) -> set[int]:
    versions = _list_versions(graph, MANIFEST, stored_branch(branch))
    young = {version for version, moment in versions.items() if moment >= cutoff}
    return young | set(sorted(versions)[-keep:])


def _list_versions(graph: Graph, path: str, branch: str | None) -> dict[int, datetime]:
    dataset = graph.datasets.open(path, branch)
    with translate_errors("list versions of", dataset.uri):
        return {item["version"]: item["timestamp"].astimezone(UTC) for item in dataset.versions()}


def _bases(graph: Graph, manifests: Mapping[str, GraphManifest]) -> list[tuple[str, int]]:
    pool = graph.commit_log.read_pooled(list(manifests))
    heads = {name: graph.commit_log.head_of(manifest, pool) for name, manifest in manifests.items()}
    found = []
    for left, right in combinations(heads.values(), 2):
        if left in pool and right in pool:
            base = merge_base(pool, left, right)
            found.append((base.branch, base.manifest_version))
    return found


def _add_pinned(manifest: GraphManifest, versions: set[int], needed: dict[Lineage, set[int]]) -> None:
    """What these states of a branch read, by the manifest version that published each pin."""
    for pins in manifest.history.values():
        for version in versions:
            visible = [pin for pin in pins if pin.published_at <= version]
            if visible:
                newest = visible[-1]
                needed[newest.path, newest.branch].add(newest.version)
        needed[pins[-1].path, pins[-1].branch].add(pins[-1].version)


def _versions(
    graph: Graph, path: str, branch: str | None, needed: set[int], cutoff: datetime, report: CleanupReport
) -> None:
    stored = _list_versions(graph, path, branch)
    newest = max(stored)
    unneeded = [v for v, moment in sorted(stored.items()) if v not in needed and v != newest and moment < cutoff]
    if not unneeded:
        return
    report.versions[f"{path}@{branch or MAIN}"] = unneeded
    if not report.dry_run:
        dataset = graph.datasets.open(path, branch)
        graph.step("cleanup", path)
        with translate_errors("clean up", dataset.uri):
            stats: Any = dataset.cleanup_old_versions(versions=unneeded, error_if_tagged_old_versions=False)
        report.bytes_removed += stats.bytes_removed


def _forks(graph: Graph, report: CleanupReport) -> None:
    """Forks of branches that are gone, which their deletion could not remove; longest names first."""
    alive = set(graph.datasets.branches(MANIFEST))
    paths = {COMMITS} | {
        table.path for name in graph.branches() for table in graph.publisher.manifest(name).tables.values()
    }
    for path in sorted(paths):
        for name in sorted(set(graph.datasets.branches(path)) - alive, key=len, reverse=True):
            report.forks.append(f"{path}@{name}")
            if not report.dry_run:
                graph.datasets.drop_branch(path, name)
