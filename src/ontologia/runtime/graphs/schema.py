"""Schema changes of a graph: types added, changed, renamed and dropped in one commit, while no branch comes or goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ontologia.engines.catalog import Catalog, SchemaVersion
from ontologia.engines.omnigraph.engine import GraphEngine
from ontologia.engines.omnigraph.transaction import GraphEngineTransaction
from ontologia.engines.omnigraph.types import GraphType
from ontologia.errors import BranchError, MigrationError, MissingUpgraderError
from ontologia.model import Declaration, TypeRef, TypeSchemaDiff
from ontologia.model.upgraders import Upgraders
from ontologia.omnigraph.graph import Graph
from ontologia.omnigraph.leases import CONTROL
from ontologia.runtime import migration
from ontologia.runtime.migration.planning import Step, plan_steps


@dataclass(frozen=True)
class SchemaPlan:
    """What applying some classes would do to a graph."""

    added: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    changed: list[TypeSchemaDiff] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)  #: types and fields, by their stored names
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


def plan_schema(engine: GraphEngine, declarations: Sequence[Declaration], upgraders: Upgraders) -> SchemaPlan:
    """Compare classes with what is stored; types that are stored and not among the classes would be dropped."""
    return _plan(engine, engine.catalog(), engine.schema_versions(), declarations, upgraders).plan


def apply_schema(
    graph: Graph, declarations: Sequence[Declaration], upgraders: Upgraders, *, allow_data_loss: bool = False
) -> int | None:
    """One commit that brings main to these classes. Other branches would be left behind, so there must be none."""
    engine = GraphEngine(graph)
    with graph.leases.hold(CONTROL):
        others = [name for name in graph.branches() if name != "main"]
        plan = plan_schema(engine, declarations, upgraders)
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
                "say renamed_from= where they have another name now"
            )
        with engine.write() as transaction:
            assert isinstance(transaction, GraphEngineTransaction)
            return _apply(engine, transaction, declarations, upgraders)


# --- planning ---


def _plan(
    engine: GraphEngine,
    catalog: Catalog,
    recorded: Sequence[SchemaVersion],
    declarations: Sequence[Declaration],
    upgraders: Upgraders,
) -> _Work:
    steps = plan_steps(engine, catalog, recorded, declarations, upgraders)
    changed = {step.ref for step in steps}
    noted: list[TypeRef] = []
    for declaration in declarations:
        layout = catalog.layouts.get(declaration.ref)
        if layout is None or layout.ref in changed:
            continue
        stored, code = GraphType(layout.schema), GraphType(declaration.schema)
        if stored.arrow != code.arrow:  # a vector has another length, which is no part of a schema's meaning
            versions = {it.schema_version_id: it.schema for it in recorded if it.ref == layout.ref}
            steps.append(migration.plan_step(engine, catalog, declaration, layout, versions, upgraders))
        elif stored.indexes != code.indexes:
            noted.append(layout.ref)
    named = {declaration.ref for declaration in declarations}
    moved = {step.ref for step in steps if step.new_ref != step.ref}
    added = sorted(named - catalog.layouts.keys() - {step.new_ref for step in steps})
    dropped = sorted(catalog.layouts.keys() - named - moved)
    losses = [str(ref) for ref in dropped]
    losses += [f"{step.ref.name}.{name}" for step in steps for name in step.difference.removed]
    plan = SchemaPlan(
        [ref.name for ref in added],
        [ref.name for ref in dropped],
        [step.difference for step in steps],
        {before: after for step in steps for before, after in _find_renamed(step)},
        [ref.name for ref in noted],
        [missing for step in steps for missing in step.missing],
        losses,
    )
    return _Work(plan, steps, added, dropped, noted)


def _find_renamed(step: Step) -> list[tuple[str, str]]:
    types = [] if step.new_ref == step.ref else [(step.ref.name, step.new_ref.name)]
    return types + [(f"{step.ref.name}.{before}", after) for before, after in step.difference.renamed]


# --- doing it ---


def _apply(
    engine: GraphEngine,
    transaction: GraphEngineTransaction,
    declarations: Sequence[Declaration],
    upgraders: Upgraders,
) -> int:
    catalog = transaction.catalog
    recorded = [version for ref in catalog.layouts for version in transaction.recorded(ref)]
    work = _plan(engine, catalog, recorded, declarations, upgraders)
    named = {declaration.ref: declaration for declaration in declarations}
    transaction.bring_back(named.keys() & catalog.dropped)
    rewritten = {step.ref: migration.rewrite_rows(transaction, step, upgraders) for step in work.steps}
    for ref in work.added:
        transaction.activate(named[ref].schema)
    for ref in work.noted:
        transaction.record(named[ref].schema, catalog.layouts[ref].schema_version_id)
    for ref in work.dropped:
        transaction.drop(ref, purge=False)
    return transaction.publish(migration.commit_metadata(work.steps, rewritten))
