"""S3 in particular: races of processes, settings from the environment, and errors that help."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ontologia.errors import StorageBackendError
from ontologia.files.reading import s3_secret
from ontologia.objects import (
    Committed,
    ConditionFailed,
    Rejected,
    conditional_put,
    is_transient,
    open_objects,
    proof,
    prove_conditions,
)
from ontologia.omnigraph.datasets import storage_options
from ontologia.testing.crash import run_and_crash
from ontologia.testing.s3server import S3Server


def increment(uri: str, times: int) -> int:
    """Count up by settled compare-and-swap, with backoff."""
    objects = open_objects(uri)
    for _ in range(times):
        while True:
            blob = objects.get("counter.json")
            body = {"n": json.loads(blob.data)["n"] + 1}
            if isinstance(conditional_put(objects, "counter.json", body, etag=blob.etag), Committed):
                break
            time.sleep(random.uniform(0, 0.02))
    return times


@pytest.mark.s3
def test_no_increment_of_racing_processes_is_lost_on_s3(s3: S3Server) -> None:
    uri = s3.uri(f"objects-tests/{uuid.uuid4().hex}")
    objects = open_objects(uri)
    conditional_put(objects, "counter.json", {"n": 0}, etag=None)
    objects.map(lambda _: run_and_crash(increment, uri, 8), range(3))
    assert json.loads(objects.get("counter.json").data)["n"] == 24


@pytest.mark.s3
def test_of_racing_creators_on_s3_all_agree_on_the_winner(s3: S3Server) -> None:
    objects = open_objects(s3.uri(f"objects-tests/{uuid.uuid4().hex}"))
    outcomes = objects.map(lambda n: conditional_put(objects, "ledger/1", {"n": n}, etag=None), range(4))
    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, Committed)]
    losers = [outcome for outcome in outcomes if isinstance(outcome, Rejected)]
    assert [loser.winner for loser in losers] == [winner.body] * 3


@pytest.mark.s3
@pytest.mark.parametrize("operation", ["get", "list", "delete_many"])
def test_a_bucket_that_does_not_exist_is_not_a_missing_object(s3: S3Server, operation: str) -> None:
    objects = open_objects("s3://no-such-bucket/prefix")
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: objects.get("a"),
        "list": lambda: list(objects.list()),
        "delete_many": lambda: objects.delete_many(["a", "b"]),
    }
    with pytest.raises(StorageBackendError, match="the bucket does not exist") as failure:
        calls[operation]()
    assert f"{operation} s3://no-such-bucket/prefix" in str(failure.value)
    assert failure.value.context["bucket"] == "no-such-bucket"
    assert failure.value.context["prefix"] == "prefix"


@pytest.mark.s3
def test_wrong_credentials_are_said_to_be_refused(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = open_objects(s3.uri("objects-tests/x"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StorageBackendError, match="credentials were refused") as failure:
        objects.put_if_absent("a", b"1")
    assert failure.value.context["may_be_applied"] is False
    assert "wrong" not in str(failure.value)


@pytest.mark.s3
def test_static_keys_of_a_shared_profile_are_used(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    uri = s3.uri(f"objects-tests/{uuid.uuid4().hex}")
    file = tmp_path / "credentials"
    file.write_text("[other]\naws_access_key_id = test\naws_secret_access_key = testtest\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", "other")
    open_objects(uri).put("a", b"1")


def test_a_profile_that_needs_boto3_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("[profile sso]\nsso_session = x\nregion = eu-west-1\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_PROFILE", "sso")
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(StorageBackendError, match="pip install boto3"):
        open_objects("s3://bucket", endpoint_url="http://127.0.0.1:1").get("a")


# --- a server that answers what it is told ------------------------------------------------------------------


class Scripted(ThreadingHTTPServer):
    """Answers requests with the statuses in `script`, then with 200; notes what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.script: list[tuple[int, str]] = []
        self.asked: list[tuple[str, str, str | None, str | None]] = []
        self.signed: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answer(BaseHTTPRequestHandler):
    server: Scripted

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        conditions = self.headers.get("If-None-Match"), self.headers.get("If-Match")
        self.server.asked.append((self.command, self.path, *conditions))
        key = self.headers.get("Authorization", "").partition("Credential=")[2].partition("/")[0]
        self.server.signed.append((key, self.headers.get("X-Amz-Security-Token")))
        status, code = self.server.script.pop(0) if self.server.script else (200, "")
        body = f"<Error><Code>{code}</Code></Error>".encode() if code else b""
        self.send_response(status)
        self.send_header("ETag", '"scripted"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    server = Scripted()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_conditional_puts_are_sent_once_with_their_condition(scripted: Scripted) -> None:
    objects = open_objects("s3://bucket/prefix", endpoint_url=scripted.url)
    for _ in range(2):
        scripted.script = [(500, "InternalError")]
        with pytest.raises(StorageBackendError, match="the server failed") as failure:
            objects.put_if_absent("a", b"1")
        assert failure.value.context["may_be_applied"] is True
        assert is_transient(failure.value)
    objects.put_if_match("a", b"1", '"e"')
    assert scripted.asked == [
        ("PUT", "/bucket/prefix/a", "*", None),
        ("PUT", "/bucket/prefix/a", "*", None),
        ("PUT", "/bucket/prefix/a", None, '"e"'),
    ]


def test_reads_and_plain_puts_are_repeated_after_a_passing_failure(scripted: Scripted) -> None:
    objects = open_objects("s3://bucket/prefix", endpoint_url=scripted.url)
    scripted.script = [(503, "SlowDown"), (200, ""), (500, "InternalError"), (200, "")]
    objects.put("a", b"1")
    objects.get("a")
    assert [method for method, *_ in scripted.asked] == ["PUT", "PUT", "GET", "GET"]


def test_a_conflict_with_a_write_under_way_is_a_failed_condition(scripted: Scripted) -> None:
    objects = open_objects("s3://bucket", endpoint_url=scripted.url)
    scripted.script = [(409, "ConditionalRequestConflict"), (409, "ConditionalRequestConflict"), (412, "")]
    with pytest.raises(ConditionFailed):
        objects.put_if_absent("a", b"1")
    for _ in range(2):
        with pytest.raises(ConditionFailed):
            objects.put_if_match("a", b"1", '"e"')


@pytest.mark.parametrize(
    ("status", "code", "hint"),
    [
        (403, "AccessDenied", "credentials were refused"),
        (404, "NoSuchBucket", "the bucket does not exist"),
        (301, "PermanentRedirect", "another region"),
        (400, "AuthorizationHeaderMalformed", "another region"),
    ],
)
@pytest.mark.thorough
def test_errors_say_what_to_look_at(scripted: Scripted, status: int, code: str, hint: str) -> None:
    objects = open_objects("s3://bucket/prefix", endpoint_url=scripted.url)
    scripted.script = [(status, code)]
    with pytest.raises(StorageBackendError, match=hint) as failure:
        objects.put_if_absent("a", b"1")
    assert "put_if_absent s3://bucket/prefix/a" in str(failure.value)
    assert "Debug source" not in str(failure.value)
    assert failure.value.context["may_be_applied"] is False


def test_an_endpoint_where_nobody_answers_is_unreachable(scripted: Scripted) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        objects = open_objects("s3://bucket", endpoint_url=endpoint, request_timeout_s=0.3)
        with pytest.raises(StorageBackendError, match="nothing answers at this endpoint") as failure:
            objects.put_if_absent("a", b"1")
    assert failure.value.context["may_be_applied"] is False


@pytest.mark.parametrize("operation", ["get", "put_if_absent"])
def test_silence_is_a_timeout_and_leaves_a_put_in_doubt(scripted: Scripted, operation: str) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        objects = open_objects("s3://bucket", endpoint_url=endpoint, request_timeout_s=0.2)
        with pytest.raises(StorageBackendError, match="no answer in time") as failure:
            objects.get("a") if operation == "get" else objects.put_if_absent("a", b"1")
    assert failure.value.context["may_be_applied"] is (operation == "put_if_absent")


def test_plain_http_beyond_loopback_must_be_allowed(scripted: Scripted) -> None:
    with pytest.raises(StorageBackendError, match="AWS_ALLOW_HTTP"):
        open_objects("s3://bucket", endpoint_url="http://192.0.2.1").get("a")


def test_the_given_endpoint_wins_over_the_environment(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    open_objects("s3://bucket", endpoint_url=scripted.url).put("a", b"1")
    assert scripted.asked[0][1] == "/bucket/a"


def test_the_endpoint_for_s3_wins_over_the_general_one(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", scripted.url)
    open_objects("s3://bucket").put("a", b"1")
    assert len(scripted.asked) == 1


def test_an_endpoint_under_its_other_name_is_the_endpoint_for_every_library(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", scripted.url)
    objects = open_objects("s3://bucket")
    objects.put("a", b"1")
    assert scripted.asked[0][1] == "/bucket/a"
    assert (s3_secret(objects) or {})["ENDPOINT"] == scripted.url.removeprefix("http://")
    assert (storage_options(objects) or {})["aws_endpoint"] == scripted.url


@pytest.mark.parametrize("of_environment", [{"AWS_SESSION_TOKEN": "other"}, {"AWS_ACCESS_KEY_ID": "half"}])
def test_keys_of_a_profile_go_without_what_the_environment_has_of_others(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, of_environment: dict[str, str]
) -> None:
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = mine\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name, value in of_environment.items():
        monkeypatch.setenv(name, value)
    objects = open_objects("s3://bucket", endpoint_url=scripted.url)
    objects.put("a", b"1")
    assert scripted.signed == [("mine", None)]
    options = storage_options(objects) or {}
    assert (options["aws_access_key_id"], options.get("aws_session_token", "")) == ("mine", "")


def test_duckdb_is_not_sent_to_an_endpoint_that_has_lost_its_path(scripted: Scripted) -> None:
    objects = open_objects("s3://bucket", endpoint_url=f"{scripted.url}/storage/v1/s3")
    objects.put("a", b"1")
    assert scripted.asked[0][1] == "/storage/v1/s3/bucket/a"
    assert s3_secret(objects) is None


def test_importing_the_package_loads_no_client() -> None:
    import subprocess
    import sys

    script = (
        "import sys, ontologia.objects; print([m for m in sys.modules if m.split('.')[0] in ('obstore','pyarrow')])"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"


def test_a_bucket_that_was_proven_is_not_asked_again_for_a_day(
    s3_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = open_objects(s3_prefix)

    def requests() -> int:
        monkeypatch.setattr(proof, "_proven", set())  # as in another process
        with objects.counting() as count:
            prove_conditions(objects, tmp_path)
        return count.total

    first, second = requests(), requests()
    (note,) = (tmp_path / "proofs").iterdir()
    os.utime(note, (0, time.time() - 2 * proof.PROOF_HOLDS_S))

    assert (first, second, requests()) == (5, 0, 5)
