"""What nobody means to type: numbers beyond all bounds, empty texts, files that are something else, secrets in addresses.

Each is an answer or one line that says what to do, the same on every engine, and never the name of a Python error.
"""

import json
import re
import signal
import subprocess
import sys
import traceback

import pytest

from ontologia import OntologiaConfig, Ontology
from ontologia.errors import OntologiaError, without_passwords

ENGINES = ["sqlite-v2", "s3-v2"]
HUGE = [str(2**63 - 1), str(2**63), str(10**30)]
PYTHON_ERROR = re.compile(r"\b[A-Z]\w*(Error|Exception)\b")


# --- numbers ---


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.thorough
def test_a_number_too_large_for_an_engine_means_the_largest(onto, filled, name, tmp_path):
    flags = [*filled(name).flags, "--json"]
    for number in HUGE:
        customers = ("query", "entities", "Customer", *flags)
        assert onto(*customers, "--limit", number).json["count"] == 5
        assert onto(*customers, "--offset", number).json["count"] == 0
        assert onto(*customers, "--as-of", number).json["count"] == 5
        assert onto(*customers, "--history-since", number).json["count"] == 0
        assert len(onto("commits", *flags, "--last", number).json["commits"]) == 2
        assert onto("commits", *flags, "--since", number).json["commits"] == []
        onto("commits", "examine", *flags, "--id", number).failed(1, "there is no commit")
        onto("schema", "history", *flags, "--kind", "entity", "--type", "Customer", "--version", number).failed(
            1, "no schema version"
        )
        for option in ("--as-of", "--history-since"):
            folder = tmp_path / f"out{option}{number}"
            assert onto("export", *flags, "--output", folder, option, number).code == 0


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30, 1e300, float("inf")])
@pytest.mark.thorough
def test_a_filter_may_have_any_number(onto, filled, name, value):
    flags = (*filled(name).flags, "--json")
    found = [
        onto("query", "entities", "Customer", "--filter", "$.age", op, json.dumps(value), *flags) for op in ("lt", "gt")
    ]
    assert sorted(answer.json["count"] for answer in found) == [0, 4]


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00+14:00", "2026-13-01", "²"])
def test_a_time_that_is_no_instant_is_a_usage_error(onto, filled, time):
    onto("query", "entities", "Customer", "--as-of", time, *filled("sqlite-v2").flags).failed(2, "--as-of")


def test_an_age_that_nothing_can_have_is_a_usage_error(onto, filled):
    onto("vacuum", "--older-than", "9" * 20 + "d", *filled("s3-v2").flags).failed(2, "--older-than")


# --- empty texts ---

EMPTY = [
    ("query", "entities", ""),
    ("query", "traverse", "Customer", "--via", ""),
    ("query", "entities", "Customer", "--order-by", ""),
    ("query", "entities", "Customer", "--models", ""),
    ("schema", "drop", ""),
    ("schema", "export", "--type", ""),
    ("export", "--output", ""),
    ("export", "--output", "x", "--type", ""),
    ("import", "--input", ""),
    ("compact", "--type", ""),
    ("vacuum", "--older-than", ""),
    ("pipeline", "run", ""),
    ("ingest", "", "--into", "Customer"),
    ("migrate", "--models", "myapp.models", "--token", ""),
]


@pytest.mark.parametrize("arguments", EMPTY, ids=" ".join)
def test_an_empty_text_is_a_usage_error_and_names_no_folder(onto, filled, arguments):
    onto(*arguments, *filled("sqlite-v2").flags).failed(2, "is empty")


# --- files ---


def test_files_that_cannot_be_read_are_usage_errors(onto, filled, tmp_path):
    flags = filled("sqlite-v2").flags
    (tmp_path / "text.parquet").write_text("text")
    (tmp_path / "notes.txt").write_text("text")
    (tmp_path / "nothing").mkdir()
    for name in ("text.parquet", "notes.txt", "nothing", "missing.jsonl"):
        onto("import", "--input", tmp_path / name, *flags).failed(2, name)
    onto("pipeline", "run", "missing.toml", *flags).failed(2, "missing.toml")
    onto("--config", tmp_path, "info", *flags).failed(2, "--config")
    onto("ingest", "missing.csv", "--into", "Customer", "--models", "myapp.models", *flags).failed(2, "missing.csv")


