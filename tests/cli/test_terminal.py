"""What a person at a terminal sees: tables, colour, progress; and what stays off the data stream."""

import json
import os
import re
import sys

import pexpect
import pytest

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def terminal(monkeypatch):
    """The console in a terminal of its own. Gives what was written to it and the exit code."""

    def run(*arguments: str, columns: int = 160, **more: str) -> tuple[str, int]:
        environment = {**os.environ, "TERM": "xterm-256color", **more}
        for name in {"NO_COLOR", "COLUMNS", "LINES"} - set(more):
            environment.pop(name, None)
        child = pexpect.spawn(
            sys.executable,
            ["-m", "ontologia.cli", *arguments],
            env=environment,
            dimensions=(50, columns),
            timeout=120,
            encoding="utf-8",
        )
        child.expect(pexpect.EOF)
        child.close()
        return child.before, child.exitstatus

    return run


@pytest.mark.parametrize("name", ["sqlite-v2", "s3-v2"])
@pytest.mark.thorough
def test_info_is_a_dashboard_in_colour(terminal, filled, name):
    said, code = terminal("info", *filled(name).flags, "--stats")
    assert code == 0
    assert "\x1b[" in said
    plain = ESCAPE.sub("", said)
    for word in ("Customer", "Subscription", "head", "rows", "──"):
        assert word in plain


def test_a_query_is_a_table(terminal, filled):
    said, _ = terminal("query", "entities", "Product", *filled("sqlite-v2").flags)
    plain = ESCAPE.sub("", said)
    assert "──" in plain
    assert "3 rows" in plain


def test_a_schema_diff_is_green_and_red(terminal, filled):
    said, code = terminal("verify", *filled("sqlite-v2").flags, "--models", "myapp.next_models", "--diff")
    assert code == 3
    assert "\x1b[32m  + level: int" in said
    assert "\x1b[31m  - tier: str" in said


def test_a_commit_diff_is_green_and_red(terminal, filled):
    said, _ = terminal("commits", "examine", "--id", "2", *filled("sqlite-v2").flags)
    assert "\x1b[31m  - age: 21" in said
    assert "\x1b[32m  + age: 77" in said


def test_no_colour_when_the_user_wants_none(terminal, filled):
    said, _ = terminal("commits", "examine", "--id", "2", *filled("sqlite-v2").flags, NO_COLOR="1")
    assert "\x1b[3" not in said


def test_json_has_no_colour_in_a_terminal_either(terminal, filled):
    said, _ = terminal("query", "entities", "Product", *filled("sqlite-v2").flags, "--json")
    assert json.loads(said)["count"] == 3


def test_data_cannot_move_the_cursor(terminal, initialized, models):
    target = initialized("sqlite-v2")
    with target.ontology(models) as ontology, ontology.session() as session:
        session.ensure(models.Customer(id="c1", name="\x1b[2Jgone [red]x[/red]"))
    said, _ = terminal("query", "entities", "Customer", *target.flags)
    assert "\x1b[2J" not in said
    assert "[red]x[/red]" in said


def test_help_is_drawn_in_panels(terminal):
    said, code = terminal("import", "--help")
    assert code == 0
    assert "Global options" in ESCAPE.sub("", said)


def test_a_failure_is_one_line_in_a_terminal_too(terminal):
    said, code = terminal("info", "--db", "missing.db")
    assert code == 5
    assert len(said.strip().splitlines()) == 1


@pytest.mark.thorough
def test_work_that_takes_its_time_shows_a_bar(terminal, initialized, tmp_path):
    fields = '{"sku": %d, "price": 1.5, "since": null}'
    with (tmp_path / "rows.jsonl").open("w") as file:
        for number in range(150_000):
            file.write(f'{{"kind":"entity","type":"Product","key":"{number}","fields":{fields % number}}}\n')
    target = initialized("sqlite-v2")
    arguments = ("import", *target.flags, "--input", "rows.jsonl", "--models", "myapp.models", "--apply")
    said, code = terminal(*arguments)
    assert code == 0
    assert "importing" in ESCAPE.sub("", said)
    assert "150000" in ESCAPE.sub("", said)


def test_quiet_work_shows_none(terminal, filled):
    said, _ = terminal("export", *filled("sqlite-v2").flags, "--output", "data", "--quiet", "--json")
    assert json.loads(said)["rows"] == 11


@pytest.mark.thorough
@pytest.mark.thorough
def test_a_query_shows_a_hundred_rows_and_says_so_unless_more_are_asked_for(terminal, initialized, models):
    target = initialized("sqlite-v2")
    with target.ontology(models) as ontology, ontology.session() as session:
        session.ensure(models.Product(sku=sku, price=1.0) for sku in range(101))
        session.ensure(models.Customer(id="c1", name="Ann"))
        session.ensure(models.Subscription(left_key="c1", right_key=str(sku), seat="a", seats=1) for sku in range(101))
    for asked in (
        ("entities", "Product"),
        ("relations", "Subscription"),
        ("traverse", "Customer", "--via", "Subscription"),
    ):
        said, code = terminal("query", *asked, *target.flags)
        plain = ESCAPE.sub("", said)
        assert (code, "only the first 100 are shown" in plain) == (0, True)
        assert re.search(r"\b100 (rows|paths)", plain)
    said, _ = terminal("query", *asked, *target.flags, "--limit", "200")
    assert re.search(r"\b101 (rows|paths)", ESCAPE.sub("", said))
    assert "only the first" not in said


def test_in_a_pipe_and_as_json_a_query_has_all_rows(terminal, onto, initialized, models):
    target = initialized("sqlite-v2")
    with target.ontology(models) as ontology, ontology.session() as session:
        session.ensure(models.Product(sku=sku, price=1.0) for sku in range(101))
    assert onto("query", "entities", "Product", *target.flags).out.endswith("101 rows\n")
    said, _ = terminal("query", "entities", "Product", *target.flags, "--json")
    assert json.loads(said)["count"] == 101
