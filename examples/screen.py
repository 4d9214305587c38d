"""How the demo looks: a sentence and the code of each step, as it is run, then a table or a picture."""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

console = Console(highlight=False)
F = TypeVar("F", bound=Callable[..., Any])
BAR_WIDTH = 40


def step(title: str, sentence: str, *, shows: Sequence[Any] = ()) -> Callable[[F], F]:
    """Announce a function with a sentence and its own source when it is called, so that what is shown is what runs."""

    def decorated(function: F) -> F:
        @functools.wraps(function)
        def announced(*args: Any, **options: Any) -> Any:
            say(title, sentence)
            show_code("\n\n".join([*map(_source, shows), _body(function)]))
            with waiting(title):
                return function(*args, **options)

        return announced  # type: ignore[return-value]

    return decorated


def say(title: str, sentence: str) -> None:
    console.print()
    console.print(Text.assemble((title, "bold cyan"), "  ", sentence), soft_wrap=True)


def show_classes(*classes: type[Any]) -> None:
    show_code("\n\n".join(map(_source, classes)))


def show_code(code: str) -> None:
    if console.is_terminal:
        shown = Syntax(code, "python", theme="ansi_dark", background_color="default", word_wrap=True)
        console.print(Padding(shown, (1, 0, 1, 4)))
    else:
        console.print(Text(f"\n{textwrap.indent(code, '    ')}\n"), soft_wrap=True)


def _source(thing: Any) -> str:
    return inspect.getsource(thing).rstrip()


def _body(function: Callable[..., Any]) -> str:
    """The statements of a function, as one would write them outside of it."""
    lines = _source(function).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("def ")) + 1
    body = textwrap.dedent("\n".join(lines[start:])).splitlines()
    names_only = re.compile(r"return [\w, ]+")
    return "\n".join(line.removeprefix("return ") for line in body if not names_only.fullmatch(line))


def table(headings: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    shown = Table(box=box.ROUNDED if console.is_terminal else box.ASCII2, header_style="bold")
    rows = list(lines)
    for place, heading in enumerate(headings):
        is_number = all(isinstance(row[place], (int, float)) for row in rows)
        shown.add_column(heading, justify="right" if is_number else "left")
    for row in rows:
        shown.add_row(*map(_text, row))
    console.print(shown)


def bars(rows: Iterable[tuple[object, float, str]]) -> None:
    """A bar chart: a label, a value and a remark a line."""
    found = list(rows)
    widest = max(len(str(label)) for label, _, _ in found)
    largest = max(value for _, value, _ in found)
    block = "█" if console.encoding.lower().startswith("utf") else "#"
    for label, value, remark in found:
        bar = block * max(round(BAR_WIDTH * value / largest), 1)
        parts = (f"  {label!s:>{widest}}  ", (bar, "green"), f" {_text(value)}", (f"  {remark}" * bool(remark), "dim"))
        console.print(Text.assemble(*parts), soft_wrap=True)


@contextmanager
def waiting(for_what: str) -> Iterator[None]:
    """A spinner, on a terminal."""
    if not console.is_terminal:
        yield
        return
    with console.status(f"[dim]{for_what} …[/]"):
        yield


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)
