"""The example with two workers does what it says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ontologia

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("where", ["file", "bucket"])
def test_every_product_that_runs_low_is_ordered_and_confirmed(where, tmp_path):
    arguments = [] if where == "file" else [(tmp_path / "shop").as_uri()]
    environment = {**os.environ, "PYTHONPATH": str(Path(ontologia.__file__).parents[1])}
    command = [sys.executable, str(ROOT / "examples" / "stock.py"), *arguments]
    told = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=250)
    assert (told.returncode, told.stderr) == (0, "")
    *confirmed, summary = told.stdout.splitlines()
    low = int(summary.split(" products")[0].split()[-1])
    assert low == len(confirmed) > 0
    assert summary.endswith(f"{low} orders placed and confirmed")
