"""Exit codes, and which failure ends in which: the one place that decides."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import traceback
from collections.abc import Mapping
from functools import partial

from ontologia.cli.output import escape
from ontologia.errors import OntologiaError, without_passwords

OK, ERROR, USAGE, MISMATCH, RACE, STORAGE, CONFLICT, REFUSED = range(8)
INTERRUPTED = 130  # as shells have it for a process that was stopped by the keyboard

# By the stable codes of the error tree; an error that is not listed ends like its nearest base.
BY_CODE = {
    "ontologia": ERROR,
    "unreadable_file": USAGE,
    "missing_extra": USAGE,
    "schema_outdated": MISMATCH,
    "concurrent_write": RACE,
    "migration": RACE,
    "storage_backend": STORAGE,
    "commit_outcome_unknown": STORAGE,
    "import_conflict": CONFLICT,
    "merge_conflict": CONFLICT,
    "drop_refused": REFUSED,
    "erasure_refused": REFUSED,
    "erasure_incomplete": STORAGE,
    "forget_refused": REFUSED,
    "migration_discards": REFUSED,
}


class UsageError(Exception):
    """What was typed makes no sense: a flag conflict, a malformed filter, a file that cannot be read."""


def code_of(problem: BaseException) -> int:
    """The exit code of a failure."""
    if isinstance(problem, OntologiaError):
        return next(
            BY_CODE[cls.__dict__["code"]] for cls in type(problem).__mro__ if cls.__dict__.get("code") in BY_CODE
        )
    if isinstance(problem, UsageError):
        return USAGE
    if isinstance(problem, (OSError, sqlite3.Error)):
        return STORAGE
    code = getattr(problem, "exit_code", None)  # what the argument parser raises
    return code if isinstance(code, int) else ERROR


def report(problem: BaseException, name: str = "onto", *, debug: bool) -> None:
    """Say in one line what was wrong; the traceback only for those who ask."""
    if debug:
        print_traceback(problem)
    if (
        type(problem).__name__ == "NoArgsIsHelpError"
    ):  # a command without its arguments: the parser's help is the answer
        print(problem.format_message(), file=sys.stderr)  # type: ignore[attr-defined]
        return
    print(f"{name}: {one_line(problem)}", file=sys.stderr)


def report_interrupt(problem: BaseException, name: str = "onto", *, debug: bool) -> int:
    """The operator stopped it: one line, and the code that shells have for that."""
    if debug:
        print_traceback(problem)
    print(f"{name}: interrupted", file=sys.stderr)
    return INTERRUPTED


def one_line(problem: BaseException) -> str:
    """The message of a failure without line breaks; unexpected ones name their type."""
    message = getattr(problem, "format_message", None)
    if message is not None:
        text = str(message()) or "aborted"
        context = getattr(problem, "ctx", None)
        if context is not None:
            text = f"{text.rstrip('.')}{'' if text.endswith('?') else '.'} See {context.command_path} --help"
    elif isinstance(problem, (OntologiaError, UsageError)):
        text = str(problem)
    elif isinstance(problem, OSError) and problem.strerror and problem.filename is not None:
        text = f"{problem.filename}: {problem.strerror}"
    else:
        text = f"{type(problem).__name__}: {problem}"
    return escape(without_passwords(" ".join(text.split())))


def print_traceback(problem: BaseException) -> None:
    lines = without_passwords("".join(traceback.format_exception(problem))).split("\n")
    print("\n".join(map(escape, lines)), file=sys.stderr, end="")


def in_options(text: str, options: Mapping[str, str]) -> str:
    """A message of the library in the words of the console: `mode='sync'` is typed `--mode sync`.

    `options` are those of a command, by the names of the arguments they stand for.
    """
    for name, option in options.items():
        text = re.sub(rf"(?<![\w.]){name}=\{{([^}}]*)\}}", partial(_pairs, option), text)
        text = re.sub(rf"(?<![\w.]){name}=True( \({option}\))?", option, text)
        text = re.sub(rf"(?<![\w.]){name}=(?:'([^']*)'|\"([^\"]*)\"|(\d+))", rf"{option} \1\2\3", text)
        if "_" in name:  # other names are words, too
            text = re.sub(rf"(?<![\w.'\"]){name}(?![\w='\"])", option, text)
    return text


def _pairs(option: str, said: re.Match[str]) -> str:
    """What a dict says, as an option that is given for each pair."""
    return " ".join(f"{option} '{key}={value}'" for key, value in re.findall(r'"([^"]*)": "([^"]*)"', said[1]))


def close_broken_pipe() -> None:
    """The reader of our output went away, as `head` does. Nothing more can be said to it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
