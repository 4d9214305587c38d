"""Schema changes of a graph: types added, changed and dropped in one commit, under the lease of branch control."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ontologia.engines.omnigraph.engine import GraphEngine
from ontologia.errors import BranchError, MigrationError, MissingUpgraderError
from ontologia.model import Declaration, TypeRef, TypeSchemaDiff
from ontologia.omnigraph.graph import Graph
from ontologia.omnigraph.leases import CONTROL
from ontologia.runtime import migration
from ontologia.runtime.upgraders import Upgraders


@dataclass(frozen=True)
class SchemaPlan:
    """What applying some classes would do to a graph."""

    added: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    changed: list[TypeSchemaDiff] = field(default_factory=list)
    missing_upgraders: list[tuple[str, int]] = field(default_factory=list)
    data_loss: list[str] = field(default_factory=list)  #: types and fields whose values would be gone

    @property
    def has_changes(self) -> bool:
        return bool(self.added or self.dropped or self.changed)


def plan_schema(engine: GraphEngine, declarations: Sequence[Declaration], upgraders: Upgraders) -> SchemaPlan:
    """Compare classes with what is stored; types that are stored and not among the classes would be dropped."""
    catalog = engine.catalog()
    steps = migration.plan_steps(engine, catalog, engine.schema_versions(), declarations, upgraders)
    named = {declaration.ref for declaration in declarations}
    dropped = sorted(catalog.layouts.keys() - named)
    losses = [str(ref) for ref in dropped]
    losses += [f"{step.ref.name}.{name}" for step in steps for name in step.difference.removed]
    return SchemaPlan(
        sorted(ref.name for ref in named - catalog.layouts.keys()),
        [ref.name for ref in dropped],
        [step.difference for step in steps],
        [missing for step in steps for missing in step.missing],
        losses,
    )


def apply_schema(
    graph: Graph,
    declarations: Sequence[Declaration],
    upgraders: Upgraders,
    *,
    allow_data_loss: bool = False,
    actor: str | None = None,
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
                f"values of {', '.join(plan.data_loss)} would be gone: pass allow_data_loss=True to let them go"
            )
        with engine.write() as transaction:
            return _apply(engine, transaction, declarations, upgraders)


def _apply(engine: GraphEngine, transaction: Any, declarations: Sequence[Declaration], upgraders: Upgraders) -> int:
    catalog = transaction.catalog
    versions = [version for ref in catalog.layouts for version in transaction.recorded(ref)]
    steps = migration.plan_steps(engine, catalog, versions, declarations, upgraders)
    rewritten: dict[TypeRef, int] = {step.ref: migration.rewrite_rows(transaction, step, upgraders) for step in steps}
    named = {declaration.ref: declaration for declaration in declarations}
    for ref in sorted(named.keys() - catalog.layouts.keys()):
        transaction.activate(named[ref].schema)
    for ref in sorted(catalog.layouts.keys() - named.keys()):
        transaction.drop(ref, purge=False)
    number: int = transaction.publish(migration.commit_metadata(steps, rewritten))
    return number
