"""How names of users become parts of paths, one way and back."""

from __future__ import annotations

import re

_ESCAPED = re.compile(r"(?:~[0-9A-F]{2})+")


def encode_name(name: str) -> str:
    """A name as one part of a path: letters, digits, `_`, `-` and `.` stay, other bytes become `~` and two digits.

    Nothing is left that a store, a file system or a pattern takes for a sign of its own, and no name is `.` or `..`.

    >>> encode_name("order/item *")
    'order~2Fitem~20~2A'
    """
    plain = "".join(char if char.isalnum() or char in "_-." else _escape(char) for char in name)
    return _escape(".") + plain[1:] if plain.startswith(".") else plain


def decode_name(part: str) -> str:
    """The name that a part of a path stands for.

    >>> decode_name("order~2Fitem~20~2A")
    'order/item *'
    """
    return _ESCAPED.sub(lambda found: bytes.fromhex(found[0].replace("~", "")).decode(), part)


def _escape(char: str) -> str:
    return "".join(f"~{byte:02X}" for byte in char.encode())
