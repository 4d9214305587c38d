"""`onto commits` and `onto commits examine`: the log, and what one commit changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontologia.cli.differences import draw_row_change
from ontologia.cli.options import OnBranch, number
from ontologia.cli.output import Face
from ontologia.cli.run import Run, command, metadata, remember, with_globals
from ontologia.errors import ValidationError
from ontologia.model import TypeRef

if TYPE_CHECKING:
    from ontologia.runtime.store import Store

Last = Annotated[int, number("--last", least=1, help="The newest N.")]
Since = Annotated[int | None, number("--since", help="Only those after commit N.")]
MetaFilter = Annotated[
    list[str] | None, typer.Option("--meta", metavar="K=V", help="Only those with this note; may be repeated.")
]


def register(app: typer.Typer) -> None:
    found = typer.Typer(invoke_without_command=True)

    def commits(
        ctx: typer.Context,
        last: Last = 10,
        since: Since = None,
        meta: MetaFilter = None,
        branch: OnBranch = None,
        **values: Any,
    ) -> None:
        run = Run(remember(ctx, values))
        if ctx.invoked_subcommand is None:
            with run.logging():
                log(run, last, since, meta, branch)

    found.callback(help="The commit log, newest first.", epilog="Example:  onto commits --last 5 --meta source=crm")(
        with_globals(commits)
    )
    command(found, "examine", example="onto commits examine --id 7")(examine)
    app.add_typer(found, name="commits")


def log(run: Run, last: int, since: int | None, meta: list[str] | None, branch: str | None = None) -> None:
    wanted = metadata(meta)
    with run.store(branch=branch) as store:
        found = store.list_commits(limit=None if wanted else last, since_commit_id=since)
    if wanted:
        found = [commit for commit in found if wanted.items() <= commit["metadata"].items()][:last]

    def draw(face: Face) -> None:
        rows = [[item["id"], item["created_at"], item["runtime_id"], _notes(item["metadata"])] for item in found]
        face.table(["id", "created", "runtime", "metadata"], rows)

    run.output.show({"commits": found}, draw)


def _notes(notes: dict[str, Any]) -> str:
    texts = (value if isinstance(value, str) else json.dumps(value) for value in notes.values())
    return " ".join(f"{key}={text}" for key, text in zip(notes, texts, strict=True))


def examine(
    run: Run,
    commit_id: Annotated[int, number("--id", least=1, help="The commit.", show_default=False)],
    limit: Annotated[int, number("--limit", help="Show the fields of at most N changes; 0 for all.")] = 100,
    branch: OnBranch = None,
) -> None:
    """What one commit changed: every identity, and its fields before and after."""
    with run.store(branch=branch) as store, run.output.progress("examining"):
        commit = store.get_commit(commit_id)
        if commit is None:
            raise ValidationError(
                f"there is no commit {commit_id}; the head is {store.repository.get_head_commit_id()}"
            )
        changes = store.list_commit_changes(commit_id)
        shown = changes[:limit] if limit else changes
        _add_fields(store, commit_id, shown)
    counts = Counter((item["kind"], item["type_name"], item["operation"]) for item in changes)
    facts: dict[str, Any] = {
        "commit": commit,
        "total_changes": len(changes),
        "summary": [
            {
                "kind": kind,
                "name": name,
                "inserted": counts[kind, name, "insert"],
                "updated": counts[kind, name, "update_version"],
                "removed": counts[kind, name, "remove"],
            }
            for kind, name in sorted({(kind, name) for kind, name, _ in counts})
        ],
        "changes": shown,
    }

    def draw(face: Face) -> None:
        face.line(f"commit {commit['id']}", "strong")
        face.pairs({"created": commit["created_at"], "runtime": commit["runtime_id"], **commit["metadata"]})
        for item in facts["summary"]:
            removed = f", {item['removed']} removed" if item["removed"] else ""
            face.line(f"{item['kind']} {item['name']}: {item['inserted']} inserted, {item['updated']} updated{removed}")
        for change in shown:
            draw_row_change(face, change)
        if len(shown) < len(changes):
            face.line(f"… and {len(changes) - len(shown)} more; --limit 0 shows all", "dim")

    run.output.show(facts, draw)


def _add_fields(store: Store, commit_id: int, changes: Sequence[dict[str, Any]]) -> None:
    """Put the fields that changed into each change: one read before and one after, for each type.

    Rows of an earlier schema are not readable under the current one; such a change has no fields.
    """
    layouts = store.engine.catalog().layouts
    for ref in {TypeRef(item["kind"], item["type_name"]) for item in changes}:
        own = [item for item in changes if (item["kind"], item["type_name"]) == (ref.kind, ref.name)]
        layout = layouts.get(ref)
        if layout is None or layout.activation_commit_id > commit_id:
            for item in own:
                item["fields"] = None
            continue
        identities = [_identity(ref, item) for item in own]
        after = _state(store, ref, identities, commit_id)
        before = _state(store, ref, identities, commit_id - 1)
        migrated = layout.activation_commit_id == commit_id
        for item, identity in zip(own, identities, strict=True):
            unknown = migrated and item["operation"] != "insert"  # what was there before has another schema
            item["fields"] = None if unknown else _find_changed(before.get(identity), after.get(identity))


def _identity(ref: TypeRef, change: dict[str, Any]) -> tuple[str, ...]:
    return (change["key"],) if ref.kind == "entity" else tuple(change[name] for name in ref.identity)


def _state(store: Store, ref: TypeRef, identities: list[tuple[str, ...]], commit_id: int) -> dict[Any, dict[str, Any]]:
    """Rows of these identities right after a commit."""
    import pyarrow as pa

    from ontologia.cli.query import records_of
    from ontologia.query.plan import Plan, Window

    schema = store.engine.catalog().layouts[ref].schema
    columns = zip(*identities, strict=True)
    keys = pa.table({name: pa.array(values, pa.string()) for name, values in zip(ref.identity, columns, strict=True)})
    plan = Plan.of(schema, Window("as_of", commit_id), keyed=True, stored=True)
    names = ["key"] if ref.kind == "entity" else list(ref.identity)
    records = records_of(schema, store.engine.fetch(plan, keys).columns)
    return {tuple(record[name] for name in names): record["fields"] for record in records}


def _find_changed(before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any] | None:
    if after is None:
        return None if before is None else {name: {"before": it, "after": None} for name, it in before.items()}
    old = before or {}
    return {
        name: {"before": old.get(name), "after": value}
        for name, value in after.items()
        if before is None or old.get(name) != value
    }
