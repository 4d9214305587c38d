"""`onto events …`: what waits, who works on it, what failed; and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ontologia.cli.maintenance import seconds
from ontologia.cli.options import Apply
from ontologia.cli.output import Face, count_noun
from ontologia.cli.run import Run, command, group
from ontologia.errors import ValidationError

if TYPE_CHECKING:
    from ontologia.runtime.events.records import Claim, StoredEvent
    from ontologia.runtime.events.store import EventStore

Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="The queue; by default the one in the config.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most N.")]
HandlerOption = Annotated[str | None, typer.Option("--handler", metavar="ID", help="Only this handler.")]
Status = Literal["pending", "claimed", "expired", "retrying", "acked", "dead_lettered"]


def register(app: typer.Typer) -> None:
    events = group(app, "events", help="The event bus: queues, handlers' claims, dead letters, sessions.")
    command(events, "list-namespaces", example="onto events list-namespaces")(list_namespaces)
    command(events, "sessions", example="onto events sessions --namespace shop")(sessions)
    command(events, "show", example="onto events show --type stock.low --status retrying")(show)
    command(events, "inspect", example="onto events inspect 8d171a57-9052-4e11-9443-c1453b9982cf")(inspect)
    command(events, "dead-letters", example="onto events dead-letters --namespace shop")(dead_letters)
    command(events, "replay", example="onto events replay --dead-letters --handler shop.remind --apply")(replay)
    command(events, "cleanup", example="onto events cleanup --older-than 7d --apply")(cleanup)


@contextmanager
def _events(run: Run, namespace: str | None, *, relayed: bool = False) -> Iterator[EventStore]:
    """The events of a namespace; `relayed` first brings what commits announced and their writers did not get to."""
    from ontologia.runtime.events import open_event_store

    with run.store() as store:
        events = open_event_store(store.engine, namespace)
        if relayed:
            events.relay(store.repository.get_head_commit_id, lambda since: store.engine.commits(since=since))
        yield events


def _name_others(run: Run, events: EventStore, found: Sequence[Any]) -> None:
    """Where nothing was found, it is perhaps in another namespace."""
    others = [] if found else [name for name in events.namespaces() if name != events.namespace]
    if others:
        run.output.say(f"this is namespace {events.namespace!r}; --namespace names another: {', '.join(others)}")


def list_namespaces(run: Run) -> None:
    """Namespaces that have events or sessions."""
    with _events(run, None) as events:
        names = events.namespaces()

    def draw(face: Face) -> None:
        for name in names:
            face.line(name)

    run.output.show({"namespaces": names}, draw)


def sessions(run: Run, namespace: Namespace = None) -> None:
    """Sessions that run handlers, and those that died unexpectedly."""
    with _events(run, namespace) as events:
        ttl_s = events.config.session_ttl_ms / 1000
        found = [
            {**record.body(), "alive": record.is_alive(events.clock.wall(), ttl_s)} for record in events.sessions()
        ]
        _name_others(run, events, found)

    def draw(face: Face) -> None:
        rows = [
            [
                item["session_id"],
                "alive" if item["alive"] else "gone",
                item["metadata"].get("hostname"),
                item["metadata"].get("pid"),
                item["started_at"],
                item["last_heartbeat"],
            ]
            for item in found
        ]
        face.table(["session", "state", "host", "pid", "started", "last heartbeat"], rows)

    run.output.show({"sessions": found}, draw)


def show(
    run: Run,
    namespace: Namespace = None,
    type: Annotated[str | None, typer.Option("--type", metavar="NAME", help="Only events of this type.")] = None,
    status: Annotated[Status | None, typer.Option("--status", help="Only events in this state.")] = None,
    limit: Limit = 20,
) -> None:
    """Events, newest first, and how each handler is doing with them."""
    with _events(run, namespace) as events:
        found = [
            {
                "id": item.event.id,
                "type": item.event.type,
                "created_at": item.event.created_at,
                "priority": item.event.priority,
                "status": item.status,
                "handler": item.claim.handler_id if item.claim else None,
                "attempts": item.claim.attempts if item.claim else 0,
                "last_error": item.claim.last_error if item.claim else None,
                "payload": item.event.payload,
            }
            for item in events.events(type=type, status=status, limit=limit)
        ]
        _name_others(run, events, found)

    def draw(face: Face) -> None:
        names = ("id", "type", "created_at", "priority", "status", "handler", "attempts", "payload")
        face.table(names, [[item[name] for name in names] for item in found])

    run.output.show({"events": found}, draw)


def inspect(
    run: Run, event_id: Annotated[str, typer.Argument(metavar="ID", help="The event.")], namespace: Namespace = None
) -> None:
    """One event: its payload, every handler's claim on it, and the chain it belongs to."""
    with _events(run, namespace) as events:
        event = _find_event(events, event_id)
        now = _now(events)
        facts: dict[str, Any] = {
            "event": event.body(),
            "claims": [{**_claim(claim), "status": claim.status(now)} for claim in events.claims(event_id)],
            "chain": [
                {"id": item.id, "type": item.type, "created_at": item.created_at, "chain_depth": item.chain_depth}
                for item in events.chain(event.root_event_id)
            ],
        }

    def draw(face: Face) -> None:
        face.line(f"{event.type} {event.id}", "strong")
        face.pairs({name: value for name, value in event.body().items() if name not in ("id", "type")})
        for claim in facts["claims"]:
            face.line()
            face.line(f"{claim['handler_id']}: {claim['status']}", "strong")
            face.pairs({name: claim[name] for name in ("session_id", "claimed_at", "lease_until", "attempts")})
            if claim["last_error"]:
                face.line(claim["last_error"], "bad")
        if len(facts["chain"]) > 1:
            face.line()
            face.line("chain", "strong")
        for item in facts["chain"] if len(facts["chain"]) > 1 else ():
            face.line(f"{'  ' * item['chain_depth']}{item['type']} {item['id']}")

    run.output.show(facts, draw)


