"""`onto events …`: the same facts as in Python, on every kind of storage; writes are previewed."""

import pytest

from ontologia import Event, Field, OntologiaConfig, Session, on_event


class StockLow(Event):
    sku: Field[str]


class Ordered(Event):
    sku: Field[str]


@on_event(StockLow)
def reorder(ctx):
    if ctx.event.sku == "bad":
        raise RuntimeError("no such article")
    ctx.emit(Ordered(sku=ctx.event.sku))


LOCAL = ["sqlite-v2", "s3-v2", pytest.param("server-v2", marks=pytest.mark.s3)]


@pytest.fixture(params=LOCAL)
def busy(request, initialized):
    """One event handled with what it emitted, one given up, in the namespace `shop`."""
    target = initialized(request.param)
    with Session(target.where, "shop", config=OntologiaConfig(event_max_attempts=1)) as session:
        target.good, target.bad = StockLow(sku="tea"), StockLow(sku="bad", priority=500)
        session.commit(event=[target.good, target.bad])
        session.run([reorder], max_iterations=1)
    target.flags = [*target.flags, "--namespace", "shop"]
    return target


def test_show_lists_events_with_their_handlers(onto, busy):
    facts = onto("events", "show", *busy.flags, "--json").valid("events-show")
    found = {(item["type"], item["status"], item["handler"]) for item in facts["events"]}
    handler = f"{__name__}.reorder"
    assert found == {
        ("stock.low", "acked", handler),
        ("stock.low", "dead_lettered", handler),
        ("ordered", "pending", None),
        ("event.dead_letter", "pending", None),
    }


@pytest.mark.parametrize(
    ("more", "count"), [(("--type", "ordered"), 1), (("--status", "dead_lettered"), 1), (("--limit", "2"), 2)]
)
def test_show_can_be_narrowed(onto, busy, more, count):
    assert len(onto("events", "show", *busy.flags, *more, "--json").json["events"]) == count


def test_inspect_tells_all_about_one_event(onto, busy):
    facts = onto("events", "inspect", busy.good.id, *busy.flags, "--json").valid("events-inspect")
    assert facts["event"]["payload"] == {"sku": "tea"}
    assert [claim["status"] for claim in facts["claims"]] == ["acked"]
    assert [item["type"] for item in facts["chain"]] == ["stock.low", "ordered"]
    assert "  ordered" in onto("events", "inspect", busy.good.id, *busy.flags).out


def test_a_dead_letter_is_listed_previewed_and_replayed(onto, busy):
    (letter,) = onto("events", "dead-letters", *busy.flags, "--json").valid("events-dead-letters")["dead_letters"]
    assert (letter["event_id"], letter["last_error"]) == (busy.bad.id, "no such article")
    replayed = [{"event_id": busy.bad.id, "handler_id": f"{__name__}.reorder"}]
    for more, applied in (((), False), (("--apply",), True)):
        answer = onto("events", "replay", "--dead-letters", *busy.flags, *more, "--json")
        assert answer.valid("events-replay") == {"applied": applied, "replayed": replayed}
    assert onto("events", "dead-letters", *busy.flags, "--json").json == {"dead_letters": []}
    states = onto("events", "show", *busy.flags, "--type", "stock.low", "--json").json["events"]
    assert {item["status"] for item in states} == {"acked", "pending"}


def test_cleanup_is_a_preview_until_it_is_applied(onto, busy):
    preview = onto("events", "cleanup", "--older-than", "0s", *busy.flags, "--json").valid("events-cleanup")
    assert (preview["applied"], len(preview["events"])) == (False, 4)
    answer = onto("events", "cleanup", "--older-than", "0s", "--apply", *busy.flags)
    assert answer.out.startswith("removed 4 events")
    assert onto("events", "show", *busy.flags, "--json").json == {"events": []}


def test_where_nothing_is_found_other_namespaces_are_named(onto, busy):
    for command in ("show", "dead-letters", "sessions"):
        said = onto("events", command, *busy.flags[:2], "--namespace", "shopp").err
        assert "this is namespace 'shopp'; --namespace names another: shop" in said
    assert f"replay EVENT_ID --namespace {busy.flags[-1]} --apply" in onto("events", "dead-letters", *busy.flags).err


def test_namespaces_and_sessions(onto, busy):
    flags = busy.flags[:2]
    assert onto("events", "list-namespaces", *flags, "--json").valid("events-list-namespaces") == {
        "namespaces": ["shop"]
    }
    with Session(busy.where, "shop", instance_metadata={"app": "till"}) as session:

        @on_event(Ordered)
        def look(ctx):
            ctx.session.facts = onto("events", "sessions", *busy.flags, "--json").valid("events-sessions")

        session.run([look], max_iterations=1)
        (found,) = session.facts["sessions"]
    assert (found["alive"], found["metadata"]["app"]) == (True, "till")
    assert onto("events", "sessions", *busy.flags, "--json").json == {"sessions": []}


def test_asking_a_store_without_events_changes_nothing(onto, initialized):
    for name in ("sqlite-v2", "s3-v2"):
        target = initialized(name, name)
        for what in ("show", "sessions", "dead-letters", "cleanup", "list-namespaces"):
            answer = onto("events", what, *target.flags, "--json")
            assert answer.code == 0, answer.err
            assert not any(value for value in answer.json.values())


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("inspect", "no-such-event"), 1, "no-such-event"),
        (("replay",), 2, "--dead-letters"),
        (("replay", "x", "--dead-letters"), 2, "--dead-letters"),
        (("show", "--status", "lost"), 2, "--status"),
        (("show", "--namespace", "a/b"), 1, "namespace"),
        (("cleanup", "--older-than", "soon"), 2, "--older-than"),
    ],
)
def test_a_mistake_is_one_line(onto, initialized, arguments, code, word):
    onto("events", *arguments, *initialized("sqlite-v2").flags).failed(code, word)
