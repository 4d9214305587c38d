"""Care of a graph: compaction, indexes and repair. None of it changes a row, all of it is published."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ontologia.errors import LockContentionError, RecoveryPendingError
from ontologia.omnigraph.datasets import is_missing, lance_error, operation_of, require_version, translate_errors
from ontologia.omnigraph.manifest import CommitRecord, GraphManifest, Table
from ontologia.omnigraph.names import MAIN, new_ulid, stored_branch
from ontologia.omnigraph.phases import CONTENT_PRESERVING, Commit, GraphWrite, TableWork, new_record, pin_of, run_phases
from ontologia.omnigraph.publisher import Publication
from ontologia.omnigraph.snapshots import StoredSnapshot

if TYPE_CHECKING:
    from lance import LanceDataset

    from ontologia.omnigraph.graph import Graph

SCALAR = {"btree": "BTREE", "bitmap": "BITMAP", "fts": "INVERTED"}
LANCE_NAMES = SCALAR | {"vector": "IVF_FLAT"}
WORDS: dict[str, Any] = {"base_tokenizer": "simple", "lower_case": True}
WORDS |= dict.fromkeys(("stem", "remove_stop_words", "ascii_folding"), False)
WORDS |= {"max_token_length": None}
"""How text becomes words: runs of letters and digits of any length in lower case, so that rows without an index are
searched by the same rule."""
REPAIR_ACTOR = "omnigraph:repair"
MIN_VECTORS = 256  #: fewer are searched as they are: an index of them would cost more than it saves


@dataclass(frozen=True)
class IndexState:
    """An index that a type declares: whether it is built, and how many rows it does not cover yet."""

    table_key: str
    column: str
    kind: str
    built: bool
    uncovered: int


@dataclass(frozen=True)
class Drift:
    """A table whose newest version is not the published one, or which has an index whose files are not there."""

    table_key: str
    published: int
    newest: int
    classification: Literal["no_drift", "verified_maintenance", "suspicious", "unverifiable", "broken_index"]
    action: Literal["no_op", "preview", "healed", "forced", "refused"]
    branch: str = MAIN


def optimize(graph: Graph, branch: str = MAIN, actor: str | None = None) -> CommitRecord | None:
    """Compact tables and bring indexes up to date, as one commit. Refused while a recovery is pending."""
    return _maintain(graph, branch, "Optimize", actor)


def ensure_indices(graph: Graph, branch: str = MAIN, actor: str | None = None) -> CommitRecord | None:
    """Build the declared indexes that are missing."""
    return _maintain(graph, branch, "EnsureIndices", actor)


def optimize_plan(graph: Graph, branch: str = MAIN) -> dict[str, list[str]]:
    """What `optimize` would do to which tables, in words."""
    planned = _plan(graph, graph.manifest(branch), compacting=True)
    return {key: [step.__doc__ or "" for step in steps] for key, steps in planned.items()}


def _plan(graph: Graph, manifest: GraphManifest, *, compacting: bool) -> dict[str, list[Upkeep]]:
    found = {}
    for key in _own_tables(manifest):
        dataset = StoredSnapshot(graph, manifest).dataset(key)
        found[key] = _steps(dataset, manifest.tables[key], compacting=compacting)
    return {key: steps for key, steps in found.items() if steps}


def _maintain(graph: Graph, branch: str, kind: Any, actor: str | None) -> CommitRecord | None:
    def prepare(manifest: GraphManifest) -> GraphWrite | None:
        planned = _plan(graph, manifest, compacting=kind == "Optimize")
        works = [TableWork(key, _applying(steps), 1) for key, steps in planned.items()]
        notes = {work.key: manifest.pins[work.key].notes for work in works}
        return GraphWrite(works, pin_notes={key: note for key, note in notes.items() if note}) if works else None

    graph.check_writable()
    refuse_while_pending(graph)
    return graph.write(branch, kind, prepare, actor=actor)


def refuse_while_pending(graph: Graph) -> None:
    """A write that stopped halfway might be undone; nothing may be published on top of it before that is settled."""
    for sidecar in graph.sidecars.pending():
        try:
            with graph.leases.hold(sidecar.branch, timeout_s=0):
                alive = sidecar.key not in graph.sidecars.names()
        except LockContentionError:
            alive = True  # its writer is at work, and will be waited for
        if not alive:
            raise RecoveryPendingError(
                f"the {sidecar.writer_kind} {sidecar.operation_id} on branch {sidecar.branch} stopped halfway: open "
                "the graph read-write, which recovers it, then try again"
            )


def _own_tables(manifest: GraphManifest) -> list[str]:
    """Tables whose data lies on this branch's own lineage: others' are their owners' to care for."""
    own = stored_branch(manifest.branch)
    return [key for key, pin in sorted(manifest.pins.items()) if pin.branch == own]


