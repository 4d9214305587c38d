"""How far a job is, for whoever waits for it: its stage, its tasks and the rows they have taken in so far."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_S = 0.3


@dataclass(frozen=True, slots=True)
class StageProgress:
    """The newest stage that runs."""

    stage: int
    description: str
    tasks_done: int
    tasks: int
    rows: int


@contextmanager
def watch_stages(
    spark: SparkSession, report: Callable[[StageProgress], None], every_s: float = EVERY_S
) -> Iterator[None]:
    """Report the running stage from time to time while the block runs. A Connect session has nothing to ask."""
    context = getattr(spark, "_jsc", None)
    if context is None:
        yield
        return
    done = threading.Event()

    def watch() -> None:
        while not done.wait(every_s):
            with suppress(Exception):  # a session that stops meanwhile is no reason to fail
                found = running_stage(context)
                if found is not None:
                    report(found)

    watcher = threading.Thread(target=watch, name="spark-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def running_stage(context: Any) -> StageProgress | None:
    """What Spark's own status store says, which is there with and without its UI."""
    stages = context.sc().statusStore().activeStages()
    if not stages.size():
        return None
    newest = max((stages.apply(number) for number in range(stages.size())), key=lambda stage: stage.stageId())
    described = newest.description()
    return StageProgress(
        newest.stageId(),
        described.get() if described.isDefined() else newest.name(),
        newest.numCompleteTasks(),
        newest.numTasks(),
        newest.inputRecords() + newest.shuffleReadRecords(),
    )
