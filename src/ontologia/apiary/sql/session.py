"""Runs statements: commands at once, queries in a DuckDB that can open the cells they read and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack

import pyarrow as pa

from ontologia.apiary.colony.bees import Chamber
from ontologia.apiary.colony.heartbeats import all_heartbeats, assignment
from ontologia.apiary.names import FrameName
from ontologia.apiary.node import Node
from ontologia.apiary.pruning import total_bytes
from ontologia.apiary.queries.manifest import TIMEOUT_S
from ontologia.apiary.sql.naming import name_as_written
from ontologia.apiary.sql.planning import PlannedQuery, Reference, plan_query
from ontologia.apiary.sql.sealing import open_sealed
from ontologia.apiary.sql.statements import Command, ReadStatement, parse_statement
from ontologia.errors import ValidationError

ENGINES = ("duckdb", "colony", "spark")


class SqlSession:
    """Statements one after another, with a hive and a box that USE has chosen."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.hive: str | None = None
        self.box: str | None = None

    def run(self, text: str, engine: str = "duckdb", timeout_s: float = TIMEOUT_S) -> pa.Table:
        if engine not in ENGINES:
            raise ValidationError(f"engine is one of {', '.join(ENGINES)}, not {engine!r}")
        statement = parse_statement(text)
        if isinstance(statement, Command):
            return self._command(statement)
        self.node.admit_query()
        with ExitStack() as pins:
            plan = plan_query(self.node, statement.tree, self.hive, self.box, pins)
            return self._read(statement, plan, engine, timeout_s)

    def _read(self, statement: ReadStatement, plan: PlannedQuery, engine: str, timeout_s: float) -> pa.Table:
        if engine == "spark":
            from ontologia.apiary.distributed import on_spark

            return on_spark("query")(self.node, statement, plan)
        if engine == "colony":
            from ontologia.apiary.queries.coordinator import explain_by_nodes, run_by_nodes

            if statement.explain is not None:
                facts = [*pruning_facts(plan.references), *explain_by_nodes(self.node, plan)]
                return _properties(facts)
            found = run_by_nodes(self.node, statement.text, plan, timeout_s)
        else:
            found = self.node.bees.run("a statement", [lambda chamber: self._query(statement, plan, chamber)])[0]
        if statement.explain is not None:
            return found
        return name_as_written(found, statement.text, plan, self.hive, self.box)

    # --- commands ------------------------------------------------------------------------------------------------

    def _command(self, command: Command) -> pa.Table:
        state = self.node.registry.state()
        name = command.name
        if command.kind == "use_hive":
            state.hive(str(name))
            self.hive = name
            return _one_column("message", [f"using hive {name}"])
        if command.kind == "use_box":
            if self.hive is None:
                raise ValidationError(f"USE BOX {name}: choose a hive first, with USE HIVE")
            state.box(self.hive, str(name))
            self.box = name
            return _one_column("message", [f"using box {self.hive}.{name}"])
        if command.kind == "show_hives":
            return _one_column("hive", sorted(state.hives))
        if command.kind == "show_boxes":
            hive = name or self.hive
            if hive is None:
                raise ValidationError("SHOW BOXES: say in which hive, as in SHOW BOXES IN analytics, or USE HIVE first")
            return _one_column("box", sorted(state.hive(hive).boxes))
        if command.kind == "show_frames":
            hive, box = self._box_named(name)
            return _one_column("frame", sorted(state.box(hive, box).frames))
        return self._describe(FrameName.parse(str(name)))

    def _box_named(self, name: str | None) -> tuple[str, str]:
        parts = name.split(".") if name else [self.hive, self.box]
        if len(parts) == 1 and self.hive:
            parts = [self.hive, parts[0]]
        if len(parts) != 2 or not all(parts):
            raise ValidationError("SHOW FRAMES: say in which box, as in SHOW FRAMES IN analytics.sensors, or USE first")
        return str(parts[0]), str(parts[1])

    def _describe(self, name: FrameName) -> pa.Table:
        self.node.registry.frame(name)
        snapshot = self.node.ledger(name).snapshot()
        return _properties(
            [
                ("schema", json.dumps(snapshot.schema.to_json(), separators=(",", ":"), ensure_ascii=False)),
                ("partition_by", ", ".join(snapshot.partition_by) or "(none)"),
                ("cells", str(len(snapshot.cells))),
                ("total_rows", str(snapshot.rows)),
                ("total_bytes", str(snapshot.bytes)),
            ]
        )

    # --- queries -------------------------------------------------------------------------------------------------

    def _query(self, statement: ReadStatement, plan: PlannedQuery, chamber: Chamber) -> pa.Table:
        with open_sealed(self.node, plan.references, chamber) as database:
            if statement.explain is None:
                return database.table(plan.sql())
            text = database.explain(plan.sql(), analyze=statement.explain == "analyze")
        facts = [*pruning_facts(plan.references), *assignment_facts(self.node, plan.references)]
        return _properties([*facts, ("plan", text)])


def pruning_facts(references: Sequence[Reference]) -> list[tuple[str, str]]:
    """What a query reads of each frame, and what it leaves out."""
    facts = []
    for reference in references:
        pruned = reference.pruned
        facts += [
            ("frame", str(reference.name)),
            ("version", str(reference.snapshot.version)),
            ("cells", str(pruned.total)),
            ("cells_pruned_by_partition", str(pruned.by_partition)),
            ("cells_pruned_by_statistics", str(pruned.by_statistics)),
            ("cells_scanned", str(len(pruned.scanned))),
            ("bytes_scanned", str(total_bytes(pruned.scanned))),
        ]
    return facts


def assignment_facts(node: Node, references: Sequence[Reference]) -> list[tuple[str, str]]:
    """Seed, "Cache-aware planning": which node that is alive should read how many of the cells, by what it reports."""
    cells = {key for reference in references for key in reference.keys}
    alive = [beat for beat in all_heartbeats(node.objects) if beat.state(node.clock.wall()) == "alive"]
    cached = {beat.node_id: beat.cached_cells for beat in alive}
    return [
        (f"assigned_to_{node_id}", f"{len(given)} cells, {sum(key in cached[node_id] for key in given)} of them cached")
        for node_id, given in assignment(sorted(cells), alive).items()
    ]


def _one_column(name: str, values: Sequence[str]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.string())}, schema=pa.schema([pa.field(name, pa.string(), False)]))


def _properties(facts: Sequence[tuple[str, str]]) -> pa.Table:
    names, values = zip(*facts, strict=True)
    return pa.table({"property": pa.array(names, pa.string()), "value": pa.array(values, pa.string())})