def test_a_file_that_may_not_be_opened_is_a_usage_error(onto, filled, tmp_path, monkeypatch):
    from pathlib import Path

    flags = filled("sqlite-v2").flags
    file = tmp_path / "secret.jsonl"
    file.write_text("{}")
    plain = Path.open

    def denied(path, *arguments, **options):
        if path == file:
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", denied)
    onto("import", "--input", file, *flags).failed(2, "secret.jsonl cannot be read: Permission denied")


def test_a_bad_record_is_an_error_and_not_a_usage_error(onto, filled, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"kind": "entity", "type": "Product", "key": "1", "fields": {"sku": "x"}}\n')
    onto("import", "--input", tmp_path / "bad.jsonl", *filled("sqlite-v2").flags).failed(1, "bad.jsonl:1", "sku")


def test_what_the_system_says_of_a_file_is_said_without_its_error_number(onto):
    line = onto("info", "--db", "x" * 5000).failed(5, "File name too long")
    assert not PYTHON_ERROR.search(line)
    assert "Errno" not in line


# --- targets ---

BAD_TARGETS = [
    ("--db", "a\0b"),
    ("--storage-uri", "file:///tmp/a\0b"),
    ("--storage-uri", "sqlite:///a%00b"),
    ("--storage-uri", "file:///tmp/%00"),
    ("--storage-uri", "file:///"),
    ("--storage-uri", "file://"),
    ("--storage-uri", "file://host/folder"),
    ("--storage-uri", "s3://"),
    ("--storage-uri", "s3://bucket/../other"),
    ("--storage-uri", "s3://bucket/a//b"),
    ("--storage-uri", "gs://user:pw@bucket/x"),
    ("--storage-uri", "s3://[bucket/x"),
    ("--storage-uri", "memory://"),
    ("--storage-uri", "file:///tmp/x?y"),
    ("--db", "s3://"),
]


@pytest.mark.parametrize("flags", BAD_TARGETS, ids=lambda flags: repr(" ".join(flags)))
@pytest.mark.thorough
def test_a_target_that_cannot_be_one_is_a_usage_error(onto, flags):
    for command in (("info",), ("init", "--dry-run")):
        line = onto(*command, *flags).failed(2, flags[0])
        assert not PYTHON_ERROR.search(line)


# --- passwords ---

SECRETS = [
    "s3://user:HUNTER2@bucket/x",
    "jdbc:postgresql://user:HUNTER2@host/db",
    "jdbc:postgresql://host/db?user=u&password=HUNTER2",
    "jdbc:sqlserver://host;user=u;password=HUNTER2;encrypt=true",
    "jdbc:oracle:thin:scott/HUNTER2@host:1521/db",
]


@pytest.mark.parametrize("address", SECRETS)
@pytest.mark.thorough
def test_a_password_in_an_address_is_never_said(onto, address, capfd):
    commands = [
        ("info", "--storage-uri", address),
        ("info", "--db", address),
        ("info", "--db", "a.db", "--storage-uri", address),
        ("info", "--storage-uri", address, "--debug"),
        ("ingest", address, "--into", "Customer", "--models", "myapp.models"),
        ("import", "--input", address),
    ]
    for command in commands:
        answer = onto(*command)
        assert answer.code != 0
        assert "HUNTER2" not in answer.out + answer.err


@pytest.mark.parametrize("address", SECRETS)
def test_no_error_of_ours_has_a_password_whoever_raises_it(address):
    assert "HUNTER2" not in str(OntologiaError(f"cannot open {address!r}"))


