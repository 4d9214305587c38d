"""`onto ingest`, `onto pipeline run` and `onto pipeline runs`: the Spark pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ontologia.cli.exits import UsageError
from ontologia.cli.options import CommitMeta, DryRun, Models, number
from ontologia.cli.output import Face
from ontologia.cli.run import Run, command, group, metadata

if TYPE_CHECKING:
    from ontologia.model import Declaration
    from ontologia.runtime.intake.reports import PipelineReport
    from ontologia.runtime.loading.local import LocalPipeline

Master = Annotated[str | None, typer.Option("--master", metavar="URL", help="Where Spark runs; local[*] by default.")]
LoadEngine = Annotated[
    Literal["auto", "local", "spark"],
    typer.Option("--engine", help="Where the load runs; auto uses Spark if it is large or needs expressions."),
]
COUNTS = ("read", "inserted", "updated", "removed", "unchanged", "rejected", "ties", "files")


def register(app: typer.Typer) -> None:
    command(
        app, "ingest", example="onto ingest customers.csv --into Customer --models app.models --map id=customer_id"
    )(ingest)
    pipelines = group(app, "pipeline", "Loads on Spark, described by a TOML file.")
    command(pipelines, "run", example="onto pipeline run nightly.toml")(run_file)
    command(pipelines, "runs", example="onto pipeline runs --last 5")(runs)


def ingest(
    run: Run,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A CSV, JSON or Parquet file, or a pattern.")],
    into: Annotated[str, typer.Option("--into", metavar="TYPE", help="The type to load into.", show_default=False)],
    models: Models = None,
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=EXPR", help="A Spark expression for a field; may be given many times."),
    ] = None,
    left: Annotated[str | None, typer.Option("--left", metavar="EXPR", help="A relation's left key.")] = None,
    right: Annotated[str | None, typer.Option("--right", metavar="EXPR", help="A relation's right key.")] = None,
    order_by: Annotated[
        str | None,
        typer.Option("--order-by", metavar="EXPR", help="What sorts the rows of an identity; the last one counts."),
    ] = None,
    on_tie: Annotated[
        Literal["error", "greatest"],
        typer.Option("--on-tie", help="What to do when several rows of an identity are last by --order-by."),
    ] = "error",
    format: Annotated[
        str | None, typer.Option("--format", help="csv, json or parquet; by default from the suffix.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="K=V", help="How the file is read, as sep=; or encoding=ISO-8859-1."),
    ] = None,
    mode: Annotated[
        Literal["upsert", "sync"],
        typer.Option("--mode", help="sync also removes what the source no longer has; --dry-run counts it."),
    ] = "upsert",
    max_removals: Annotated[
        int | None, number("--max-removals", help="With --mode sync: refuse to remove more rows than this.")
    ] = None,
    missing: Annotated[
        Literal["default", "keep"],
        typer.Option("--missing", help="What a field gets that the source has no column for: keep is what is stored."),
    ] = "default",
    on_invalid: Annotated[Literal["abort", "quarantine"], typer.Option("--on-invalid")] = "abort",
    on_conflict: Annotated[Literal["abort", "skip", "upsert"], typer.Option("--on-conflict")] = "upsert",
    dry_run: DryRun = False,
    meta: CommitMeta = None,
    master: Master = None,
    engine: LoadEngine = "auto",
) -> None:
    """Load one file into one type, as one commit: in process where the load is small and plain, else on Spark."""
    from ontologia.runtime.intake.loads import load_expressions
    from ontologia.runtime.loading.named_sources import are_few_bytes, check_source

    declarations = _load_declarations(run, models)
    declaration = declarations.get(into)
    if declaration is None:
        known = ", ".join(sorted(declarations)) or "none"
        raise UsageError(f"--into {into}: no declared type has that name; the models have {known}")
    expressions = metadata(map_, "--map")
    reading = metadata(options, "--option")
    check_source(source, format, reading)  # before Spark takes its time to start
    load_expressions(declaration, expressions, left=left, right=right)
    run.echo_target()
    load: dict[str, Any] = {"map": expressions, "left": left, "right": right, "format": format, "options": reading}
    load |= {"order_by": order_by, "on_tie": on_tie, "mode": mode, "max_removals": max_removals, "missing": missing}

    def in_process() -> LocalPipeline:
        from ontologia.runtime.loading.local import LocalPipeline

        pipeline = LocalPipeline(_target(run), run.settings.config, on_invalid, on_conflict)
        return pipeline.load(source, into=declaration.cls, **load)

    local = _local(engine, master, in_process)
    if local is not None:
        _show(run, local.commit(meta=metadata(meta), dry_run=dry_run))
        return
    _check_store(run, _target(run), [declaration])
    session = run.spark(master=master, brief=mode != "sync" and are_few_bytes([source]))
    from ontologia.spark import Pipeline

    with run.output.progress("Spark:") as bar, run.following(session, bar):
        pipeline = Pipeline(session, _target(run), run.settings.config, on_invalid, on_conflict)
        pipeline.load(source, into=declaration.cls, **load)
        report = pipeline.commit(meta=metadata(meta), dry_run=dry_run)
    _show(run, report)


def run_file(
    run: Run,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The pipeline, as TOML.")],
    models: Models = None,
    dry_run: DryRun = False,
    meta: CommitMeta = None,
    master: Master = None,
    engine: LoadEngine = "auto",
) -> None:
    """Run a pipeline: all its loads, in one commit, in process where they are small and plain, else on Spark."""
    from ontologia.runtime.loading.local import LocalPipeline
    from ontologia.runtime.loading.pipeline_file import PipelineFile

    described = PipelineFile.read(file)
    names = list(models or ()) or described.models
    types = _load_declarations(run, names)
    target = described.target if described.target and not _is_named(run) else _target(run)
    if described.target is None and not run.settings.is_named:
        raise UsageError(
            f"{file} has no [target], and none is named: add uri or db to it, or say --db or --storage-uri"
        )
    described.check(types)
    run.output.say(f"target: {target}")
    config, options = run.settings.config, described.options
    local = _local(engine, master, lambda: described.fill(LocalPipeline(target, config, **options), types))
    if local is not None:
        _show(run, local.commit(meta=described.meta | metadata(meta), dry_run=dry_run))
        return
    _check_store(run, target, [types[load["into"]] for load in described.loads])
    session = run.spark(master=master, config=described.spark, brief=described.is_brief)
    from ontologia.spark import Pipeline

    with run.output.progress("Spark:") as bar, run.following(session, bar):
        pipeline = described.fill(Pipeline(session, target, config, **options), types)
        report = pipeline.commit(meta=described.meta | metadata(meta), dry_run=dry_run)
    _show(run, report)


def _local(engine: str, master: str | None, made: Callable[[], LocalPipeline]) -> LocalPipeline | None:
    """The load in process, if that is asked for or will do; None where it is Spark's."""
    from ontologia.runtime.loading.sources import OnlySpark

    if engine == "spark" or (engine == "auto" and master is not None):
        return None
    try:
        return made()
    except OnlySpark as reason:
        if engine == "local":
            raise UsageError(f"--engine local: this load needs Spark, because {reason}") from None
        return None


