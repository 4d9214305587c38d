"""`onto copy`: a store with its whole history, to another engine or place, or to v2 where it is."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ontologia.cli.exits import UsageError
from ontologia.cli.options import DryRun, Models
from ontologia.cli.output import Face, counted
from ontologia.cli.run import Run, command


def register(app: typer.Typer) -> None:
    command(app, "copy", example="onto copy onto.db s3://my-bucket/onto-prod --with-history")(copy)


def copy(
    run: Run,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The store to copy: a path or a URI.")],
    target: Annotated[
        str | None, typer.Argument(metavar="[TARGET]", help="An empty place, or where this copy was cut off.")
    ] = None,
    with_history: Annotated[
        bool, typer.Option("--with-history", help="Every commit as it was made. The state alone: export and import.")
    ] = False,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Bring a v1 store to v2 where it is. Readers go on, writers wait.")
    ] = False,
    engine_version: Annotated[
        Literal["v1", "v2"] | None, typer.Option("--engine-version", help="The layout of the copy, v2 by default.")
    ] = None,
    models: Models = None,
    dry_run: DryRun = False,
) -> None:
    """Copy a store with its history: ids, times, notes, schema versions, drops. Cut off, the same command goes on."""
    from ontologia.cli.models import load_models
    from ontologia.runtime.transfer import copy_history

    if not with_history and not in_place:
        raise UsageError(
            "onto copy is for the whole history: add --with-history; for the state, onto export and import"
        )
    if (target is None) != in_place:
        raise UsageError("name a TARGET, or give --in-place and none")
    declarations = load_models(run.model_names(models))
    if not dry_run:
        run.output.say(f"target: {target or source}")
    with run.output.progress("copying") as bar:
        report = copy_history(
            source,
            target,
            engine_version=engine_version,
            in_place=in_place,
            dry_run=dry_run,
            types=[declaration.cls for declaration in declarations.values()],
            config=run.settings.config,
            progress=lambda what, done, total: bar(done, what, total),
        )
    facts = {
        "source": report.source,
        "target": report.target,
        "engine": f"{report.engine}/{report.engine_version}",
        "head": report.head,
        "applied": report.applied,
        "resumed_after": report.resumed_after,
        "rows": report.rows,
        "in_place": report.in_place,
    }

    def draw(face: Face) -> None:
        what = f"{report.source} up to commit {report.head} to {facts['engine']} at {report.target}"
        if not report.applied:
            face.line(f"would copy {what}")
            return
        if report.resumed_after:
            face.line(f"went on after commit {report.resumed_after}", "dim")
        face.line(f"copied {what}: {counted(report.rows, 'row')} written, every commit compared", "good")

    run.output.show(facts, draw)
    if report.applied and in_place and report.engine == "s3":
        run.output.say(f"the files of v1 stay until onto vacuum --storage-uri {source} --apply deletes them")
