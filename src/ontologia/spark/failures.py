"""Jobs that say what they do: to who watches them in Spark's UI, and when they fail, in one line of ours.

Ctrl-C cancels them first, and is raised when they have ended.
"""

from __future__ import annotations

import re
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ontologia.errors import OntologiaError, StorageBackendError, SumOverflowError
from ontologia.spark.sentences import put_sentences_first

_CAUSE = re.compile(r"^(?:Caused by: )?[\w.$]+(?:Exception|Error): (.+)$", re.MULTILINE)


DESCRIPTION = "spark.job.description"


@contextmanager
def explain_failures(operation: str) -> Iterator[None]:
    """Name the jobs of a block. One that fails becomes an error that says what failed and why, with Spark's own
    report as its cause.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    put_sentences_first()
    try:
        with describe_jobs(operation), stoppable():
            yield
    except OntologiaError:
        raise
    except (Py4JError, PySparkException) as problem:
        if str(overflow := SumOverflowError()) in str(problem):
            raise overflow from problem
        raise StorageBackendError(
            f"the Spark job failed while {operation}: {_root(str(problem)) or type(problem).__name__}",
            context={"operation": operation},
        ) from problem


@contextmanager
def describe_jobs(operation: str) -> Iterator[None]:
    """Give jobs a name that people understand, where the session can (a Connect session cannot)."""
    context = getattr(SparkSession.getActiveSession(), "_sc", None)
    if context is None:
        yield
        return
    before = context.getLocalProperty(DESCRIPTION)  # the caller's, for the jobs that come after
    context.setJobDescription(operation)
    try:
        yield
    finally:
        context.setJobDescription(before)


@contextmanager
def stoppable() -> Iterator[None]:
    """Let Ctrl-C cancel the jobs of a block, and raise it when they have ended; at a second one, at once.

    PySpark's own handler speaks to Spark in the middle of another call, which fails: the jobs go on, and the connection
    is broken. Here another thread cancels, over a connection of its own, and the call that waits for the jobs ends.
    """
    context: Any = getattr(SparkSession.getActiveSession(), "_sc", None)
    if context is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    tag, asked, ended = f"ontologia-{uuid.uuid4().hex}", threading.Event(), threading.Event()

    def cancel() -> None:
        while not ended.is_set():  # a block may go on to its next job
            with suppress(Exception):
                context.cancelJobsWithTag(tag)
            ended.wait(0.2)

    def interrupt(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        threading.Thread(target=cancel, name="spark-cancel", daemon=True).start()

    context.addJobTag(tag)
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception:
        if asked.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
        ended.set()
        context.removeJobTag(tag)
    if asked.is_set():
        raise KeyboardInterrupt


def _root(report: str) -> str:
    """The innermost cause in a stack trace, which is the last one named."""
    causes = [cause.strip() for cause in _CAUSE.findall(report)]
    return causes[-1] if causes else report.strip().partition("\n")[0]
