"""Graphs: `onto branch …`, `log`, `diff`, `snapshot`, `optimize`, `cleanup`, `repair`, `recoveries`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ontologia.cli.exits import UsageError
from ontologia.cli.options import Apply, DryRun, Token, number
from ontologia.cli.output import Face, count_noun, size
from ontologia.cli.run import Run, command, group
from ontologia.omnigraph.names import EMPTY

if TYPE_CHECKING:
    from ontologia.omnigraph.conflicts import Conflict
    from ontologia.omnigraph.graph import Graph
    from ontologia.omnigraph.manifest import CommitRecord

GRAPHS = "Graphs"
OnBranch = Annotated[str, typer.Option("--branch", metavar="NAME", help="The branch, main by default.")]
Actor = Annotated[str | None, typer.Option("--as", metavar="ACTOR", help="The author, for the log.")]


def register(app: typer.Typer) -> None:
    where = "--storage-uri s3://my-bucket/graph"
    branch = group(app, "branch", "Branches of a graph.", rich_help_panel=GRAPHS)
    command(branch, "create", example=f"onto branch create review {where}")(create)
    command(branch, "list", example=f"onto branch list {where}")(list_)
    command(branch, "delete", example=f"onto branch delete review {where}")(delete)
    command(branch, "merge", example=f"onto branch merge review --dry-run {where}")(merge)
    options: dict[str, Any] = {"rich_help_panel": GRAPHS}
    command(app, "log", example=f"onto log --branch review {where}", **options)(log)
    command(app, "diff", example=f"onto diff main review {where}", **options)(diff)
    command(app, "snapshot", example=f"onto snapshot review {where}", **options)(snapshot)
    command(app, "optimize", example=f"onto optimize {where}", **options)(optimize)
    command(app, "cleanup", example=f"onto cleanup --keep 10 --older-than 7d --apply {where}", **options)(cleanup)
    command(app, "repair", example=f"onto repair {where}", **options)(repair)
    command(app, "recoveries", example=f"onto recoveries {where}", **options)(recoveries)


def _graph(run: Run, *, writes: bool = False) -> Graph:
    """The graph that the target is. Reads open it read-only, so that they never recover or migrate anything."""
    from ontologia.objects import Location
    from ontologia.omnigraph.graph import Graph, OpenMode

    settings = run.settings
    if settings.target.backend == "sqlite":
        raise UsageError(f"{settings.where} is not a graph: name one with --storage-uri file:///folder or s3://…")
    if writes:
        run.echo_target()
    mode = OpenMode.READ_WRITE if writes else OpenMode.READ_ONLY
    objects = Location(settings.target.location, settings.config).open_objects()
    return Graph.open(objects, settings.config, mode=mode)


def _moment(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC).isoformat(timespec="seconds")


def _commit(record: CommitRecord | None) -> dict[str, Any] | None:
    if record is None:
        return None
    return {
        "commit": record.graph_commit_id,
        "branch": record.branch,
        "version": record.manifest_version,
        "as_of": max(0, record.manifest_version - EMPTY),
        "parent": record.parent_commit_id,
        "merged_parent": record.merged_parent_commit_id,
        "actor": record.actor_id,
        "kind": record.details.get("kind"),
        "message": record.details.get("message"),
        "created_at": _moment(record.created_at_us),
    }


def _conflict(found: Conflict) -> dict[str, Any]:
    sides = {"base": found.base, "source": found.source, "target": found.target}
    return {"table": found.table_key, "id": found.id, "kind": found.kind, **sides}


# --- branches ---


def create(
    run: Run,
    name: Annotated[str, typer.Argument(help="The name of the branch.")],
    source: Annotated[
        str, typer.Option("--from", metavar="REF", help="A branch, tag or commit; main by default.")
    ] = "main",
    dry_run: DryRun = False,
) -> None:
    """Create a branch. Nothing is copied: tables fork when the branch first writes to them."""
    from ontologia.omnigraph.branches import check_new_branch, create_branch

    graph = _graph(run, writes=not dry_run)
    made = check_new_branch(graph, name, source)[0] if dry_run else create_branch(graph, name, source)
    facts = {"branch": made, "from": source, "made": not dry_run}
    said = f"{'would make' if dry_run else 'made'} branch {made} from {source}"
    run.output.show(facts, lambda face: face.line(said, "good"))


def list_(run: Run) -> None:
    """Show the branches, where they came from and where they are."""
    from ontologia.omnigraph.branches import list_branches

    facts: dict[str, Any] = {
        "branches": [
            {**asdict(it), "created_at": None if it.created_at is None else it.created_at.isoformat()}
            for it in list_branches(_graph(run))
        ]
    }

    def draw(face: Face) -> None:
        rows = [[it["name"], it["parent"] or "", it["forked_at"] or "", it["head"]] for it in facts["branches"]]
        face.table(["branch", "from", "at version", "head"], rows)

    run.output.show(facts, draw)


def delete(
    run: Run,
    name: Annotated[str, typer.Argument(help="The branch.")],
    dry_run: DryRun = False,
    token: Token = None,
) -> None:
    """Delete a branch. Refused while other branches or tags need it; commits that only it has need a token."""
    from ontologia.errors import DropRefusedError
    from ontologia.omnigraph.branches import check_deletable, delete_branch, find_unmerged

    graph = _graph(run)
    check_deletable(graph, name)
    lost = find_unmerged(graph, name)
    wanted = lost[0][-8:] if lost else None  # of the newest of them: another commit makes another token
    if lost and not dry_run and token != wanted:
        raise DropRefusedError(
            f"{count_noun(len(lost), 'commit')} of {name} would be lost, no other branch has them: merge it first, or "
            f"see them with --dry-run, which prints the token that deletes it"
        )
    if not dry_run:
        delete_branch(_graph(run, writes=True), name)
    facts = {"branch": name, "deleted": not dry_run, "lost": lost, "token": wanted if dry_run else None}

    def draw(face: Face) -> None:
        for commit in lost:
            face.change("-", f"commit {commit}")
        face.line(f"{'would delete' if dry_run else 'deleted'} branch {name}", "good")

    run.output.show(facts, draw)
    if dry_run and lost:
        run.output.say(f"to delete it: onto branch delete {name} --token {wanted}")


def merge(
    run: Run,
    source: Annotated[str, typer.Argument(help="The branch whose changes are merged.")],
    into: Annotated[str, typer.Option("--into", metavar="NAME", help="The branch that takes them.")] = "main",
    strategy: Annotated[
        Literal["fail", "ours", "theirs"],
        typer.Option("--strategy", help="Who wins a conflict: nobody, the target (ours) or the source (theirs)."),
    ] = "fail",
    dry_run: DryRun = False,
    delete_branch: Annotated[bool, typer.Option("--delete-branch", help="Delete the source afterwards.")] = False,
    actor: Actor = None,
) -> None:
    """Merge a branch, row by row, as one commit with two parents. A conflict ends with exit code 6."""
    from ontologia.omnigraph import branches
    from ontologia.omnigraph.merge import merge as merge_branches

    graph = _graph(run, writes=not dry_run)
    report = merge_branches(graph, source, into, strategy=strategy, dry_run=dry_run, actor=actor)
    if delete_branch and not dry_run:
        branches.delete_branch(graph, source)
    facts: dict[str, Any] = {
        "outcome": report.outcome,
        "source": source,
        "target": into,
        "dry_run": dry_run,
        "commit": _commit(report.commit),
        "written": dict(report.written),
        "deleted": dict(report.deleted),
        "conflicts": [_conflict(conflict) for conflict in report.conflicts],
    }

    def draw(face: Face) -> None:
        for key in sorted({*report.written, *report.deleted}):
            face.change("~", f"{key}: {report.written.get(key, 0):,} written, {report.deleted.get(key, 0):,} deleted")
        for conflict in report.conflicts:
            face.line(f"decided for {strategy}: {conflict}", "warning")
        face.line(f"{'would be ' if dry_run else ''}{report.outcome.replace('_', ' ')}", "good")

    run.output.show(facts, draw)


# --- history ---


def log(
    run: Run,
    branch: OnBranch = "main",
    last: Annotated[int | None, number("--last", help="Only the newest N.", least=1)] = None,
) -> None:
    """Show the commits of a branch, newest first."""
    from itertools import islice

    found = [_commit(record) for record in islice(_graph(run).commits(branch), last)]

    def draw(face: Face) -> None:
        rows = [
            [it["commit"], it["as_of"], it["created_at"], it["actor"] or "", it["message"] or it["kind"] or ""]
            for it in found
            if it is not None
        ]
        face.table(["commit", "as of", "when", "who", "what"], rows)

    run.output.show({"branch": branch, "commits": found}, draw)


def diff(
    run: Run,
    a: Annotated[str, typer.Argument(help="A branch, tag or commit; main...review: what review changed.")],
    b: Annotated[str | None, typer.Argument(help="Another one.")] = None,
    table: Annotated[list[str] | None, typer.Option("--table", help="Only this table, as in node:Person.")] = None,
) -> None:
    """Show what differs between two states, row by row."""
    from ontologia.omnigraph import history

    graph = _graph(run)
    found = history.diff(graph, *history.resolve_range(graph, a, b), table)
    facts: dict[str, Any] = {
        "from": a,
        "to": a.partition("...")[2] if b is None else b,
        "stats": found.stats,
        "changes": [
            {"table": it.table_key, "id": it.id, "op": it.op, "before": it.before, "after": it.after} for it in found
        ],
    }

    def draw(face: Face) -> None:
        signs: dict[str, Any] = {"insert": "+", "update": "~", "delete": "-"}
        for it in found:
            face.change(signs[it.op], f"{it.table_key} {it.id}")
        stats = found.stats
        face.line(f"{stats['inserts']:,} inserted, {stats['updates']:,} updated, {stats['deletes']:,} deleted")

    run.output.show(facts, draw)


def snapshot(
    run: Run,
    reference: Annotated[str, typer.Argument(help="A branch, tag or commit; main by default.")] = "main",
) -> None:
    """Show the tables of a state: the version and lineage of each, and how many rows it has."""
    from ontologia.omnigraph.snapshots import resolve

    manifest = resolve(_graph(run), reference)
    facts: dict[str, Any] = {
        "branch": manifest.branch,
        "version": manifest.version,
        "commit": None if manifest.head is None else manifest.head.graph_commit_id,
        "tables": [
            {"table": key, "path": pin.path, "version": pin.version, "branch": pin.branch, "rows": pin.rows}
            for key, pin in sorted(manifest.pins.items())
        ],
    }

    def draw(face: Face) -> None:
        face.pairs({name: facts[name] for name in ("branch", "version", "commit")})
        rows = [[it["table"], it["version"], it["branch"] or "main", it["rows"]] for it in facts["tables"]]
        face.table(["table", "version", "lineage", "rows"], rows)

    run.output.show(facts, draw)


# --- care ---


def optimize(run: Run, branch: OnBranch = "main", dry_run: DryRun = False, actor: Actor = None) -> None:
    """Compact tables and bring indexes up to date, as one commit. Refused while a recovery is pending."""
    from ontologia.omnigraph import maintenance

    graph = _graph(run, writes=not dry_run)
    planned = maintenance.optimize_plan(graph, branch)
    done = None if dry_run else _commit(maintenance.optimize(graph, branch, actor))

    def draw(face: Face) -> None:
        for key, steps in planned.items():
            face.change("~", f"{key}: {', '.join(steps)}")
        said = "nothing to optimize" if not planned else f"would optimize {count_noun(len(planned), 'table')}"
        face.line(said if done is None else f"optimized in commit {done['commit']}", "good")

    run.output.show({"dry_run": dry_run, "tables": planned, "commit": done}, draw)


def cleanup(
    run: Run,
    keep: Annotated[int, number("--keep", help="How many states of each branch stay.", least=1)] = 10,
    older_than: Annotated[str, typer.Option("--older-than", help="Only states older than this: 12h, 7d, 2w.")] = "7d",
    apply: Apply = False,
) -> None:
    """Forget old states. What a branch, a tag or a recovery needs is kept."""
    from ontologia.omnigraph.cleanup import cleanup as clean

    report = clean(_graph(run, writes=apply), keep, older_than, dry_run=not apply)
    facts: dict[str, Any] = {
        "applied": apply,
        "versions": report.versions,
        "forks": report.forks,
        "total": report.total,
        "bytes": report.bytes_removed,
    }

    def draw(face: Face) -> None:
        for place, versions in report.versions.items():
            face.change("-", f"{place}: {count_noun(len(versions), 'version')}")
        for fork in report.forks:
            face.change("-", f"{fork}: a fork of a branch that is gone")
        verb = "removed" if apply else "would remove"
        face.line(
            f"{verb} {count_noun(report.total, 'version')}{f', {size(report.bytes_removed)}' if apply else ''}", "good"
        )

    run.output.show(facts, draw)
    if report.total and not apply:
        run.output.say("to do it: the same command with --apply")


def repair(
    run: Run,
    confirm: Annotated[bool, typer.Option("--confirm", help="Publish what is provably maintenance.")] = False,
    force: Annotated[bool, typer.Option("--force", help="With --confirm: publish everything that was found.")] = False,
) -> None:
    """Look for versions of tables that the graph did not make, and for indexes that cannot be read."""
    from ontologia.omnigraph import maintenance

    if force and not confirm:
        raise UsageError("--force goes with --confirm")
    found = maintenance.repair(_graph(run, writes=confirm), confirm=confirm, force=force)
    facts = {"tables": [asdict(drift) for drift in found]}

    def draw(face: Face) -> None:
        rows = [[it.branch, it.table_key, it.published, it.newest, it.classification, it.action] for it in found]
        face.table(["branch", "table", "published", "newest", "found", "done"], rows)

    run.output.show(facts, draw)


def recoveries(run: Run) -> None:
    """Show writes that stopped halfway, and what became of them."""
    rows = _graph(run).commit_log.recoveries()
    facts: dict[str, Any] = {
        "recoveries": [
            {
                "commit": it.graph_commit_id,
                "kind": it.recovery_kind,
                "writer": it.sidecar_writer_kind,
                "actor": it.recovery_for_actor,
                "operation": it.operation_id,
                "tables": list(it.per_table_outcomes),
                "created_at": it.created_at.replace(tzinfo=UTC).isoformat(timespec="seconds"),
            }
            for it in rows
        ]
    }

    def draw(face: Face) -> None:
        found = [
            [it["created_at"], it["kind"], it["writer"], it["actor"] or "", it["commit"]] for it in facts["recoveries"]
        ]
        face.table(["when", "what", "writer", "for", "commit"], found)

    run.output.show(facts, draw)
