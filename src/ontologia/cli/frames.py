"""`onto apiary`, also installed as `apiary`: frames from the console."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ontologia.cli.exits import UsageError
from ontologia.cli.options import FRAME_GLOBALS, Apply
from ontologia.cli.output import Face, count_noun, size
from ontologia.cli.run import Run, group
from ontologia.cli.run import command as register_command

if TYPE_CHECKING:
    import pyarrow as pa

    from ontologia.apiary import Apiary
    from ontologia.apiary.registry import RegistryState
    from ontologia.apiary.results import VersionChange

HELP = """Frames: partitioned tables with versions, in a directory or a bucket.

--storage names the root: a path, s3://bucket/prefix?region=…, s3://bucket@host:port. APIARY_STORAGE_URL is used
without it, and then ~/.apiary/data/.
"""
FrameArgument = Annotated[str, typer.Argument(metavar="HIVE.BOX.FRAME")]


def register(app: typer.Typer) -> None:
    found = group(app, "apiary", HELP, takes=FRAME_GLOBALS)
    command = partial(register_command, takes=FRAME_GLOBALS)
    command(found, "hives", example="apiary hives --storage s3://my-bucket/apiary")(hives)
    command(found, "boxes", example="apiary boxes analytics")(boxes)
    command(found, "frames", example="apiary frames analytics.sensors")(frames)
    command(found, "create", example="apiary create analytics.sensors.temperature --column region:string --apply")(
        create
    )
    command(found, "write", example="apiary write analytics.sensors.temperature readings.csv --apply")(write)
    command(found, "show", example="apiary show analytics.sensors.temperature")(show)
    command(found, "history", example="apiary history analytics.sensors.temperature --last 20")(history)
    command(found, "diff", example="apiary diff analytics.sensors.temperature 3 7")(diff)
    command(found, "sql", example="apiary sql 'SELECT count(*) FROM analytics.sensors.temperature'")(sql)
    command(found, "compact", example="apiary compact analytics.sensors.temperature --apply")(compact)
    command(found, "vacuum", example="apiary vacuum analytics.sensors.temperature --older-than 7d --apply")(vacuum)
    command(found, "status", example="apiary status")(status)
    command(found, "start", example="apiary start --storage s3://my-bucket/apiary")(start)


@contextmanager
def open_apiary(run: Run, *, write: bool = False, working: bool = False, may_be_new: bool = False) -> Iterator[Apiary]:
    """The apiary a command is about. Commands that read open it without writing anything."""
    from ontologia.apiary import Apiary
    from ontologia.errors import StorageBackendError

    if run.given.db:
        raise UsageError("--db names a SQLite file, and frames lie in a folder or a bucket: name it with --storage")
    where = run.given.storage or run.given.storage_uri or os.environ.get("APIARY_STORAGE_URL") or None
    name = os.environ.get("APIARY_NAME") or "production"
    ap = Apiary(name, where, config=run.settings.config, read_only=not write, maintenance=working, worker=working)
    with ap:
        if write:
            run.output.say(f"target: {ap.node.objects.uri}")
        elif not may_be_new and ap.node.registry.state().version == 0:
            raise StorageBackendError(
                f"there is no apiary at {ap.node.objects.uri}: correct --storage, or begin one with `apiary "
                "create HIVE --apply`"
            )
        yield ap


def hives(run: Run) -> None:
    """List the hives."""
    with open_apiary(run) as ap:
        _names(run, "hive", ap.list_hives())


def boxes(run: Run, hive: Annotated[str, typer.Argument()]) -> None:
    """List the boxes of a hive."""
    with open_apiary(run) as ap:
        _names(run, "box", ap.list_boxes(hive))


def frames(run: Run, box: Annotated[str, typer.Argument(metavar="HIVE.BOX")]) -> None:
    """List the frames of a box, with their sizes."""
    parts = box.split(".")
    if len(parts) != 2:
        raise UsageError(f"a box is named HIVE.BOX, as in analytics.sensors: not {box!r}")
    with open_apiary(run) as ap:
        facts = [ap.frame(f"{box}.{name}").stats() for name in ap.list_frames(*parts)]

    def draw(face: Face) -> None:
        rows = [[f["frame"], f["version"], f["rows"], f["cells"], f["partitions"], size(f["bytes"])] for f in facts]
        face.table(["frame", "version", "rows", "cells", "partitions", "size"], rows)

    run.output.show(facts, draw)


def create(
    run: Run,
    name: Annotated[str, typer.Argument(metavar="HIVE[.BOX[.FRAME]]")],
    column: Annotated[
        list[str] | None, typer.Option("--column", metavar="NAME:TYPE", help="A column; may be repeated.")
    ] = None,
    partition_by: Annotated[list[str] | None, typer.Option("--partition-by", metavar="COLUMN")] = None,
    apply: Apply = False,
) -> None:
    """Create a hive, a box or a frame, and what it lies in. TYPE! means not null."""
    parts = name.split(".")
    if len(parts) == 3 and all(parts) and not column:
        raise UsageError(f"the frame {name} needs columns: give each with --column NAME:TYPE, as in --column id:int64")
    if len(parts) > 3 or (len(parts) == 3) != bool(column):
        raise UsageError("name a hive, a box (HIVE.BOX) or a frame (HIVE.BOX.FRAME); --column is for a frame alone")
    columns = [_column(text) for text in column or []]
    schema = dict(columns)
    if len(schema) < len(columns):
        raise UsageError("--column names a column twice")
    facts = {"name": name, "schema": schema, "partition_by": partition_by or [], "applied": apply}
    with open_apiary(run, write=apply, may_be_new=True) as ap:
        _check_creation(ap, parts, schema, partition_by or [])
        facts["existed"] = existed = _exists(ap.node.registry.state(), parts)
        if apply and not existed:
            ap.create_hive(parts[0])
            if len(parts) > 1:
                ap.create_box(parts[0], parts[1])
            if len(parts) > 2:
                ap.create_frame(parts[0], parts[1], parts[2], schema, partition_by)
    said = f"{name} is there already" if existed else f"{'created' if apply else 'would create'} {name}"
    run.output.show(facts, lambda face: face.line(said))
    if not apply and not existed:
        run.output.say("to do it: the same command with --apply")


def _exists(state: RegistryState, parts: list[str]) -> bool:
    there: Any = state
    for part, inner in zip(parts, ("hives", "boxes", "frames"), strict=False):
        there = getattr(there, inner).get(part)
        if there is None:
            return False
    return True


def _check_creation(ap: Apiary, parts: list[str], schema: dict[str, Any], partition_by: list[str]) -> None:
    """All that is wrong is said before anything is created, and by a preview, too."""
    from ontologia.apiary.names import FrameName, check_name
    from ontologia.apiary.registry import check_same
    from ontologia.apiary.types import check_partitioning, declare_schema

    for kind, part in zip(("hive", "box", "frame"), parts, strict=False):
        check_name(kind, part)
    if len(parts) == 3:
        wanted, name = declare_schema(schema), FrameName(*parts)
        columns, state = check_partitioning(wanted, partition_by), ap.node.registry.state()
        if state.has(name):
            there = state.frame(name).completed(ap.node.ledger(name).declared_schema)
            check_same(name, there, wanted, columns)


def write(
    run: Run,
    frame: FrameArgument,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Parquet, CSV or JSON lines.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace all rows instead of appending.")] = False,
    apply: Apply = False,
) -> None:
    """Append the rows of files to a frame, or replace its rows, as one version."""
    from ontologia.apiary.validation import conform
    from ontologia.cli.frame_files import rows_of

    with open_apiary(run, write=apply) as ap, warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        found = ap.frame(frame)
        rows = rows_of(files, found.schema)
        if apply:
            result = found.overwrite(rows) if overwrite else found.write(rows)
            facts = _describe_write(True, result.rows_written, result.version, result.cells_written)
        else:
            state = ap.node.ledger(found.name).known()
            count = sum(conform(table, state.schema, state.partition_by, frame).num_rows for table in _tables(rows))
            facts = _describe_write(False, count, None, None)

    def draw(face: Face) -> None:
        what = f"{count_noun(facts['rows'], 'row')} {'in place of all rows of' if overwrite else 'to'} {frame}"
        face.line(f"wrote {what}, version {facts['version']}" if apply else f"would write {what}")

    for note in dict.fromkeys(str(warning.message) for warning in noted):
        run.output.say(note)
    run.output.show(facts, draw)
    if not apply:
        run.output.say("to do it: the same command with --apply")


def _describe_write(applied: bool, rows: int, version: int | None, cells: int | None) -> dict[str, Any]:
    return {"applied": applied, "rows": rows, "version": version, "cells": cells}


def _tables(rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
    import pyarrow as pa

    return (pa.Table.from_batches([batch]) for batch in rows)


def show(run: Run, frame: FrameArgument) -> None:
    """Columns, sizes and the last versions of a frame."""
    with open_apiary(run) as ap:
        found = ap.frame(frame)
        facts: dict[str, Any] = {
            **found.stats(),
            "columns": [
                {"name": field.name, "type": str(field.type), "nullable": field.nullable} for field in found.schema
            ],
            "history": [_change(change) for change in found.history(5)],
        }

    def draw(face: Face) -> None:
        plain = {name: value for name, value in facts.items() if name not in ("columns", "history")}
        sizes = {name: size(facts[name]) for name in ("bytes", "smallest_cell", "largest_cell")}
        face.pairs(plain | sizes | {"partition_by": ", ".join(facts["partition_by"]) or "(none)"})
        face.table(["column", "type", "null"], [[c["name"], c["type"], c["nullable"]] for c in facts["columns"]])
        _draw_changes(face, facts["history"])

    run.output.show(facts, draw)


def history(
    run: Run,
    frame: FrameArgument,
    last: Annotated[int | None, typer.Option("--last", min=1, help="Only the newest N.")] = None,
) -> None:
    """What each version added and removed, the newest first."""
    with open_apiary(run) as ap:
        facts = [_change(change) for change in ap.frame(frame).history(last)]
    run.output.show(facts, lambda face: _draw_changes(face, facts))


def diff(
    run: Run,
    frame: FrameArgument,
    a: Annotated[int, typer.Argument()],
    b: Annotated[int, typer.Argument()],
) -> None:
    """The rows by which two versions differ."""
    with open_apiary(run) as ap:
        found = ap.frame(frame).diff(a, b)
        rows = found.rows().to_pylist()
    facts = {"from": a, "to": b, "cells_added": len(found.added), "cells_removed": len(found.removed), "rows": rows}

    def draw(face: Face) -> None:
        for row in rows:
            sign: Literal["+", "-"] = "+" if row["change"] == "added" else "-"
            face.change(sign, ", ".join(f"{name}={value}" for name, value in row.items() if name != "change"))
        face.line(f"version {a} to {b}: {count_noun(len(rows), 'row')} differ")

    run.output.show(facts, draw)


def sql(
    run: Run,
    statement: Annotated[str, typer.Argument()],
    engine: Annotated[
        Literal["duckdb", "colony", "spark"],
        typer.Option("--engine", help="What runs it: this process, all nodes that `apiary start` started, or Spark."),
    ] = "duckdb",
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", help="With colony: after this, this node does what others have not."
        ),
    ] = 60.0,
) -> None:
    """Run a statement: SELECT over three-part names, SHOW, DESCRIBE, EXPLAIN [ANALYZE].

    With --engine colony, this process is a node while it runs, and keeps a manifest under _queries/ until it is done.
    """
    with open_apiary(run, write=engine == "colony") as ap:
        found = ap.query(statement, engine=engine, timeout=timeout)

    def draw(face: Face) -> None:
        rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        plans = [row[1] for row in rows if found.column_names == ["property", "value"] and row[0] == "plan"]
        face.table(found.column_names, rows[: len(rows) - len(plans)])
        for line in "\n".join(plans).splitlines():
            face.line(line)

    run.output.show(found.to_pylist(), draw)


def compact(
    run: Run,
    frame: FrameArgument,
    force: Annotated[bool, typer.Option("--force", help="Compact even where the policy does not call for it.")] = False,
    engine: Annotated[Literal["local", "spark"], typer.Option("--engine", help="Where the work runs.")] = "local",
    apply: Apply = False,
) -> None:
    """Merge small cells into large ones. The rows stay the same."""
    from ontologia.apiary.compaction import preview

    with open_apiary(run, write=apply) as ap:
        found = ap.frame(frame)
        groups = preview(ap.node, found.name, force=force)
        result = found.compact(force=force, engine=engine) if apply else None
    facts = {
        "applied": apply,
        "partitions": len(groups),
        "cells": sum(len(cells) for cells in groups),
        "bytes": sum(cell.bytes for cells in groups for cell in cells),
        "version": result.version if result else None,
        "cells_written": result.cells_written if result else None,
    }

    def draw(face: Face) -> None:
        if not groups:
            face.line("nothing to compact", "good")
            return
        there = sum(len(cells) for cells in groups)
        what = f"{count_noun(there, 'cell')} in {count_noun(len(groups), 'partition')}, {size(facts['bytes'] or 0)}"
        face.line(f"compacted {what} into {facts['cells_written']}" if result else f"would compact {what}")

    run.output.show(facts, draw)
    if groups and not apply:
        run.output.say("to do it: the same command with --apply")


def vacuum(
    run: Run,
    frame: FrameArgument,
    older_than: Annotated[str, typer.Option("--older-than", metavar="AGE", help="As 12h, 7d or 2w.")] = "7d",
    keep_versions: Annotated[
        int, typer.Option("--keep-versions", min=1, help="How many of the newest versions to keep.")
    ] = 1,
    apply: Apply = False,
) -> None:
    """Delete cells that no retained version has. Versions from before can no longer be read."""
    with open_apiary(run, write=apply) as ap:
        result = ap.frame(frame).vacuum(older_than, keep_versions=keep_versions, apply=apply)
    kept = result.kept_versions
    facts = {
        "applied": apply,
        "bytes": result.bytes,
        "keys": result.keys,
        "kept_versions": {"first": kept.start, "last": kept.stop - 1},
    }

    def draw(face: Face) -> None:
        for key in result.keys:
            face.change("-", key)
        verb = "deleted" if apply else "would delete"
        face.line(
            f"{verb} {count_noun(len(result.keys), 'cell')}, {size(result.bytes)}; "
            f"versions {kept.start} to {kept.stop - 1} stay"
        )

    run.output.show(facts, draw)
    if result.keys and not apply:
        run.output.say("to do it: the same command with --apply")


def status(run: Run) -> None:
    """Show this machine, and the nodes that work on this storage, as last reported."""
    with open_apiary(run) as ap:
        facts = {"machine": ap.status(), "swarm": ap.swarm_status()}
    machine, swarm = facts["machine"], facts["swarm"]

    def draw(face: Face) -> None:
        face.pairs(
            {
                "storage": machine["storage_uri"],
                "cores": machine["cores"],
                "memory": f"{machine['memory_gb']:.1f} GB, {machine['memory_pressure']:.0%} in use",
                "processor": f"{machine['machine_cpu']:.0%} busy, load {machine['load_average']:.2f}",
                "bees": f"{machine['bees']}, with {size(machine['memory_per_bee'])} each",
                "target cell": size(machine["target_cell_size"]),
                "temperature": f"{machine['temperature']:.2f}, {machine['regulation']}",
            }
        )
        rows = [
            [
                node["node_id"],
                node["state"],
                f"{node['bees'] - node['idle_bees']} of {node['bees']}",
                f"{node['memory_pressure']:.0%}",
                f"{node['colony_temperature']:.2f}",
                node["cached_cells"],
                "yes" if node["worker"] else "no",
            ]
            for node in swarm["nodes"]
        ]
        if rows:
            face.table(["node", "state", "busy bees", "memory", "temperature", "cached cells", "worker"], rows)
        face.line(f"{count_noun(swarm['alive'], 'node')} alive")

    run.output.show(facts, draw)


def start(run: Run) -> None:
    """Run a node until interrupted: send heartbeats, run tasks of other nodes' statements, and compact while the colony
    is cold."""
    from ontologia.runtime.events.wakeup import Wakeup

    wakeup = Wakeup()
    with wakeup.on_signals(), open_apiary(run, write=True, working=True) as ap:
        run.output.say(f"node {ap.node.node_id} is running; stop it with Ctrl-C")
        while not wakeup.stopping:
            wakeup.wait(3600.0)
    wakeup.close()


# --- drawing -----------------------------------------------------------------------------------------------------


def _names(run: Run, kind: str, names: list[str]) -> None:
    run.output.show(names, lambda face: face.table([kind], [[name] for name in names]))


def _column(text: str) -> tuple[str, dict[str, Any]]:
    name, colon, kind = text.rpartition(":")
    if not colon or not name or not kind:
        raise UsageError(f"--column {text!r}: write it as NAME:TYPE, as in temp:float64, or id:int64! for not null")
    return name, {"type": kind.removesuffix("!"), "nullable": not kind.endswith("!")}


def _change(change: VersionChange) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(change)


def _draw_changes(face: Face, changes: list[dict[str, Any]]) -> None:
    rows = [
        [
            c["version"],
            f"{c['timestamp']:%Y-%m-%d %H:%M:%S}",
            c["operation"],
            f"+{c['rows_added']} -{c['rows_removed']}",
            f"+{c['cells_added']} -{c['cells_removed']}",
        ]
        for c in changes
    ]
    face.table(["version", "when (UTC)", "operation", "rows", "cells"], rows)