def _check_store(run: Run, target: str, declarations: Sequence[Declaration]) -> None:
    """What is wrong with the store, or with the models for it, before Spark takes its time to start."""
    from ontologia.engines.dispatch import open_engine
    from ontologia.objects import Location

    with open_engine(Location.of(target, run.settings.config), make_file=False) as engine:
        engine.catalog().check({declaration.ref: declaration.schema for declaration in declarations})


def runs(run: Run, last: Annotated[int, number("--last", least=1, help="How many.")] = 10) -> None:
    """List the commits that pipelines made, newest first."""
    with run.store() as store:
        found = [commit for commit in store.list_commits(None) if "pipeline" in commit["metadata"]][:last]

    def draw(face: Face) -> None:
        if not found:
            face.line("no pipeline has run on this store", "dim")
            return
        rows = [
            [
                commit["id"],
                commit["created_at"],
                commit["metadata"]["pipeline"],
                *(commit["metadata"].get(f"rows_{name}", "") for name in ("read", "inserted", "updated", "rejected")),
                commit["metadata"].get("duration_s", ""),
            ]
            for commit in found
        ]
        face.table(["commit", "at", "application", "read", "inserted", "updated", "rejected", "seconds"], rows)

    run.output.show(found, draw)


def _load_declarations(run: Run, models: Sequence[str] | None) -> dict[str, Declaration]:
    from ontologia.cli.models import load_models

    declarations = load_models(run.model_names(models, needed=True))
    return {ref.name: declaration for ref, declaration in declarations.items()}


def _target(run: Run) -> str:
    return run.settings.target.location


def _is_named(run: Run) -> bool:
    return run.given.db is not None or run.given.storage_uri is not None


def _show(run: Run, report: PipelineReport) -> None:
    facts: dict[str, Any] = {
        "commit_id": report.commit_id,
        "dry_run": report.dry_run,
        "seconds": round(report.seconds, 3),
        "application_id": report.application_id,
        "quarantine": report.quarantine,
        "types": {name: {key: getattr(item, key) for key in COUNTS} for name, item in report.types.items()},
        "defaulted": {name: list(fields) for name, fields in report.defaulted.items() if fields},
        "ignored": {name: list(columns) for name, columns in report.ignored.items() if columns},
    }

    def draw(face: Face) -> None:
        face.table(["type", *COUNTS], [[name, *counts.values()] for name, counts in facts["types"].items()])
        if report.dry_run:
            face.line("a dry run: nothing was written")
        elif report.commit_id is None:
            face.line("nothing changed: no commit was made", "good")
        else:
            face.line(f"commit {report.commit_id} in {report.seconds:.1f} s", "good")
        if report.quarantine:
            face.line(f"rejected rows are in {report.quarantine}", "warning")

    run.output.show(facts, draw)
    for name, fields in facts["defaulted"].items():
        run.output.say(f"{name}: the source has no column for {', '.join(fields)}; every row gets the default")
    for name, columns in facts["ignored"].items():
        run.output.say(f"{name}: columns that fill no field: {', '.join(columns)}")
