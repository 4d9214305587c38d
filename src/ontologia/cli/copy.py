"""`onto copy`: a store with its whole history, to another engine or place, or to v2 where it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ontologia.cli.exits import UsageError
from ontologia.cli.options import DryRun, Models, WorkEngine
from ontologia.cli.output import Face, count_noun
from ontologia.cli.run import Run, command

if TYPE_CHECKING:
    from ontologia.runtime.transfer import CopyReport

TIMES_A_LOAD = 10
"""A row is copied in a fraction of the time in which it is loaded, so that Spark is worth its start much later."""


def register(app: typer.Typer) -> None:
    command(app, "copy", example="onto copy onto.db s3://my-bucket/onto-prod --with-history")(copy)


def copy(
    run: Run,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="The store to copy, a path or a URI; or the folder of an export.")
    ],
    target: Annotated[
        str | None, typer.Argument(metavar="[TARGET]", help="An empty place, or where this copy was cut off.")
    ] = None,
    with_history: Annotated[
        bool,
        typer.Option("--with-history", help="Every commit as it was made. For the state alone: export and import."),
    ] = False,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Upgrade a v1 store to v2 in place. Readers continue, writers wait.")
    ] = False,
    engine_version: Annotated[
        Literal["v1", "v2"] | None, typer.Option("--engine-version", help="The layout of the copy, v2 by default.")
    ] = None,
    models: Models = None,
    engine: WorkEngine = "auto",
    dry_run: DryRun = False,
) -> None:
    """Copy a store with its history: ids, times, notes, schema versions, drops. If it is cut off, repeat the command.

    The folder of an export is a source too: a history with --with-history, a state without, as one commit.
    """
    from ontologia.cli.models import load_models
    from ontologia.runtime.transfer import is_export, is_exported_history

    if not with_history and not in_place and (not is_export(source) or is_exported_history(source)):
        raise UsageError(
            "onto copy is for the whole history: add --with-history; for the state, onto export and import"
        )
    if (target is None) != in_place:
        raise UsageError("name a TARGET, or give --in-place and none")
    declarations = load_models(run.model_names(models))
    if not dry_run:
        run.output.say(f"target: {target or source}")
    options: dict[str, Any] = {
        "engine_version": engine_version,
        "types": [declaration.cls for declaration in declarations.values()],
        "config": run.settings.config,
    }
    if target is not None and not with_history:
        _copy_state(run, source, target, options, dry_run=dry_run)
        return
    options |= {"in_place": in_place, "dry_run": dry_run}
    report = _copy(run, source, target, options, "local" if dry_run else engine)
    show(run, report)
    if report.applied and in_place and report.engine == "s3":
        run.output.say(f"the files of v1 stay until onto vacuum --storage-uri {source} --apply deletes them")


def show(run: Run, report: CopyReport) -> None:
    """Say what was copied, or would be."""
    facts = {
        "source": report.source,
        "target": report.target,
        "engine": f"{report.engine}/{report.engine_version}",
        "head": report.head,
        "applied": report.applied,
        "resumed_after": report.resumed_after,
        "rows": report.rows,
        "in_place": report.in_place,
        "commits_by_spark": report.commits_by_workers,
    }

    def draw(face: Face) -> None:
        what = f"{report.source} up to commit {report.head} to {facts['engine']} at {report.target}"
        if not report.applied:
            face.line(f"would copy {what}")
            return
        if report.resumed_after:
            face.line(f"went on after commit {report.resumed_after}", "dim")
        if report.commits_by_workers:
            face.line(f"Spark copied {count_noun(report.commits_by_workers, 'large commit')}", "dim")
        told = "every commit compared" if report.compared else "as one commit"
        face.line(f"copied {what}: {count_noun(report.rows, 'row')} written, {told}", "good")

    run.output.show(facts, draw)


def _copy_state(run: Run, source: str, target: str, options: dict[str, Any], *, dry_run: bool) -> None:
    """An export of a state becomes a store with one commit."""
    from ontologia.engines.dispatch import LATEST_VERSION
    from ontologia.engines.targets import parse_storage_target
    from ontologia.runtime.transfer import CopyReport, copy_state, rows_to_import

    backend = parse_storage_target(target).backend
    version = options["engine_version"] or LATEST_VERSION
    if dry_run:
        show(run, CopyReport(source, target, backend, version, 1, applied=False, rows=rows_to_import(Path(source))))
        return
    with run.output.progress("importing") as bar:
        done = copy_state(source, target, **options, progress=lambda phase, seen, total: bar(seen, phase, total))
    head, rows = done.commit_id or 0, sum(item.inserted for item in done.types)
    show(run, CopyReport(source, target, backend, version, head, applied=True, rows=rows, compared=False))


def _copy(run: Run, source: str, target: str | None, options: dict[str, Any], engine: str) -> CopyReport:
    from ontologia.runtime.transfer import copy_history, largest_commit

    config = run.settings.config
    largest = largest_commit(source, config, in_place=options["in_place"]) if engine == "auto" else 0
    if not run.on_spark(engine, largest // TIMES_A_LOAD):
        with run.output.progress("copying") as bar:
            return copy_history(source, target, **options, progress=lambda what, done, total: bar(done, what, total))
    from ontologia.spark.transfer import copy_history as copy_on_spark

    if engine == "auto":
        options["above_rows"] = config.spark_above_rows * TIMES_A_LOAD
    session = run.spark()
    with run.output.progress("Spark:") as bar, run.following(session, bar):
        report = copy_on_spark(session, source, target, **options)
    if report.engine == "sqlite":
        run.output.say("a SQLite file is written by one process: Spark compared the copy, and wrote nothing of it")
    elif not report.commits_by_workers:
        run.output.say("Spark wrote nothing: no commit is large enough, or the source is read by one process alone")
    return report
