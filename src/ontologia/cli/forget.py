"""`onto forget`: history before a commit is given up, and what was there then stays."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontologia.cli.options import Apply, Token, check_token, commit_or_time
from ontologia.cli.output import Face, count_noun
from ontologia.cli.run import Run, command

if TYPE_CHECKING:
    from ontologia.engines.forgetting import Superseded
    from ontologia.runtime.forgetting import ForgetPreview, ForgetReport

Before = Annotated[
    Any,
    typer.Option(
        "--before",
        metavar="COMMIT|TIME",
        help="The commit where history will begin, or a time: the last commit made by then.",
        parser=commit_or_time,
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    command(app, "forget", example="onto forget --before 2026-01-01 --db onto.db")(forget)


def forget(run: Run, before: Before, apply: Apply = False, token: Token = None) -> None:
    """Give up history before a commit; the state at that commit stays. A preview with a token first."""
    from ontologia.runtime import forgetting

    check_token(apply, token)
    point: int | datetime = before
    with run.store() as store:
        with run.output.progress("searching"):
            plan = forgetting.preview(store.engine, point)
        if not apply:
            _show_preview(run, plan)
            return
        run.echo_target()
        with run.output.progress("forgetting"):
            report = forgetting.apply(store.engine, plan, token)
    _show_report(run, report)


def _facts(found: list[Superseded]) -> list[dict[str, Any]]:
    return [{"kind": item.ref.kind, "name": item.ref.name, "rows": item.rows} for item in found]


def _draw_found(face: Face, found: list[Superseded]) -> None:
    rows = [[item.ref.name, item.ref.kind, item.rows] for item in found if item.rows]
    if rows:
        face.table(["type", "kind", "versions"], rows)


def _show_preview(run: Run, plan: ForgetPreview) -> None:
    facts = {"applied": False, "base_commit_id": plan.base, "types": _facts(plan.found), "rows": plan.rows}

    def draw(face: Face) -> None:
        _draw_found(face, plan.found)
        if plan.is_done:
            face.line(f"history begins at commit {plan.base} already")
        else:
            face.line(f"history would begin at commit {plan.base}: its state stays, earlier ones are given up", "bad")
            face.line(f"{count_noun(plan.rows, 'version')} would go; that cannot be undone", "bad")
        if not plan.is_done:
            face.line(f"token: {plan.token}")

    run.output.show({**facts, "token": plan.token}, draw)
    if not plan.is_done:
        run.output.say(f"to forget: the same command with --apply --token {plan.token}")


def _show_report(run: Run, report: ForgetReport) -> None:
    facts = {
        "applied": True,
        "base_commit_id": report.base,
        "types": _facts(report.found),
        "rows": report.rows,
        "commit_id": report.commit_id,
        "space_waits_for": report.space_waits_for,
    }

    def draw(face: Face) -> None:
        _draw_found(face, report.found)
        told = "" if report.commit_id is None else f", as commit {report.commit_id} says"
        face.line(
            f"history begins at commit {report.base}: {count_noun(report.rows, 'version')} given up{told}", "good"
        )
        if report.space_waits_for is not None:
            face.line(report.space_waits_for)

    run.output.show(facts, draw)