@pytest.mark.parametrize(
    "text",
    ["s3://bucket/a:b@c", "12:30 user@host", "a password is needed", "email=a@b.c", "--token abc", "http://host:80/x"],
)
def test_what_is_no_password_stays_readable(text):
    assert without_passwords(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "https://bucket.s3.amazonaws.com/key?X-Amz-Credential=HUNTER2&X-Amz-Signature=HUNTER2",
        "https://host/key?X-Amz-Security-Token=HUNTER2",
        "aws_secret_access_key=HUNTER2",
        "spark.hadoop.fs.s3a.secret.key=HUNTER2",
        "aws_session_token = HUNTER2",
    ],
)
def test_a_secret_in_an_option_or_a_signed_address_is_made_unreadable(text):
    assert "HUNTER2" not in without_passwords(text)


def test_a_password_of_an_endpoint_is_in_no_traceback_and_no_repr(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    config = OntologiaConfig(s3_endpoint_url="http://user:HUNTER2@127.0.0.1:9", s3_request_timeout_s=1)
    with pytest.raises(OntologiaError) as raised:
        Ontology(storage_uri="s3://bucket/onto", config=config)
    shown = "".join(traceback.format_exception(raised.value)) + repr(config) + repr(raised.value.__context__)
    assert "HUNTER2" not in shown


# --- escape sequences in what is read ---

ESCAPES = "\x1b]0;title\x07\x1b[31m"


@pytest.mark.parametrize(
    ("name", "content", "command"),
    [
        ("a.csv", f"id,age\na,no{ESCAPES}\n", ("ingest", "a.csv", "--into", "Customer")),
        (
            "field.jsonl",
            json.dumps(
                {"kind": "entity", "type": "Customer", "key": "a", "fields": {"z" + ESCAPES: 1}}, ensure_ascii=False
            ),
            ("import", "--input", "field.jsonl", "--apply"),
        ),
        (
            "type.jsonl",
            json.dumps(
                {"kind": "entity", "type": "A" + ESCAPES, "key": "a", "fields": {"id": "a"}}, ensure_ascii=False
            ),
            ("import", "--input", "type.jsonl", "--apply"),
        ),
        ("p.toml", '"\\u001b[31m" = 1\n', ("pipeline", "run", "p.toml")),
    ],
)
@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_no_error_moves_the_cursor_of_a_terminal(onto, filled, tmp_path, monkeypatch, name, content, command, debug):
    flags = filled("sqlite-v2").flags
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(content)
    answer = onto(*command, *flags, *debug)
    assert answer.code != 0
    assert "\x1b" not in answer.out + answer.err


# --- being stopped ---


@pytest.mark.thorough
def test_an_interrupt_is_one_line(tmp_path, filled):
    target = filled("sqlite-v2")
    lines = tmp_path / "many.jsonl"
    with lines.open("w") as file:
        for number in range(1_000, 301_000):  # none that is there
            file.write(
                f'{{"kind":"entity","type":"Product","key":"{number}","fields":{{"sku":{number},"price":1.0}}}}\n'
            )
    command = [sys.executable, "-m", "ontologia.cli", "import", "--input", str(lines), "--apply", *target.flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        first = running.stderr.readline()  # it says the target when it is about to begin
        running.send_signal(signal.SIGINT)
        rest = running.stderr.read()
    assert first.startswith("target: ")
    assert (rest, running.returncode) == ("onto: interrupted\n", 130)


def test_an_interrupt_anywhere_is_one_line(onto, filled, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("ontologia.cli.dashboard.facts", interrupted)
    onto("info", *filled("sqlite-v2").flags).failed(130, "interrupted")
    monkeypatch.setattr("ontologia.cli.app.build", interrupted)
    onto("info").failed(130, "interrupted")


def test_a_reader_that_has_enough_is_no_failure(filled):
    target = filled("sqlite-v2")
    command = (
        f"{sys.executable} -m ontologia.cli query entities Customer --with-history {' '.join(target.flags)} | head -1"
    )
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)
