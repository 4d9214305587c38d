"""The real command: help, version, completion, exit codes, streams."""

import subprocess
import sys

import pytest

COMMANDS = [
    ("init",),
    ("info",),
    ("verify",),
    ("schema", "export"),
    ("schema", "history"),
    ("schema", "drop"),
    ("migrate",),
    ("query", "entities"),
    ("query", "relations"),
    ("query", "traverse"),
    ("commits",),
    ("commits", "examine"),
    ("export",),
    ("import",),
    ("compact",),
    ("index", "verify"),
    ("index", "repair"),
    ("vacuum",),
    ("check",),
    ("recover",),
]
HEAVY = ("pyspark", "duckdb", "polars", "pandas", "pyarrow", "sqlglot", "obstore", "pydantic", "yaml")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(onto, command):
    answer = onto(*command, "--help")
    assert answer.code == 0
    assert answer.err == ""
    assert f"Example:  onto {' '.join(command)}" in " ".join(answer.out.split("\n")).replace("   ", "  ")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_takes_the_global_options(onto, command):
    help = onto(*command, "--help").out
    for option in ("--db", "--storage-uri", "--config", "--json", "--quiet", "--debug"):
        assert option in help


def test_the_command_prints_help_in_a_pipe_without_colour(onto_command):
    answer = onto_command("--help")
    assert answer.code == 0
    assert "\x1b" not in answer.out
    assert "Exit codes" in answer.out
    for name, *_ in COMMANDS:
        assert f"  {name} " in answer.out


def test_the_command_prints_its_version(onto_command):
    import ontologia

    answer = onto_command("--version")
    assert (answer.code, answer.out) == (0, f"onto {ontologia.__version__}\n")


def test_a_failure_of_the_command_is_one_line_on_stderr(onto_command):
    onto_command("info", "--db", "missing.db").failed(5, "missing.db", "onto init")


def test_debug_shows_the_traceback(onto):
    answer = onto("info", "--db", "missing.db", "--debug")
    assert answer.code == 5
    assert "Traceback" in answer.err
    assert answer.err.splitlines()[-1].startswith("onto: ")


@pytest.mark.parametrize("arguments", [("--nonsense",), ("nonsense",), ("info", "--nonsense"), ("info", "extra")])
def test_a_word_the_console_does_not_know_is_a_usage_error(onto, arguments):
    onto(*arguments).failed(2, arguments[-1], "--help")


def test_no_command_at_all_is_a_usage_error_that_shows_help(onto):
    answer = onto()
    assert answer.code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_offered_for_the_shells(onto_command, shell, monkeypatch):
    answer = onto_command(env={"_ONTO_COMPLETE": f"source_{shell}", "PATH": "", **_environment()})
    assert answer.code == 0
    assert "onto" in answer.out


def test_completion_knows_commands(onto_command):
    asked = {"_ONTO_COMPLETE": "complete_bash", "COMP_WORDS": "onto in", "COMP_CWORD": "1"}
    answer = onto_command(env={**_environment(), **asked})
    assert {"init", "info", "index"} <= set(answer.out.split())


def test_completion_knows_choices(onto_command):
    asked = {"_ONTO_COMPLETE": "complete_bash", "COMP_WORDS": "onto import --on-conflict ", "COMP_CWORD": "3"}
    answer = onto_command(env={**_environment(), **asked})
    assert answer.out.split() == ["abort", "skip", "upsert"]


def _environment():
    import os

    return {"PYTHONPATH": os.environ["PYTHONPATH"]}


def test_help_loads_no_heavy_library():
    program = (
        "import sys\nfrom ontologia.cli import main\nmain(['--help'])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_a_reader_that_goes_away_is_no_error_message(filled):
    target = filled("sqlite-v2")
    command = f"{sys.executable} -m ontologia.cli query entities Customer --json --db {target.where} | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stderr == ""


def test_data_goes_to_stdout_and_talk_to_stderr(onto_command, filled):
    target = filled("sqlite-v2")
    answer = onto_command("export", *target.flags, "--output", "data", "--json")
    assert answer.json["rows"] == 11
    preview = onto_command("import", "--db", "other.db", "--input", "data")
    assert "--apply" in preview.err
    assert "--apply" not in preview.out


def test_quiet_silences_the_talk(onto, filled):
    onto("export", *filled("sqlite-v2").flags, "--output", "data")
    answer = onto("import", "--db", "other.db", "--input", "data", "--apply", "--quiet")
    assert answer.code == 0
    assert answer.err == ""
