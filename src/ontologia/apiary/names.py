"""Names, and the keys they make (seed, "Bucket Layout"). What a caller types becomes a path here, or nowhere."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import quote

from ontologia.errors import ValidationError

REGISTRY = "_registry"
HEARTBEATS = "_heartbeats"
QUERIES = "_queries"
LEDGER = "_ledger"
CHECKPOINTS = "_checkpoint"
CHECKPOINT = "checkpoint_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_SEGMENT_BYTES = 120


@dataclass(frozen=True, slots=True, order=True)
class FrameName:
    """Where a frame lies: hive, box and frame."""

    hive: str
    box: str
    frame: str

    def __str__(self) -> str:
        return f"{self.hive}.{self.box}.{self.frame}"

    @property
    def folder(self) -> str:
        return f"{self.hive}/{self.box}/{self.frame}"

    @classmethod
    def parse(cls, text: str) -> FrameName:
        """
        >>> FrameName.parse("analytics.sensors.temperature").box
        'sensors'
        """
        parts = text.split(".") if isinstance(text, str) else []
        if len(parts) != 3:
            raise ValidationError(f"a frame is named hive.box.frame, as in analytics.sensors.temperature: not {text!r}")
        return cls(*parts)


def check_name(kind: str, name: object) -> str:
    """Refuse a name for a new hive, box or frame that could mean anything but one folder, on any store."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or CHECKPOINTS in name:
        shown = repr(name) if len(repr(name)) <= 60 else f"{repr(name)[:57]}…"
        raise ValidationError(
            f"{shown} is not a name for a {kind}: use 1 to 100 of the letters a–z, A–Z, digits, _ and -, "
            f"with a letter or digit first, and without {CHECKPOINTS!r}"
        )
    return name


def partition_folder(column: str, value: str) -> str:
    """One path segment for a partition value: `region=north`.

    Letters that mean something to a store, a shell or a glob are percent-encoded, and what is long is cut and told
    apart by a hash. Nothing is read back from here: values are in the ledger.
    """
    segment = f"{_plain(column)}={_plain(value)}"
    if len(segment) <= _SEGMENT_BYTES:
        return segment
    digest = hashlib.sha256(f"{column}={value}".encode()).hexdigest()[:16]
    return f"{segment[: _SEGMENT_BYTES - 17].rstrip('%')}-{digest}"


def _plain(text: str) -> str:
    encoded = quote(text, safe=" ")
    return encoded.replace("..", "%2E%2E").replace("~", "%7E")


def number_text(number: int) -> str:
    """At least six digits, more when they are needed."""
    return f"{number:06d}"
