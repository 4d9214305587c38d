"""Random loads with odd values and bad rows leave what plain Python says, in process and on Spark."""

from __future__ import annotations

import pytest

from ontologia.testing.differential.loads import check_loads


@pytest.mark.parametrize("seed", [1, 2])
def test_random_loads_leave_what_they_should_in_process_and_on_spark(spark, seed):
    assert check_loads(seed, {"in process": None, "on Spark": spark}) > 0
