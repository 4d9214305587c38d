"""RFC 0004 §8's recipe and its "CLI examples", word for word, in a shell, with a real S3 server."""

import os
import shlex
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

RECIPE = """
# Export from SQLite
onto export --db onto.db --output data/

# Initialize S3 backend
onto init --storage-uri s3://my-bucket/onto-prod

# Import into S3
onto import --storage-uri s3://my-bucket/onto-prod --input data/ --models myapp.models --apply --on-conflict abort
"""

EXAMPLES = """
# Inspect
onto info --storage-uri s3://my-bucket/onto-prod

# Verify index health (non-zero exit if lag/missing coverage is detected)
onto index verify --storage-uri s3://my-bucket/onto-prod

# Repair stale indices
onto index repair --storage-uri s3://my-bucket/onto-prod --apply

# Query
onto query entities Customer --storage-uri s3://my-bucket/onto-prod --models myapp.models --filter '$.tier' eq '"Gold"'

# Migrate
onto migrate --storage-uri s3://my-bucket/onto-prod --models myapp.models --upgraders myapp.migrations
"""

BACK = """
onto export --storage-uri s3://my-bucket/onto-prod --output back/
onto import --db again.db --input back/ --models myapp.models --apply --on-conflict abort
onto export --db again.db --output again/
"""

pytestmark = pytest.mark.s3


@pytest.fixture
def shell(s3, tmp_path, monkeypatch):
    """A shell that knows `onto`, and a bucket of that name with nothing in it."""
    s3.create_bucket("my-bucket")
    prefix = f"onto-prod-{uuid.uuid4().hex}"
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    command = tmp_path / "bin" / "onto"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ontologia.cli "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")

    def run(script: str) -> str:
        # Tests share the bucket, so each has a prefix of its own; nothing else of the script is changed.
        script = script.replace("onto-prod", prefix)
        done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def records(folder: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in Path(folder).rglob("*.jsonl")}


@pytest.mark.parametrize("source", [pytest.param("sqlite-v1", marks=pytest.mark.slow), "sqlite-v2"])
def test_the_recipe_moves_data_to_s3_and_back_and_it_is_equal(shell, filled, source):
    filled(source, "onto")
    assert "imported in commit 1" in shell(RECIPE)
    shell(BACK)
    assert len(records("data")) == 3
    assert records("again") == records("back") == records("data")


def test_the_examples_run_as_they_are_written(shell, filled):
    filled("sqlite-v2", "onto")
    shell(RECIPE)
    said = shell(EXAMPLES)
    assert "indices: healthy" in said
    assert "healthy at commit 1" in said
    assert "every index is healthy" in said
    assert "2 rows" in said
    assert "nothing to migrate" in said
