"""Care of object storage: `onto compact`, `onto index verify`, `onto index repair`, `onto vacuum`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontologia.cli import exits
from ontologia.cli.exits import UsageError
from ontologia.cli.options import Apply, OneType, WorkEngine
from ontologia.cli.output import Face, Progress, count_noun, size
from ontologia.cli.run import Run, command, group
from ontologia.errors import ValidationError
from ontologia.files.ages import parse_age

if TYPE_CHECKING:
    from ontologia.engines.care import CompactionReport, IndexReport
    from ontologia.runtime.store import Store


def register(app: typer.Typer) -> None:
    command(app, "compact", example="onto compact --type Customer --apply")(compact)
    index = group(app, "index", "The health of the indices of an object store.")
    command(index, "verify", example="onto index verify --storage-uri s3://my-bucket/onto-prod")(index_verify)
    command(index, "repair", example="onto index repair --storage-uri s3://my-bucket/onto-prod --apply")(index_repair)
    command(app, "vacuum", example="onto vacuum --older-than 7d --apply")(vacuum)


def compact(run: Run, type_name: OneType = None, apply: Apply = False, engine: WorkEngine = "auto") -> None:
    """Merge the files of each type into one snapshot. Answers stay the same; reading gets faster."""
    with run.store() as store:
        report = store.repository.compact(type_name)
        if apply:
            run.echo_target()
            with run.output.progress("compacting") as bar:
                on_spark = run.on_spark(engine, sum(item.rows for item in report.types))
                report = _compact(run, store, type_name, bar if on_spark else None)
    facts = {
        "applied": report.applied,
        "types": [
            {
                "kind": item.ref.kind,
                "name": item.ref.name,
                "files": item.files,
                "rows": item.rows,
                "min_commit_id": item.min_commit_id,
                "max_commit_id": item.max_commit_id,
                "path": item.path,
            }
            for item in report.types
        ],
    }

    def draw(face: Face) -> None:
        if not report.types:
            face.line("nothing to compact: no type has more than one file", "good")
            return
        rows = [
            [item.ref.name, item.files, item.rows, f"{item.min_commit_id}–{item.max_commit_id}", item.path]
            for item in report.types
        ]
        face.table(["type", "files", "rows", "commits", "snapshot"], rows)
        face.line("compacted" if report.applied else "would compact", "good" if report.applied else "plain")

    run.output.show(facts, draw)
    if report.types and not apply:
        run.output.say("to do it: the same command with --apply")


def _compact(run: Run, store: Store, type_name: str | None, on_spark: Progress | None) -> CompactionReport:
    if on_spark is None:
        return store.repository.compact(type_name, apply=True)  # type: ignore[no-any-return]
    session = run.spark()
    from ontologia.spark import compact

    with run.following(session, on_spark):
        return compact(session, store, type_name, apply=True)


def index_facts(report: IndexReport) -> dict[str, Any]:
    """An index report as data."""
    return {
        "healthy": report.healthy,
        "head": report.head,
        "types": [
            {
                "kind": item.ref.kind,
                "name": item.ref.name,
                "healthy": item.healthy,
                "max_indexed_commit": item.max_indexed_commit,
                "lagging": item.lagging,
                "missing_latest": item.missing_latest,
                "problem": item.problem,
            }
            for item in report.types
        ],
    }


def index_verify(run: Run) -> None:
    """Compare every index with the head. Exits with 3 when one lags or misses the newest commit."""
    with run.store() as store, run.output.progress("verifying"):
        facts = index_facts(store.repository.index_verify())

    def draw(face: Face) -> None:
        rows = [[item["name"], item["kind"], item["max_indexed_commit"], _state(item)] for item in facts["types"]]
        if rows:
            face.table(["type", "kind", "indexed", "state"], rows)
        if facts["healthy"]:
            face.line(f"healthy at commit {facts['head']}", "good")
        else:
            face.line(f"unhealthy at commit {facts['head']}: run onto index repair --apply", "bad")

    run.output.show(facts, draw)
    if not facts["healthy"]:
        run.output.warn("indices lag behind the head; reads stay correct but slow")
        raise typer.Exit(exits.MISMATCH)


def _state(item: dict[str, Any]) -> str:
    if item["problem"]:
        return str(item["problem"])
    marks = [text for key, text in (("lagging", "lags"), ("missing_latest", "misses the head")) if item[key]]
    return ", ".join(marks) or "healthy"


def index_repair(run: Run, apply: Apply = False) -> None:
    """Rebuild indices that lag, from the commits themselves. Makes no commit; running it again changes nothing."""
    with run.store() as store:
        if apply:
            run.echo_target()
        with run.output.progress("repairing"):
            report = store.repository.index_repair(apply=apply)
    facts = {
        "applied": report.applied,
        "head": report.head,
        "repaired": [{"kind": ref.kind, "name": ref.name} for ref in report.repaired],
    }

    def draw(face: Face) -> None:
        if not report.repaired:
            face.line(f"every index is healthy at commit {report.head}", "good")
            return
        for ref in report.repaired:
            face.change("~", str(ref))
        face.line(f"{'repaired' if report.applied else 'would repair'} {len(report.repaired)} at commit {report.head}")

    run.output.show(facts, draw)
    if report.repaired and not apply:
        run.output.say("to do it: the same command with --apply")


def vacuum(
    run: Run,
    older_than: Annotated[str, typer.Option("--older-than", metavar="AGE", help="As 12h, 7d or 2w.")] = "7d",
    compacted: Annotated[
        bool, typer.Option("--compacted", help="Also files of commits whose rows a verified snapshot has.")
    ] = False,
    apply: Apply = False,
) -> None:
    """Delete what no reader can reach: attempts that were never committed, and replaced snapshots."""
    age = seconds(older_than)
    with run.store() as store:
        if apply:
            run.echo_target()
        with run.output.progress("vacuuming"):
            report = store.repository.vacuum(age, apply=apply, compacted=compacted)
    total = sum(item.size for item in report.objects)
    facts = {
        "applied": report.applied,
        "older_than_s": age,
        "bytes": total,
        "objects": [{"key": item.key, "size": item.size, "reason": item.reason} for item in report.objects],
    }

    def draw(face: Face) -> None:
        if not report.objects:
            face.line(f"nothing older than {older_than} to delete", "good")
            return
        for item in report.objects:
            face.change("-", f"{item.key}  {size(item.size)}  {item.reason}")
        verb = "deleted" if report.applied else "would delete"
        face.line(f"{verb} {count_noun(len(report.objects), 'object')}, {size(total)}")

    run.output.show(facts, draw)
    if report.objects and not apply:
        run.output.say("to do it: the same command with --apply")


def seconds(text: str) -> float:
    """What `--older-than` says."""
    try:
        return parse_age(text)
    except ValidationError as problem:
        raise UsageError(f"--older-than {problem}") from None
