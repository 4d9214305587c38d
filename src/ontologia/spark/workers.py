"""What a worker's process keeps from task to task."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Set what is loaded apart, once per process.

    Spark's worker collects garbage after every task. With the modules of an engine that takes a tenth of a second,
    as long as thousands of rows.
    """
    gc.freeze()
