"""Everything the console prints: facts on stdout, talk on stderr.

A command hands over its facts and a function that draws them. With `--json` the facts are printed; on a terminal they
are drawn in colour; in a pipe as plain text. So the faces cannot disagree about what is true.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO

from ontologia.model.values import plain

if TYPE_CHECKING:
    from rich.console import Console

Sign = Literal["+", "-", "~", " "]
Tone = Literal["plain", "strong", "dim", "good", "warning", "bad"]
PROGRESS_AFTER_S = 1.0
_STYLES: dict[str, str] = {
    "plain": "",
    "strong": "bold",
    "dim": "dim",
    "good": "green",
    "warning": "yellow",
    "bad": "bold red",
    "+": "green",
    "-": "red",
    "~": "yellow",
    " ": "",
}


class Face(Protocol):
    """What a command can draw with."""

    def line(self, text: str = "", tone: Tone = "plain") -> None: ...

    def pairs(self, facts: Mapping[str, Any]) -> None:
        """Names and values, one pair a line."""

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None: ...

    def change(self, sign: Sign, text: str, indent: int = 2) -> None:
        """One line of a diff."""


class Progress(Protocol):
    """A bar that moves, or silence."""

    def __call__(self, done: int, note: str = "", total: int | None = None) -> None: ...


class ReaderLeft(Exception):
    """Whoever read the output, such as `head`, has all it wanted. The argument parser would call that a failure."""


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise ReaderLeft from None


class Output:
    """The streams of one command."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet

    @property
    def on_terminal(self) -> bool:
        """Whether facts are drawn for a person, who wants a screen of them rather than all."""
        return not self.as_json and sys.stdout.isatty()

    def show(self, facts: Any, draw: Callable[[Face], None]) -> None:
        """Print facts, in the face that fits."""
        if self.as_json:
            self.text(json.dumps(plain(facts), indent=2, ensure_ascii=False))
            return
        with _reader_may_leave():
            draw(RichFace(_console(sys.stdout)) if self.on_terminal else PlainFace(sys.stdout))

    def text(self, text: str) -> None:
        """Print a document as it is."""
        with _reader_may_leave():
            print(text, file=sys.stdout)

    def say(self, text: str) -> None:
        """Talk, which `--quiet` silences: the target, what comes next."""
        if not self.quiet:
            self._tell(text, "dim")

    def warn(self, text: str) -> None:
        """Something the operator should know, also when quiet."""
        self._tell(f"warning: {text}", "yellow")

    def _tell(self, text: str, style: str) -> None:
        if sys.stderr.isatty():
            _console(sys.stderr).print(escape(text), style=style, markup=False, highlight=False, soft_wrap=True)
        else:
            print(escape(text), file=sys.stderr)

    @contextmanager
    def progress(self, label: str, total: int | None = None) -> Iterator[Progress]:
        """A bar on a terminal, for work that turns out to take longer than a moment."""
        if self.quiet or not sys.stderr.isatty():
            yield lambda done, note="", total=None: None
            return
        from rich import progress as rich_progress

        bar = rich_progress.Progress(
            rich_progress.SpinnerColumn(),
            rich_progress.TextColumn("{task.description}", markup=False),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TimeElapsedColumn(),
            rich_progress.TimeRemainingColumn(),
            console=_console(sys.stderr),
            transient=True,
        )
        task = bar.add_task(escape(label), total=total)
        timer = threading.Timer(PROGRESS_AFTER_S, bar.start)
        timer.daemon = True
        timer.start()
        try:
            yield lambda done, note="", total=total: bar.update(
                task, completed=done, total=total, description=escape(f"{label} {note}".rstrip())
            )
        finally:
            timer.cancel()
            timer.join()
            bar.stop()


class PlainFace:
    """Text for a pipe: aligned columns, no colour, no frames, nothing cut off."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def line(self, text: str = "", tone: Tone = "plain") -> None:
        print(escape(text), file=self._file)

    def pairs(self, facts: Mapping[str, Any]) -> None:
        width = max((len(name) for name in facts), default=0)
        for name, value in facts.items():
            self.line(f"{name:<{width}}  {cell(value)}")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
        if title is not None:
            self.line(title)
        cells = [[cell(value) for value in row] for row in rows]
        widths = [max(len(name), *(len(row[number]) for row in cells), 0) for number, name in enumerate(columns)]
        right = [_is_number(rows, number) for number in range(len(columns))]
        for row in ([name.upper() for name in columns], *cells):
            aligned = (
                text.rjust(width) if ends else text.ljust(width)
                for text, width, ends in zip(row, widths, right, strict=True)
            )
            print("  ".join(aligned).rstrip(), file=self._file)

    def change(self, sign: Sign, text: str, indent: int = 2) -> None:
        self.line(f"{' ' * indent}{sign} {text}")


class RichFace:
    """Tables and colour for a person."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def line(self, text: str = "", tone: Tone = "plain") -> None:
        self._print(text, _STYLES[tone])

    def pairs(self, facts: Mapping[str, Any]) -> None:
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        for name, value in facts.items():
            grid.add_row(Text(name, "dim"), Text(cell(value), "bold" if value is not None else "dim"))
        self._console.print(grid)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
        for number, name in enumerate(columns):
            table.add_column(name, justify="right" if _is_number(rows, number) else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell(value), "dim" if value is None else "") for value in row))
        self._console.print(table)

    def change(self, sign: Sign, text: str, indent: int = 2) -> None:
        self._print(f"{' ' * indent}{sign} {text}", _STYLES[sign])

    def _print(self, text: str, style: str) -> None:
        self._console.print(escape(text), style=style, markup=False, highlight=False, soft_wrap=True)


def _console(file: TextIO) -> Console:
    from rich.console import Console

    return Console(file=file)


def cell(value: Any) -> str:
    """A value as text in one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, int):
        return str(value)
    found = plain(value)
    return escape(found) if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def escape(text: str) -> str:
    """Text without control characters, which could move the cursor or colour a terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def size(count: int | None) -> str | None:
    """Bytes as a person reads them."""
    if count is None:
        return None
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def count_noun(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _is_number(rows: Sequence[Sequence[Any]], number: int) -> bool:
    values = [row[number] for row in rows if row[number] is not None]
    return bool(values) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
