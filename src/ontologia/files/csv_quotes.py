"""Whether the quotes of a CSV file mean what they say: parsers guess otherwise, each in its own way."""

from __future__ import annotations

import csv
import io
import mmap
from collections.abc import Iterable
from pathlib import Path

from ontologia.errors import ValidationError

LONGEST_VALUE = (1 << 31) - 1
BYTES = "latin-1"
"""Whatever the encoding is, separators, quotes and line breaks are single bytes."""


def check_quotes(name: str, content: bytes, separator: str = ",", quote: str = '"') -> None:
    """Refuse a file in which a quote is never closed, as in one that was cut off, or in which a value continues after
    its closing quote. A quote inside a value that has none around it is a sign like any other."""
    if quote.encode() in content:
        _check(name, io.StringIO(content.decode(BYTES), newline=""), separator, quote)


def check_quotes_of(file: Path, separator: str = ",") -> None:
    """The same for a file of any size."""
    if not file.stat().st_size:
        return
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(b'"') < 0:
            return
    with file.open(encoding=BYTES, newline="") as lines:
        _check(file.name, lines, separator, '"')


def _check(name: str, lines: Iterable[str], separator: str, quote: str) -> None:
    longest = csv.field_size_limit(LONGEST_VALUE)
    reader = csv.reader(lines, delimiter=separator, quotechar=quote, strict=True)
    line = 1
    try:
        for _ in reader:
            line = reader.line_num + 1
    except csv.Error as problem:
        if "unexpected end" in str(problem):
            raise ValidationError(f"{name}: a quote that is opened in line {line} is never closed") from None
        raise ValidationError(
            f"{name}, line {line}: a value continues after its closing quote; a quote inside quotes is written twice"
        ) from None
    finally:
        csv.field_size_limit(longest)
