"""Options of the data source: text, read with checks that say what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from ontologia.errors import ValidationError


def check_options(options: Mapping[str, str], known: Sequence[str], *, prefix: str | None = None) -> None:
    """An option that nobody reads is a mistake: a misspelt one would silently change what is read or written."""
    taken = {name.lower() for name in known}
    for name in options:
        if name.lower() not in taken and not (prefix and name.lower().startswith(prefix)):
            raise ValidationError(f"there is no option {name!r}; there are {', '.join(known)}")


def number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValidationError(f"the option {name} takes a commit id, not {text!r}") from None


def moment(name: str, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValidationError(f"the option {name} takes a time such as 2026-01-31T12:00:00, not {text!r}") from None


def truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValidationError(f"the option {name} is true or false, not {text!r}")
    return text.lower() == "true"
