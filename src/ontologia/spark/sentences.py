"""Errors of the data source that begin with our sentence.

Spark asks a Python source in a process of its own, and wraps what that raises into a text that begins with an error
class of Spark. PySpark recovers the Python error from such a text in one place, for both kinds of sessions. Here that
place is told to put the sentence first; the exception stays what it is, with its condition and its SQL state.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

_SAID = re.compile(r"\bontologia(?:\.\w+)+: (?P<sentence>.+?)\s*(?:SQLSTATE: \w{5}.*)?\Z", re.DOTALL)
_CONDITION = re.compile(r"\s*\[([A-Z][\w.]+)\]")


def put_sentences_first() -> None:
    """From now on, in this process, for the kinds of sessions that it has."""
    for home in ("pyspark.errors.exceptions.captured", "pyspark.errors.exceptions.connect"):
        exceptions: Any = sys.modules.get(home)
        recover = getattr(exceptions, "recover_python_exception", None)
        if recover is not None and not isinstance(recover, _Recovery):
            exceptions.recover_python_exception = _Recovery(recover)


class _Recovery:
    """PySpark's way to recover an error of Python from its text, and then ours."""

    def __init__(self, recover: Callable[[Any], Any]) -> None:
        self.recover = recover

    def __call__(self, problem: Any) -> Any:
        return _put_first(self.recover(problem))


def _put_first(problem: Any) -> Any:
    """The same exception, still of its class, that says our sentence. Each class has its own way to say something."""
    sentence = sentence_of(str(problem))
    if sentence is not None:
        kind = type(problem)
        said = {"__str__": lambda _: sentence, "__module__": kind.__module__}
        problem.__class__ = type(kind.__name__, (kind,), said)
    return problem


def sentence_of(report: str) -> str | None:
    """What an error of ours says in a report of Spark, and then in brackets what Spark calls it; None where it is
    about something else."""
    said = _SAID.search(report)
    if said is None:
        return None
    condition = _CONDITION.match(report)
    return said["sentence"] if condition is None else f"{said['sentence']} [{condition[1]}]"
