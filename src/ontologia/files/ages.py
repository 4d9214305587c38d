"""Ages as people write them: how old a file must be before it may go."""

from __future__ import annotations

import re

from ontologia.errors import ValidationError

HOW = "write it as 45s, 30m, 12h, 7d or 2w"
OLDEST_S = 100 * 366 * 86_400
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def parse_age(text: str) -> float:
    """An age in seconds.

    >>> parse_age("12h")
    43200.0
    """
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise ValidationError(f"{text!r} is not an age: {HOW}")
    seconds = float(found[1]) * _SECONDS[found[2]]
    if seconds > OLDEST_S:
        raise ValidationError(f"{text!r}: nothing is that old; {HOW}")
    return seconds
