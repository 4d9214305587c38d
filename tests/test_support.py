"""What the tests share works as `support` says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.shared_server import shared_s3_server


@pytest.mark.xdist_group("kept together")
def test_groups_of_tests_are_kept_together(request):
    """pytest-xdist knows a group by the end of a test's name, and passes over it without a word where pytest is too new."""
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("not run with --dist loadgroup")
    assert request.node.nodeid.endswith("@kept together")


GUEST = """
import sys
from pathlib import Path
from support.shared_server import shared_s3_server
with shared_s3_server(Path(sys.argv[1])) as server:
    print(server.endpoint_url, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.s3
def test_a_server_is_shared_by_processes_and_ends_after_the_last_of_them(tmp_path):
    with shared_s3_server(tmp_path) as server:
        environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": ""}
        guest = subprocess.Popen(
            [sys.executable, "-c", GUEST, str(tmp_path)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert guest.stdout.readline().strip() == server.endpoint_url
        guest.communicate("\n", timeout=60)
        assert server.uri("still/here") == "s3://still/here"
    assert not list(tmp_path.glob("s3.json"))
