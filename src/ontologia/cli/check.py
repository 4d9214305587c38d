"""`onto check` and `onto recover`: is everything there that was written, and a head that is lost."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from ontologia.cli import exits
from ontologia.cli.options import Apply, Token, check_token
from ontologia.cli.output import Face, count_noun, size
from ontologia.cli.run import Run, command


def register(app: typer.Typer) -> None:
    command(app, "check", example="onto check --storage-uri s3://my-bucket/onto-prod")(check)
    command(app, "recover", example="onto recover --storage-uri s3://my-bucket/onto-prod")(recover)


def check(run: Run) -> None:
    """Read everything in a store and compare it with what was written. Exits with 5 if there is damage."""
    from ontologia.engines.damage import check_storage

    with run.output.progress("checking") as bar:
        report = check_storage(
            run.settings.target, run.settings.config, lambda done, total: bar(done, "files of commits", total)
        )
    facts = {"target": run.settings.where, "healthy": report.healthy, **asdict(report)}

    def draw(face: Face) -> None:
        looked = f"{count_noun(report.commits, 'commit')}, {count_noun(report.files, 'file')}, {size(report.bytes)}"
        face.line(f"looked at {looked}")
        for damage in report.damages:
            face.change("-", f"{damage.what} {damage.key}: {damage.problem}")
            face.line(f"    {damage.effect}", "dim")
        face.line(
            "everything is as it was written" if report.healthy else count_noun(len(report.damages), "damage"),
            "good" if report.healthy else "bad",
        )

    run.output.show(facts, draw)
    if not report.healthy:
        raise typer.Exit(exits.STORAGE)


def recover(
    run: Run,
    manifest: Annotated[
        str | None, typer.Option("--manifest", metavar="KEY", help="The newest commit to keep, by its manifest.")
    ] = None,
    apply: Apply = False,
    token: Token = None,
) -> None:
    """Rebuild a lost or damaged head from the chain of manifests. A preview, unless --apply --token."""
    from ontologia.engines.damage import recover_head

    check_token(apply, token)
    if apply:
        run.echo_target()
    found = recover_head(run.settings.target, run.settings.config, apply=apply, token=token, manifest_path=manifest)
    facts: dict[str, Any] = {"target": run.settings.where, **asdict(found)}

    def draw(face: Face) -> None:
        face.line(f"the head is damaged: {found.reason}", "bad")
        verb = "recovered" if found.applied else "would recover"
        face.line(f"{verb} commit {found.commit_id}, by {found.manifest_path}", "good")
        if not found.is_certain:
            face.line("it is complete, but nothing proves that its writer was told so", "warning")
        if not found.applied:
            face.line(f"token: {found.token}")

    run.output.show(facts, draw)
    if not found.applied:
        run.output.say(f"to do it: the same command with --apply --token {found.token}")