Upkeep = Callable[["LanceDataset"], None]
"""Something that is done to a dataset; its docstring says what, in a report."""


def _steps(dataset: LanceDataset, table: Table, *, compacting: bool) -> list[Upkeep]:
    steps: list[Upkeep] = []
    dropped: list[str] = []
    if compacting and _needs_compaction(dataset):
        dropped = _inherited_indexes(dataset)
        steps += [_drop(name) for name in dropped]
        steps.append(_compact)
    for state in index_states(dataset, table):
        if not state.built or f"{state.column}_idx" in dropped:
            steps.append(_build(state))
    if compacting and (steps or any(state.uncovered for state in index_states(dataset, table))):
        steps.append(_cover)
    return steps


def _applying(steps: Sequence[Upkeep]) -> Any:
    def apply(dataset: LanceDataset, commit: Commit) -> LanceDataset:
        before = dataset.version
        for step in steps:
            with translate_errors("maintain", dataset.uri):
                step(dataset)
        for version in range(before + 1, dataset.version + 1):
            kind, _ = operation_of(dataset, version)
            if kind not in CONTENT_PRESERVING:
                # Another writer's commit came in between: refuse what it would publish.
                require_version(dataset, before)
        return dataset

    return apply


def _needs_compaction(dataset: LanceDataset) -> bool:
    from lance.optimize import Compaction

    return bool(Compaction.plan(dataset, options={}).num_tasks())


def _compact(dataset: LanceDataset) -> None:
    """compact files"""
    dataset.optimize.compact_files()


def _inherited_indexes(dataset: LanceDataset) -> list[str]:
    """Indexes whose files lie on the lineage that a fork began on. Compaction would move them to the fork, and
    Lance look for them where they were: they are dropped before, and built anew."""
    indexes = dataset.describe_indices()
    return [it.name for it in indexes if any(segment.base_id is not None for segment in it.segments)]


def _drop(name: str) -> Upkeep:
    def drop(dataset: LanceDataset) -> None:
        dataset.drop_index(name)

    drop.__doc__ = f"drop the inherited index {name}"
    return drop


def _cover(dataset: LanceDataset) -> None:
    """bring indexes up to date"""
    if dataset.describe_indices():
        dataset.optimize.optimize_indices()


def _build(state: IndexState) -> Upkeep:
    def build(dataset: LanceDataset) -> None:
        if state.kind == "vector":
            dataset.create_index(state.column, "IVF_FLAT", metric="L2", num_partitions=1, replace=True)
        else:
            kind: Any = SCALAR[state.kind]
            words = WORDS if state.kind == "fts" else {}
            dataset.create_scalar_index(state.column, kind, replace=True, **words)

    build.__doc__ = f"build the {state.kind} index of {state.column}"
    return build


def declared_indexes(table: Table) -> dict[str, str]:
    """Columns and kinds: every id, both ends of an edge, and what the type declares."""
    ends = {"src": "btree", "dst": "btree"} if table.kind == "edge" else {}
    return {"id": "btree", **ends, **table.notes.get("indexes", {})}


def index_states(dataset: LanceDataset, table: Table) -> list[IndexState]:
    rows = dataset.count_rows()
    built = {item.name: item.num_rows_indexed for item in dataset.describe_indices() if _is_declared(item, table)}
    states = []
    for column, kind in declared_indexes(table).items():
        name = f"{column}_idx"
        if name in built:
            states.append(IndexState(table.key, column, kind, True, max(0, rows - built[name])))
        elif rows and not (kind == "vector" and rows - _nulls(dataset, column) < MIN_VECTORS):
            states.append(IndexState(table.key, column, kind, False, rows))
    return states


def _is_declared(index: Any, table: Table) -> bool:
    """Whether an index is of the kind that its column declares now: it may have been built for another."""
    kind = declared_indexes(table).get(index.name.removesuffix("_idx"))
    return kind is not None and LANCE_NAMES[kind] == index.index_type.upper() and finds_all_words(index)


def finds_all_words(index: Any) -> bool:
    """Whether an index splits texts by today's rule; earlier releases left long words out."""
    return index.index_type.upper() != "INVERTED" or index.details.get("max_token_length") is None


def _nulls(dataset: LanceDataset, column: str) -> int:
    return int(dataset.count_rows(f"`{column}` IS NULL"))


# --- repair ---