def dead_letters(run: Run, namespace: Namespace = None, handler: HandlerOption = None, limit: Limit = 20) -> None:
    """Events that a handler gave up on, newest first."""
    with _events(run, namespace) as events:
        found = [letter.body() for letter in events.dead_letters(handler_id=handler, limit=limit)]
        _name_others(run, events, found)

    def draw(face: Face) -> None:
        names = ("event_id", "event_type", "handler_id", "attempts", "failed_at", "last_error")
        face.table(names, [[item[name] for name in names] for item in found])

    run.output.show({"dead_letters": found}, draw)
    if found:
        where = "" if namespace is None else f" --namespace {namespace}"
        run.output.say(f"to try one again: onto events replay EVENT_ID{where} --apply")


def replay(
    run: Run,
    event_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="The events.")] = None,
    namespace: Namespace = None,
    handler: HandlerOption = None,
    letters: Annotated[bool, typer.Option("--dead-letters", help="All dead letters.")] = False,
    apply: Apply = False,
) -> None:
    """Make finished events ready again, from the first attempt on, for the handlers that finished them."""
    from ontologia.cli.exits import UsageError

    if bool(event_ids) == letters:
        raise UsageError("replay: name events, or say --dead-letters for all of those")
    with _events(run, namespace) as events:
        if letters:
            wanted = [(item.event_id, item.handler_id) for item in events.dead_letters(handler_id=handler, limit=None)]
        else:
            wanted = [pair for event_id in event_ids or () for pair in _find_finished(events, event_id, handler)]
        if apply:
            run.echo_target()
            wanted = [
                (claim.event_id, claim.handler_id) for pair in dict.fromkeys(wanted) for claim in events.replay(*pair)
            ]
    facts = {
        "applied": apply,
        "replayed": [{"event_id": event_id, "handler_id": handler_id} for event_id, handler_id in wanted],
    }

    def draw(face: Face) -> None:
        for event_id, handler_id in wanted:
            face.change("~", f"{event_id}  {handler_id}")
        face.line(f"{'made' if apply else 'would make'} {count_noun(len(wanted), 'event')} ready again")

    run.output.show(facts, draw)
    if wanted and not apply:
        run.output.say("to do it: the same command with --apply")


def cleanup(
    run: Run,
    namespace: Namespace = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="As 12h, 7d or 2w; by default event_retention_ms.")
    ] = None,
    apply: Apply = False,
) -> None:
    """Remove events that were handled long ago, and sessions that are gone. Events that are still waiting stay."""
    age = None if older_than is None else seconds(older_than)
    removed: list[str] = []
    with _events(run, namespace, relayed=apply) as events:
        if apply:
            run.echo_target()
        with run.output.progress("cleaning up"):
            report = events.cleanup(age, apply=apply)
            removed += report.events
            while apply and report.events:
                report = events.cleanup(age, apply=True)
                removed += report.events
    facts = {"applied": apply, "events": removed, "sessions": report.sessions}

    def draw(face: Face) -> None:
        verb = "removed" if apply else "would remove"
        face.line(f"{verb} {count_noun(len(removed), 'event')} and {count_noun(len(report.sessions), 'session')}")

    run.output.show(facts, draw)
    if (removed or report.sessions) and not apply:
        run.output.say("to do it: the same command with --apply")


def _find_event(events: EventStore, event_id: str) -> StoredEvent:
    event = events.event(event_id)
    if event is None:
        raise ValidationError(
            f"there is no event {event_id} in namespace {events.namespace!r}; onto events show lists what there is"
        )
    return event


def _find_finished(events: EventStore, event_id: str, handler: str | None) -> list[tuple[str, str]]:
    _find_event(events, event_id)
    claims = [claim for claim in events.claims(event_id) if claim.finished and handler in (None, claim.handler_id)]
    return [(event_id, claim.handler_id) for claim in claims]


def _claim(claim: Claim) -> dict[str, Any]:
    ours = ("writer_id", "emitted")
    return {name: value for name, value in claim.body().items() if name not in ours}


def _now(events: EventStore) -> str:
    from ontologia.runtime.events.records import instant

    return instant(events.clock.wall())
