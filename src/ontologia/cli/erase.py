"""`onto erase`: identities go, with every version of them, and the log says that they did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontologia.cli.keys import Keys, parts_of
from ontologia.cli.options import Apply, Token, check_token
from ontologia.cli.output import Face, count_noun
from ontologia.cli.run import Run, command

if TYPE_CHECKING:
    from ontologia.runtime.erasure import ErasurePreview, ErasureReport


def register(app: typer.Typer) -> None:
    command(app, "erase", example="onto erase Customer c1 --reason 'article 17' --db onto.db")(erase)


def erase(
    run: Run,
    type_name: Annotated[str, typer.Argument(metavar="TYPE", help="The type to erase from.")],
    keys: Keys,
    reason: Annotated[
        str,
        typer.Option(
            "--reason", metavar="TEXT", help="The reason, for the log: name nobody in it.", show_default=False
        ),
    ],
    cascade: Annotated[bool, typer.Option("--cascade", help="Also erase the relations that end there.")] = False,
    apply: Apply = False,
    token: Token = None,
) -> None:
    """Erase identities with all their versions: rows, snapshots, free pages, caches. A preview with a token first."""
    from ontologia.runtime import erasure

    check_token(apply, token)
    with run.store() as store:
        schemas = [version.schema for version in store.engine.schema_versions() if version.ref.name == type_name]
        wanted = [parts_of(schemas[-1], key) for key in keys] if schemas else list(keys)
        with run.output.progress("searching"):
            plan = erasure.preview(store.engine, type_name, wanted, reason=reason, cascade=cascade)
        if not apply:
            _show_preview(run, plan, type_name, len(set(keys)))
            return
        run.echo_target()
        with run.output.progress("erasing"):
            report = erasure.apply(store.engine, plan, token)
    _show_report(run, report)


def _facts(found: Any) -> list[dict[str, Any]]:
    return [
        {"kind": item.ref.kind, "name": item.ref.name, "identities": item.identities, "rows": item.rows}
        for item in found
    ]


def _draw_found(face: Face, found: Any) -> None:
    rows = [[item.ref.name, item.ref.kind, item.identities, item.rows] for item in found if item.rows]
    if rows:
        face.table(["type", "kind", "identities", "versions"], rows)


def _show_preview(run: Run, plan: ErasurePreview, type_name: str, asked: int) -> None:
    there = sum(item.identities for item in plan.found if item.rows and item.ref.name == type_name)
    facts = {"applied": False, "types": _facts(plan.found), "rows": plan.rows, "pending": plan.pending}

    def draw(face: Face) -> None:
        _draw_found(face, plan.found)
        if plan.rows:
            if there < asked:
                face.line(f"{there} of {count_noun(asked, 'key')} found", "warning")
            face.line(f"{count_noun(plan.rows, 'version')} would be erased; that cannot be undone", "bad")
        else:
            face.line("no version of these is here: nothing would be erased", "warning")
        if plan.pending:
            face.line("bytes are left of rows that are gone: applying this cleans them away", "warning")
        if plan.rows or plan.pending:
            face.line(f"token: {plan.token}")

    run.output.show({**facts, "token": plan.token}, draw)
    if plan.rows or plan.pending:
        run.output.say(f"to erase: the same command with --apply --token {plan.token}")


def _show_report(run: Run, report: ErasureReport) -> None:
    facts = {
        "applied": True,
        "types": _facts(report.found),
        "rows": report.rows,
        "commit_id": report.commit_id,
        "receipt": report.receipt,
        "mentions": [trace.place for trace in report.mentions],
    }

    def draw(face: Face) -> None:
        _draw_found(face, report.found)
        told = "" if report.commit_id is None else f", as commit {report.commit_id} says"
        face.line(f"erased {count_noun(report.rows, 'version')}{told}; all that is left was read", "good")
        for trace in report.mentions:
            face.line(f"the key is still mentioned in {trace.place}", "warning")
        if report.receipt is not None:
            face.line(f"receipt: {report.receipt}")

    run.output.show(facts, draw)
    if report.receipt is not None:
        run.output.say("keep the receipt: with the keys it proves what was erased, and it is stored nowhere")
