"""Writers that really die: a function runs in a process of its own, which is killed at a chosen point.

The kill is SIGKILL from inside, at a request to any object store (`at_request`), before or after a function
(`at_call`, for code that does not use the object store), or where the test's own code says
`crash_point("name")` (`at_step`). Nothing is flushed, closed or tidied up, as when the machine takes the
process away.

    crash = run_and_crash("tests.faults.writers:commit_one", uri, at_request=4, when="after")
    assert crash.killed
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

When = Literal["before", "after"]

CRASH_AT = "ONTOLOGIA_CRASH_AT"  #: the environment variable that tells a child where to die


@dataclass(frozen=True)
class Crash:
    """How the child ended: killed at its point, or with a result because it never came there."""

    killed: bool
    exit_code: int
    result: Any
    output: str


def run_and_crash(
    function: str | Callable[..., Any],
    *arguments: Any,
    at_request: int | None = None,
    at_step: str | None = None,
    at_call: str | None = None,
    when: When = "before",
    environment: dict[str, str] | None = None,
    timeout_s: float = 60.0,
) -> Crash:
    """Run an importable function (itself, or "module:name") with picklable arguments in a new process.

    With no point given it simply runs. A function that raises makes this raise `RuntimeError` with its
    traceback: a test must not take an error for a crash.
    """
    name, file = _locate(function)
    with TemporaryDirectory() as folder:
        task, answer = Path(folder, "task"), Path(folder, "answer")
        task.write_bytes(pickle.dumps((name, file, arguments)))
        child = subprocess.run(
            [sys.executable, "-m", "ontologia.testing.crash", str(task), str(answer)],
            env=os.environ
            | (environment or {})
            | {
                CRASH_AT: _describe_point(at_request, at_step, at_call, when),
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        killed = child.returncode == -signal.SIGKILL
        if not killed and child.returncode != 0:
            raise RuntimeError(f"{name} ended with {child.returncode} instead of crashing:\n{child.stdout}")
        result = pickle.loads(answer.read_bytes()) if answer.exists() else None
        return Crash(killed, child.returncode, result, child.stdout)


def crash_point(name: str) -> None:
    """Die here if this process was told to, else do nothing. For functions written for tests."""
    if os.environ.get(CRASH_AT) == f"step {name}":
        die()


def die() -> None:
    """End this process at once, without any clean-up."""
    os.kill(os.getpid(), signal.SIGKILL)


def _describe_point(at_request: int | None, at_step: str | None, at_call: str | None, when: When) -> str:
    points = [point for point in (at_request, at_step, at_call) if point is not None]
    if len(points) > 1:
        raise ValueError("one crash needs one point: at_request, at_step or at_call")
    if at_request is not None:
        return f"request {at_request} {when}"
    if at_call is not None:
        return f"call {at_call} {when}"
    return f"step {at_step}" if at_step is not None else ""


def _arm(point: str) -> None:
    """Lay the trap in this process."""
    kind, _, rest = point.partition(" ")
    if kind == "request":
        number, _, when = rest.partition(" ")
        _arm_request(int(number), when)
    elif kind == "call":
        target, _, when = rest.rpartition(" ")
        _arm_call(target, when)


def _arm_request(number: int, when: str) -> None:
    from ontologia.objects import requests

    lock = threading.Lock()
    seen = 0

    def intercept(request: requests.Request, call: Callable[[], object]) -> object:
        nonlocal seen
        with lock:
            seen += 1
            here = seen == number
        if here and when == "before":
            die()
        answer = call()
        if here:
            die()
        return answer

    requests.interceptors.append(intercept)


def _arm_call(target: str, when: str) -> None:
    owner, name = _resolve(target)
    original = getattr(owner, name)

    def trapped(*arguments: Any, **options: Any) -> Any:
        if when == "after":
            original(*arguments, **options)
        die()

    setattr(owner, name, trapped)


def _locate(function: str | Callable[..., Any]) -> tuple[str, str | None]:
    """The name of a function and, for one that lives in a test file, that file."""
    if isinstance(function, str):
        return function, None
    module = sys.modules[function.__module__]
    return f"{function.__module__}:{function.__qualname__}", getattr(module, "__file__", None)


def _make_importable(module: str, file: str | None) -> None:
    """Test files are often not importable by the name pytest gave them; then they are loaded from their
    place."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        spec = importlib.util.spec_from_file_location(module, file) if file else None
        if spec is None or spec.loader is None:
            raise
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])


def _resolve(target: str) -> tuple[Any, str]:
    module, _, path = target.partition(":")
    owner: Any = sys.modules.get(module) or importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name


def _main(task: str, answer: str) -> None:
    name, file, arguments = pickle.loads(Path(task).read_bytes())
    _make_importable(name.partition(":")[0], file)
    owner, attribute = _resolve(name)
    _arm(os.environ.get(CRASH_AT, ""))
    result = getattr(owner, attribute)(*arguments)
    Path(answer).write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    # Run as a module this file exists twice; the functions under test import the other one, which reads the
    # same environment variable, so both agree on where to die.
    _main(sys.argv[1], sys.argv[2])
