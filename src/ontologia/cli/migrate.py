"""`onto migrate`: bring a store to the schemas in code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontologia.cli import exits
from ontologia.cli.differences import draw_schema_diffs
from ontologia.cli.exits import UsageError
from ontologia.cli.options import Apply, CommitMeta, Models, Token, UpgraderModules, WorkEngine
from ontologia.cli.output import Face, count_noun
from ontologia.cli.run import Run, command, metadata

if TYPE_CHECKING:
    from ontologia.model import TypeRef, TypeSchema
    from ontologia.runtime.migration import MigrationCheck, MigrationPreview, MigrationResult


MEANINGS = {
    "weakening": "old rows and old readers all stay valid",
    "strengthening": "rows or readers of the old schema do not all stay valid",
}
SAID = {
    "renamed": "was {before}; its values are kept, in {rows}",
    "widened": "takes more values than before; those of {rows} stay",
    "filled": "new; {rows} get the default",
    "discarded": "gone from the code; its values in {rows} are discarded",
    "upgraded": "whatever the upgrader makes of it, in {rows}",
    "needs_upgrader": "needs an upgrader, for {rows}",
}


def register(app: typer.Typer) -> None:
    command(app, "migrate", example="onto migrate --models myapp.models --upgraders myapp.migrations")(migrate)


def migrate(
    run: Run,
    models: Models = None,
    upgraders: UpgraderModules = None,
    apply: Apply = False,
    token: Token = None,
    force: Annotated[bool, typer.Option("--force", help="With --apply: do it without a token.")] = False,
    allow_discard: Annotated[
        bool,
        typer.Option(
            "--allow-discard", help="With --apply: discard the values of fields that the classes no longer have."
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Run the upgraders over every row, write nothing, and report what fails.")
    ] = False,
    engine: WorkEngine = "auto",
    meta: CommitMeta = None,
) -> None:
    """Show what changed between store and code, what becomes of each field, and the token; or apply it."""
    if (token is not None or force or allow_discard) and not apply:
        raise UsageError("--token, --force and --allow-discard are for --apply")
    if check and apply:
        raise UsageError("--check writes nothing, so it does not go with --apply")
    if token is not None and force:
        raise UsageError("--token and --force exclude each other")
    if apply and token is None and not force:
        raise UsageError("--apply needs --token (the preview prints it) or --force")
    from ontologia.cli.models import load_steps

    notes = metadata(meta)
    with run.store(run.model_names(models, needed=True)) as store:
        load_steps(upgraders or run.settings.upgraders)
        if check:
            with run.output.progress("checking"):
                found = store.check_migration()
            _show_check(run, found)
            return
        stored = {ref: layout.schema for ref, layout in store.engine.catalog().layouts.items()}
        preview: Any = store.migrate(dry_run=True)
        if not apply:
            _show_preview(run, preview, stored, store.schemas)
            return
        run.echo_target()
        with run.output.progress("migrating") as bar:
            if store.engine.capabilities.object_storage and run.on_spark(engine, preview.estimated_rows):
                from ontologia.spark.care.migration import migrate as migrate_on_spark

                session = run.spark()
                with run.following(session, bar):
                    result: Any = migrate_on_spark(
                        session, store, dry_run=False, token=token, force=force, meta=notes, allow_discard=allow_discard
                    )
            else:
                result = store.migrate(dry_run=False, token=token, force=force, meta=notes, allow_discard=allow_discard)
    _show_result(run, result)


def _show_preview(
    run: Run, preview: MigrationPreview, stored: dict[TypeRef, TypeSchema], code: dict[TypeRef, TypeSchema]
) -> None:
    facts = {
        "applied": False,
        "has_changes": preview.has_changes,
        "token": preview.token,
        "diffs": [diff.to_json() for diff in preview.diffs],
        "estimated_rows": preview.estimated_rows,
        "types_requiring_upgraders": preview.types_requiring_upgraders,
        "types_schema_only": preview.types_schema_only,
        "discarded_values": preview.discarded_values,
        "effects": {name: [effect.to_json() for effect in found] for name, found in preview.effects.items()},
        "changes": preview.changes,
        "missing_upgraders": [{"type": name, "from_version": number} for name, number in preview.missing_steps],
    }

    def draw(face: Face) -> None:
        if not preview.has_changes:
            face.line("nothing to migrate: code and store agree", "good")
            return
        draw_schema_diffs(face, preview.diffs, stored, code)
        face.line(f"{count_noun(preview.estimated_rows, 'row')} to rewrite")
        for name, change in preview.changes.items():
            face.line(f"{name}: {MEANINGS[change]}", "dim")
            for effect in preview.effects[name]:
                if effect.effect in SAID:
                    said = SAID[effect.effect].format(rows=count_noun(effect.rows, "row"), before=effect.before)
                    is_lost = effect.effect == "discarded" and effect.rows > 0
                    face.line(f"  {effect.field}: {said}", "warning" if is_lost else "dim")
        for name, number in preview.missing_steps:
            face.line(f"missing: an upgrader for {name} from version {number}", "bad")
        face.line(f"token: {preview.token}")

    run.output.show(facts, draw)
    if preview.missing_steps:
        steps = ", ".join(f"{name} from version {number}" for name, number in preview.missing_steps)
        run.output.warn(f"no upgrader for {steps}: the migration cannot be applied yet")
    elif preview.has_changes:
        discards = " --allow-discard" if preview.discarded_values else ""
        run.output.say(f"to apply it: the same command with --apply --token {preview.token}{discards}")


def _show_check(run: Run, found: MigrationCheck) -> None:
    facts = {"passed": found.passed, "rows": dict(found.rows.items()), "failures": found.failures}

    def draw(face: Face) -> None:
        for failure in found.failures:
            face.line(failure, "bad")
        if found.passed:
            face.line(f"{count_noun(found.rows, 'row')} can be carried over; nothing was written", "good")
        else:
            face.line(f"{count_noun(len(found.failures), 'row')} of {found.rows:,} cannot; nothing was written")

    run.output.show(facts, draw)
    if not found.passed:
        raise typer.Exit(exits.MISMATCH)


def _show_result(run: Run, result: MigrationResult) -> None:
    facts = {
        "applied": True,
        "success": result.success,
        "types_migrated": result.types_migrated,
        "rows_migrated": result.rows_migrated,
        "new_schema_versions": result.new_schema_versions,
        "duration_s": round(result.duration_s, 3),
        "commit_id": result.commit_id,
    }

    def draw(face: Face) -> None:
        if result.commit_id is None:
            face.line("nothing to migrate: code and store agree", "good")
            return
        versions = result.new_schema_versions.items()
        face.table(["type", "version"], [[name, version] for name, version in versions])
        face.line(f"migrated {count_noun(result.rows_migrated, 'row')} in commit {result.commit_id}", "good")

    run.output.show(facts, draw)
