"""`onto init` and `onto info`: making a store, and looking at one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from ontologia.cli import dashboard
from ontologia.cli.exits import UsageError
from ontologia.cli.options import DryRun, Token
from ontologia.cli.output import Face
from ontologia.cli.run import Run, command
from ontologia.errors import DropRefusedError


def register(app: typer.Typer) -> None:
    command(app, "init", example="onto init --storage-uri s3://my-bucket/onto-prod")(init)
    command(app, "info", example="onto info --db onto.db --stats")(info)


def init(
    run: Run,
    engine: Annotated[
        Literal["sqlite", "s3", "omnigraph"] | None,
        typer.Option("--engine", help="Follows from the target, except for a graph: omnigraph."),
    ] = None,
    engine_version: Annotated[
        Literal["v1", "v2"] | None, typer.Option("--engine-version", help="The layout, the latest by default.")
    ] = None,
    dry_run: DryRun = False,
    force: Annotated[bool, typer.Option("--force", help="Empty a store that exists. Needs --token.")] = False,
    token: Token = None,
) -> None:
    """Lay out a new store. An existing one is refused, or emptied with --force and the token of its dry run."""
    from ontologia.engines.initializing import initialize_storage

    settings = run.settings
    fits = "s3" if engine == "omnigraph" else engine  # a graph lies where object storage does
    if engine is not None and fits != settings.target.backend:
        raise UsageError(f"--engine {engine} does not fit the target, {settings.where}")
    if token is not None and not force:
        raise UsageError("--token is for --force: a new store needs none")
    if force and not dry_run and token is None:
        raise UsageError("--force empties the store and needs --token: get one with --force --dry-run")

    def initialize(*, dry_run: bool) -> Any:
        return initialize_storage(
            settings.db,
            storage_uri=settings.storage_uri,
            config=settings.config,
            engine=engine,
            engine_version=engine_version,
            dry_run=dry_run,
            force=force,
            token=token,
        )

    if not dry_run:
        run.echo_target()
        if force and initialize(dry_run=True).token not in (None, token):
            raise DropRefusedError(
                "the token does not belong to this store as it is now: run --force --dry-run again for a new one"
            )
    report = initialize(dry_run=dry_run)
    facts = {
        "target": settings.where,
        "backend": engine or report.target.backend,
        "engine_version": report.engine_version,
        "initialized": report.initialized,
        "planned": report.planned,
        "token": report.token,
    }

    def draw(face: Face) -> None:
        verb = "initialized" if report.initialized else "would initialize"
        face.line(f"{verb} {engine or report.target.backend}/{report.engine_version} at {settings.where}", "good")
        for item in report.planned:
            face.change("+", item)
        if report.token is not None:
            face.line("everything stored there would be lost", "bad")
            face.line(f"token: {report.token}")

    run.output.show(facts, draw)
    if dry_run and report.token is not None:
        where = "--db" if report.target.backend == "sqlite" else "--storage-uri"
        run.output.say(f"to empty the store: onto init {where} {report.target.location} --force --token {report.token}")


def info(
    run: Run,
    stats: Annotated[bool, typer.Option("--stats", help="Also count versions and measure sizes by type.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Also show the fields of every type.")] = False,
) -> None:
    """Show a store at a glance: engine, head, types, counts, health, and what to do about it."""
    with run.store() as store, run.output.progress("looking"):
        facts = dashboard.facts(store, run.settings, stats=stats, schema=schema)
    run.output.show(facts, lambda face: dashboard.draw(face, facts))
    for advice in facts["advice"]:
        if advice["level"] == "warning":
            run.output.warn(advice["text"])
