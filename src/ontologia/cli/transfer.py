"""`onto export` and `onto import`: data between any two engines (RFC 0004 §8)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ontologia.cli import exits
from ontologia.cli.diagnostics import tell
from ontologia.cli.exits import UsageError
from ontologia.cli.options import (
    AcrossVersions,
    Apply,
    AsOf,
    CommitMeta,
    DryRun,
    HistorySince,
    Models,
    OnBranch,
    TypeFilter,
    UpgraderModules,
    WorkEngine,
    commit_of,
)
from ontologia.cli.output import Face, count_noun
from ontologia.cli.run import Run, command, metadata
from ontologia.files.scratch import Scratch

if TYPE_CHECKING:
    from ontologia.runtime.store import Store
    from ontologia.runtime.transfer import ExportReport, ImportReport


def register(app: typer.Typer) -> None:
    command(app, "export", example="onto export --db onto.db --output data/")(export)
    command(app, "import", example="onto import --input data/ --models myapp.models --apply --on-conflict abort")(
        import_
    )


def export(
    run: Run,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="A new or empty folder.", show_default=False)
    ],
    type_names: TypeFilter = None,
    as_of: AsOf = None,
    history_since: HistorySince = None,
    with_history: Annotated[
        bool,
        typer.Option("--with-history", help="Everything: the log, and every version under the schema it had."),
    ] = False,
    across_versions: AcrossVersions = False,
    models: Models = None,
    upgraders: UpgraderModules = None,
    with_metadata: Annotated[bool, typer.Option("--with-metadata", help="Add the commit id to every record.")] = False,
    format: Annotated[Literal["jsonl", "parquet"], typer.Option("--format", help="jsonl is portable.")] = "jsonl",
    engine: WorkEngine = "auto",
    branch: OnBranch = None,
) -> None:
    """Write the latest state of every type to files, or another state, or a stretch of history."""
    if as_of is not None and history_since is not None:
        raise UsageError("--as-of and --history-since exclude each other")
    if with_history and (type_names or as_of is not None or history_since is not None or across_versions):
        raise UsageError(
            "--with-history is everything as it was: leave out --type, --as-of, --history-since and --across-versions"
        )
    folder = Path(output)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--output {output} is there already and not an empty folder: choose another one")
    options: dict[str, Any] = {
        "types": type_names,
        "history_since": history_since,
        "with_metadata": with_metadata,
        "format": format,
    }
    names = run.model_names(models) if across_versions or with_history else ()
    with run.store(names, by_pages=True, branch=branch) as store:
        across = run.across(store, across_versions, upgraders)
        if across is not None:
            options |= {"across_versions": True, "upgraders": across.upgraders}
        options["as_of"] = commit_of(store, as_of)
        if with_history:
            report = _history_exported(run, store, folder, format)
        else:
            report = _export(run, store, folder, options, engine)
    facts = {
        "directory": str(report.directory),
        "format": report.format,
        "head": report.head,
        "commit": report.commit,
        "rows": report.rows,
        "diagnostics": report.diagnostics,
        "types": [
            {"kind": item.ref.kind, "name": item.ref.name, "file": item.file, "rows": item.rows}
            for item in report.types
        ],
    }

    def draw(face: Face) -> None:
        rows = [[item.ref.name, item.ref.kind, item.rows, item.file] for item in report.types]
        face.table(["type", "kind", "rows", "file"], rows)
        face.line(f"exported {count_noun(report.rows, 'row')} of commit {report.commit} to {report.directory}", "good")

    run.output.show(facts, draw)
    tell(run.output, report.diagnostics)


def _history_exported(run: Run, store: Store, folder: Path, format: Literal["jsonl", "parquet"]) -> ExportReport:
    from ontologia.runtime.transfer import export_history

    classes = [declaration.cls for declaration in store.declarations.values()]
    with run.output.progress("exporting") as bar:
        return export_history(
            store,
            folder,
            format=format,
            types=classes,
            progress=lambda name, done, total: bar(done, name, total),
        )


def _export(run: Run, store: Store, folder: Path, options: dict[str, Any], engine: str) -> ExportReport:
    from ontologia.runtime.transfer import export_data, rows_to_export

    if not run.on_spark(engine, rows_to_export(store, **options) if engine == "auto" else 0):
        with run.output.progress("exporting") as bar:
            return export_data(store, folder, **options, progress=lambda name, done, total: bar(done, name, total))
    from ontologia.spark.transfer import export_data as export_on_spark

    session = run.spark()
    with run.output.progress("Spark:") as bar, run.following(session, bar):
        return export_on_spark(session, store, folder, **options)


def import_(
    run: Run,
    input: Annotated[
        str,
        typer.Option("--input", "-i", metavar="PATH", help="An exported folder, or one file.", show_default=False),
    ],
    models: Models = None,
    dry_run: DryRun = False,
    apply: Apply = False,
    on_conflict: Annotated[
        Literal["abort", "skip", "upsert"],
        typer.Option("--on-conflict", help="When an identity is stored already: stop, keep it, or replace it."),
    ] = "abort",
    precondition: Annotated[
        str | None,
        typer.Option(
            "--precondition", metavar="RULE", help="must_exist, must_not_exist, or if_commit_id:N for the head."
        ),
    ] = None,
    with_history: Annotated[
        bool, typer.Option("--with-history", help="Every commit of an exported history, into an empty place.")
    ] = False,
    engine: WorkEngine = "auto",
    meta: CommitMeta = None,
    branch: OnBranch = None,
) -> None:
    """Bring exported data into a store as one commit. A preview, unless --apply."""
    from ontologia.runtime.transfer import Precondition, rows_to_import

    if dry_run and apply:
        raise UsageError("--dry-run and --apply exclude each other")
    if precondition == "must_exist" and on_conflict == "abort":
        raise UsageError("--precondition must_exist needs --on-conflict upsert or skip: abort refuses what exists")
    if not Path(input).exists():
        raise UsageError(f"--input {input}: there is no such file or folder")
    if with_history:
        if on_conflict != "abort" or precondition is not None or meta or branch is not None:
            raise UsageError(
                "--with-history is for an empty place: leave out --on-conflict, --precondition, --meta and --branch"
            )
        _import_history(run, input, run.model_names(models), apply=apply)
        return
    try:
        rule = None if precondition is None else Precondition.parse(precondition)
    except ValueError as problem:
        raise UsageError(f"--{problem}") from None
    notes = metadata(meta)
    if apply:
        run.echo_target()
    options: dict[str, Any] = {
        "dry_run": not apply,
        "on_conflict": on_conflict,
        "precondition": rule,
        "meta": notes,
    }
    on_spark = run.on_spark(engine, rows_to_import(Path(input)) if engine == "auto" else 0)
    with _target_store(run, run.model_names(models), apply, branch) as store:
        report = _import(run, store, input, options, on_spark=on_spark)
    _show_import(run, report)


def _import_history(run: Run, path: str, models: list[str], *, apply: bool) -> None:
    """The same as `onto copy`, to the target of this command."""
    from ontologia.cli.copy import show
    from ontologia.cli.models import load_models
    from ontologia.runtime.transfer import copy_history, is_export

    if not is_export(path):
        raise UsageError(f"--input {path}: a history is in a folder, as onto export --with-history writes it")
    if apply:
        run.echo_target()
    target = run.settings.target
    with run.output.progress("copying") as bar:
        report = copy_history(
            path,
            target.uri if target.backend == "s3" else target.location,
            dry_run=not apply,
            types=[declaration.cls for declaration in load_models(models).values()],
            config=run.settings.config,
            progress=lambda what, done, total: bar(done, what, total),
        )
    show(run, report)
    if not apply:
        run.output.say("to do it: the same command with --apply")


def _import(run: Run, store: Store, path: str, options: dict[str, Any], *, on_spark: bool) -> ImportReport:
    from ontologia.runtime.transfer import import_data

    if not on_spark:
        with run.output.progress("importing") as bar:
            return import_data(store, path, **options, progress=lambda phase, done, total: bar(done, phase, total))
    from ontologia.spark.transfer import import_data as import_on_spark

    session = run.spark()
    with run.output.progress("Spark:") as bar, run.following(session, bar):
        return import_on_spark(session, store, path, **options)


@contextmanager
def _target_store(run: Run, models: list[str], apply: bool, branch: str | None) -> Iterator[Store]:
    """The store to import into. A preview for a SQLite file that is not there yet must not make it, but another."""
    from ontologia.cli.models import load_models
    from ontologia.engines.dispatch import open_repository
    from ontologia.runtime.store import Store

    if apply or not run.settings.is_missing():
        with run.store(models, create=apply, by_pages=True, branch=branch) as store:
            yield store
        return
    with Scratch("preview") as folder:
        nothing = open_repository(f"{folder}/onto.db", config=run.settings.config)
        with Store(nothing, load_models(models)) as store:
            yield store


def _show_import(run: Run, report: ImportReport) -> None:
    columns = ("rows", "inserted", "updated", "unchanged", "skipped", "repeated")
    types: list[dict[str, Any]] = [
        {"kind": item.ref.kind, "name": item.ref.name, **{name: getattr(item, name) for name in columns}}
        for item in report.types
    ]
    facts = {
        "applied": report.applied,
        "commit_id": report.commit_id,
        "rows": report.rows,
        "refused": report.refused,
        "types": types,
    }

    def draw(face: Face) -> None:
        rows = [[item["name"], item["kind"], *(item[name] for name in columns)] for item in types]
        face.table(["type", "kind", *columns], rows)
        if report.refused is not None:
            face.line(f"would be refused: {report.refused}", "bad")
        elif not report.applied:
            face.line("nothing was written: this is a preview")
        elif report.commit_id is None:
            face.line("nothing to write: the store has all of it", "good")
        else:
            face.line(f"imported in commit {report.commit_id}", "good")

    run.output.show(facts, draw)
    if report.refused is not None:
        run.output.warn(report.refused)
        raise typer.Exit(exits.CONFLICT)
    if not report.applied:
        run.output.say("to do it: the same command with --apply")
