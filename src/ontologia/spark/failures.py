"""Jobs that say what they do: to who watches them in Spark's UI, and when they fail, in one line of ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ontologia.errors import OntologiaError, StorageBackendError

_CAUSE = re.compile(r"^(?:Caused by: )?[\w.$]+(?:Exception|Error): (.+)$", re.MULTILINE)


@contextmanager
def explained(operation: str) -> Iterator[None]:
    """Name the jobs of a block. One that fails becomes an error that says what failed and why, with Spark's own
    report as its cause.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        with described(operation):
            yield
    except OntologiaError:
        raise
    except (Py4JError, PySparkException) as problem:
        raise StorageBackendError(
            f"the Spark job failed while {operation}: {_root(str(problem)) or type(problem).__name__}",
            context={"operation": operation},
        ) from problem


@contextmanager
def described(operation: str) -> Iterator[None]:
    """Give jobs a name that people understand, where the session can (a Connect session cannot)."""
    from pyspark.sql import SparkSession

    context = getattr(SparkSession.getActiveSession(), "_sc", None)
    if context is None:
        yield
        return
    context.setJobDescription(operation)
    try:
        yield
    finally:
        context.setJobDescription(None)


def _root(report: str) -> str:
    """The innermost cause in a stack trace, which is the last one named."""
    causes = [cause.strip() for cause in _CAUSE.findall(report)]
    return causes[-1] if causes else report.strip().partition("\n")[0]