def repair(graph: Graph, branch: str | None = None, *, confirm: bool = False, force: bool = False) -> list[Drift]:
    """Find tables whose newest version is not the published one, and indexes that cannot be read, on one branch or on
    all. `confirm` publishes what is provably maintenance, and builds such indexes anew; with `force` it also publishes
    what is not."""
    names = graph.branches() if branch is None else [branch]
    if not confirm:  # a preview writes nothing
        return [drift for name in names for drift in _find_drift(graph, graph.manifest(name), confirm, force)]
    graph.check_writable()
    refuse_while_pending(graph)
    return [drift for name in names for drift in _repair(graph, name, force)]


def _repair(graph: Graph, branch: str, force: bool) -> list[Drift]:
    with graph.writing(branch) as (lease, manifest):
        found = _find_drift(graph, manifest, True, force)
        settled = [drift for drift in found if drift.action in ("healed", "forced")]
        if any(drift.newest != drift.published for drift in settled):
            lease.guard()
            manifest = _publish_newest(graph, manifest, [it for it in settled if it.newest != it.published])
        broken = {key: names for key in _own_tables(manifest) if (names := _broken_indexes(graph, manifest, key))}
        if broken:
            works = [TableWork(key, _applying(_rebuild(graph, manifest, key, broken[key])), 1) for key in broken]
            notes = {key: manifest.pins[key].notes for key in broken if manifest.pins[key].notes}
            run_phases(graph, lease, manifest, "EnsureIndices", GraphWrite(works, pin_notes=notes), actor=REPAIR_ACTOR)
        return found


def _find_drift(graph: Graph, manifest: GraphManifest, confirm: bool, force: bool) -> list[Drift]:
    found = []
    for key in _own_tables(manifest):
        drift = _drift(graph, manifest, key, confirm, force)
        if drift.classification == "no_drift" and _broken_indexes(graph, manifest, key):
            drift = replace(drift, classification="broken_index", action="healed" if confirm else "preview")
        found.append(drift)
    return found


def _broken_indexes(graph: Graph, manifest: GraphManifest, key: str) -> list[str]:
    """Indexes of a table that Lance cannot open: a release that compacted forks left such behind."""
    dataset = StoredSnapshot(graph, manifest).dataset(key)
    broken = []
    for name in sorted({index.name for index in dataset.describe_indices()}):
        try:
            dataset.stats.index_stats(name)
        except (OSError, ValueError, RuntimeError) as problem:
            if not is_missing(problem):
                raise lance_error("look at an index of", dataset.uri, problem) from problem
            broken.append(name)
    return broken


def _rebuild(graph: Graph, manifest: GraphManifest, key: str, names: Sequence[str]) -> list[Upkeep]:
    dataset, table = StoredSnapshot(graph, manifest).dataset(key), manifest.tables[key]
    states = [state for state in index_states(dataset, table) if f"{state.column}_idx" in names]
    return [*(_drop(name) for name in names), *(_build(state) for state in states)]


def _drift(graph: Graph, manifest: GraphManifest, key: str, confirm: bool, force: bool) -> Drift:
    pin = manifest.pins[key]
    newest = graph.datasets.open(pin.path, pin.branch)
    if newest.version == pin.version:
        return Drift(key, pin.version, newest.version, "no_drift", "no_op", manifest.branch)
    kinds = [operation_of(newest, version)[0] for version in range(pin.version + 1, newest.version + 1)]
    classification: Any = "suspicious"
    if "Unreadable" in kinds:
        classification = "unverifiable"
    elif all(kind in ("Rewrite", "BaseOperation") for kind in kinds):
        classification = "verified_maintenance"
    action: Any = "preview"
    if confirm:
        action = "healed" if classification == "verified_maintenance" else ("forced" if force else "refused")
    return Drift(key, pin.version, newest.version, classification, action, manifest.branch)


def _publish_newest(graph: Graph, manifest: GraphManifest, drifts: Sequence[Drift]) -> GraphManifest:
    pins, expected = [], {}
    for drift in drifts:
        pin = manifest.pins[drift.table_key]
        dataset = graph.datasets.open(pin.path, pin.branch, drift.newest)
        notes = manifest.pins[pin.key].notes | graph.datasets.metadata(dataset, pin.path, pin.branch)
        pins.append(pin_of(pin.key, pin.path, pin.branch, dataset, notes))
        expected[pin.key] = pin.version
    forced = any(drift.action == "forced" for drift in drifts)
    actor = f"{REPAIR_ACTOR}:force" if forced else REPAIR_ACTOR
    record = new_record(new_ulid(), manifest, actor, "Repair", GraphWrite())
    published = graph.publisher.publish(manifest.branch, Publication(pins, expected=expected), record)
    assert published.head is not None
    graph.commit_log.append_quietly(manifest.branch, published.head)
    return published
