"""Schema changes of a graph: types added, changed, renamed and dropped in one commit, while no branch comes or goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ontologia.engines.base import Catalog, SchemaVersion
from ontologia.engines.omnigraph.engine import GraphEngine
from ontologia.engines.omnigraph.transaction import GraphTransaction
from ontologia.engines.omnigraph.types import GraphType
from ontologia.errors import BranchError, MigrationError, MissingUpgraderError
from ontologia.model import Declaration, TypeRef, TypeSchemaDiff, diff
from ontologia.omnigraph.graph import Graph
from ontologia.omnigraph.leases import CONTROL
from ontologia.runtime import migration
from ontologia.runtime.graphs.renames import Renames
from ontologia.runtime.migration import Step
from ontologia.runtime.upgraders import Upgraders


@dataclass(frozen=True)
class SchemaPlan:
    """What applying some classes would do to a graph."""

    added: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    changed: list[TypeSchemaDiff] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    reindexed: list[str] = field(default_factory=list)  #: types whose classes ask for other indexes
    missing_upgraders: list[tuple[str, int]] = field(default_factory=list)
    data_loss: list[str] = field(default_factory=list)  #: types and fields whose values would be gone

    @property
    def has_changes(self) -> bool:
        return bool(self.added or self.dropped or self.changed or self.renamed or self.reindexed)


@dataclass(frozen=True)
class _Work:
    """A plan and what carries it out."""

    plan: SchemaPlan
    steps: Sequence[Step]  #: types whose rows are written anew
    added: Sequence[TypeRef]
    dropped: Sequence[TypeRef]
    noted: Sequence[TypeRef]  #: types whose indexes are noted, and nothing else
    upgraders: Upgraders


def plan_schema(
    engine: GraphEngine, declarations: Sequence[Declaration], upgraders: Upgraders, renames: Mapping[str, str]
) -> SchemaPlan:
    """Compare classes with what is stored; types that are stored and not among the classes would be dropped."""
    return _plan(engine, engine.catalog(), engine.schema_versions(), declarations, upgraders, renames).plan


def apply_schema(
    graph: Graph,
    declarations: Sequence[Declaration],
    upgraders: Upgraders,
    renames: Mapping[str, str],
    *,
    allow_data_loss: bool = False,
) -> int | None:
    """One commit that brings main to these classes. Other branches would be left behind, so there must be none."""
    engine = GraphEngine(graph)
    with graph.leases.hold(CONTROL):
        others = [name for name in graph.branches() if name != "main"]
        plan = plan_schema(engine, declarations, upgraders, renames)
        if not plan.has_changes:
            return None
        if others:
            raise BranchError(
                f"a schema is applied while main is the only branch; merge or delete {', '.join(others)} first"
            )
        if plan.missing_upgraders:
            raise MissingUpgraderError(plan.missing_upgraders)
        if plan.data_loss and not allow_data_loss:
            raise MigrationError(
                f"values of {', '.join(plan.data_loss)} would be gone: pass allow_data_loss=True to let them go, or "
                "renames= to keep them under another name"
            )
        with engine.write() as transaction:
            assert isinstance(transaction, GraphTransaction)
            return _apply(engine, transaction, declarations, upgraders, renames)


# --- planning ---


def _plan(
    engine: GraphEngine,
    catalog: Catalog,
    recorded: Sequence[SchemaVersion],
    declarations: Sequence[Declaration],
    upgraders: Upgraders,
    given: Mapping[str, str],
) -> _Work:
    renames = Renames.read(given, catalog, declarations)
    named = {declaration.ref: declaration for declaration in declarations}
    upgraders = dict(upgraders)
    steps: list[Step] = []
    noted: list[TypeRef] = []
    for ref, layout in sorted(catalog.layouts.items()):
        declaration = named.get(renames.ref(ref))
        if declaration is None:
            continue
        stored, code = renames.schema(layout.schema), declaration.schema
        if stored.fingerprint == code.fingerprint and GraphType(stored).arrow == GraphType(code).arrow:
            if stored == layout.schema:
                noted += [ref] if GraphType(stored).indexes != GraphType(code).indexes else []
                continue
        elif stored == layout.schema:
            steps += [_step(engine, catalog, recorded, declaration, ref, upgraders)]
            continue
        version = (ref.name, layout.schema_version_id)
        told = version in upgraders
        upgraders[version] = renames.upgrader(ref, upgraders.get(version))
        step = _step(engine, catalog, recorded, declaration, ref, upgraders)
        change, automatic = diff(stored, code, layout.schema_version_id), migration.is_automatic(stored, declaration)
        missing = [version] if step.rows and not automatic and not told else []
        steps.append(replace(step, difference=change, automatic=automatic, missing=[*step.missing, *missing]))
    return _work(catalog, named, renames, given, steps, noted, upgraders)


def _step(
    engine: GraphEngine,
    catalog: Catalog,
    recorded: Sequence[SchemaVersion],
    declaration: Declaration,
    ref: TypeRef,
    upgraders: Upgraders,
) -> Step:
    versions = {version.schema_version_id: version.schema for version in recorded if version.ref == ref}
    return migration.plan_step(engine, catalog, declaration, catalog.layouts[ref], versions, upgraders)


def _work(
    catalog: Catalog,
    named: Mapping[TypeRef, Declaration],
    renames: Renames,
    given: Mapping[str, str],
    steps: Sequence[Step],
    noted: Sequence[TypeRef],
    upgraders: Upgraders,
) -> _Work:
    kept = {renames.ref(ref) for ref in catalog.layouts}
    added = sorted(named.keys() - kept)
    dropped = sorted(ref for ref in catalog.layouts if renames.ref(ref) not in named)
    losses = [str(ref) for ref in dropped]
    losses += [f"{step.ref.name}.{name}" for step in steps for name in step.difference.removed]
    plan = SchemaPlan(
        [ref.name for ref in added],
        [ref.name for ref in dropped],
        [step.difference for step in steps],
        dict(given),
        [ref.name for ref in noted],
        [missing for step in steps for missing in step.missing],
        losses,
    )
    return _Work(plan, steps, added, dropped, noted, upgraders)


# --- doing it ---


def _apply(
    engine: GraphEngine,
    transaction: GraphTransaction,
    declarations: Sequence[Declaration],
    upgraders: Upgraders,
    renames: Mapping[str, str],
) -> int:
    catalog = transaction.catalog
    recorded = [version for ref in catalog.layouts for version in transaction.recorded(ref)]
    work = _plan(engine, catalog, recorded, declarations, upgraders, renames)
    named = {declaration.ref: declaration for declaration in declarations}
    rewritten = {step.ref: _rewrite(transaction, step, work.upgraders) for step in work.steps}
    for ref in work.added:
        version = transaction.bring_back(ref) if ref in catalog.dropped else None
        transaction.activate(named[ref].schema, version)
    for ref in work.noted:
        transaction.record(named[ref].schema, catalog.layouts[ref].schema_version_id)
    for ref in work.dropped:
        transaction.drop(ref, purge=False)
    metadata: dict[str, Any] = migration.commit_metadata(work.steps, rewritten)
    return transaction.publish(metadata | ({"renames": dict(renames)} if renames else {}))


def _rewrite(transaction: GraphTransaction, step: Step, upgraders: Upgraders) -> int:
    """Rows of a type in its new version. Under a new name they move to another table, and the old one ends."""
    new = step.declaration.ref
    if new == step.ref:
        return migration.rewrite_rows(transaction, step, upgraders)
    stored = list(transaction.scan(step.ref))
    version = transaction.bring_back(new) if new in transaction.catalog.dropped else None
    layout = transaction.activate(step.declaration.schema, version)
    rows = migration.carry_over(transaction, layout, step, stored, upgraders)
    transaction.drop(step.ref, purge=False)
    return rows
