"""The payload of a lease object, read and written in this one place (RFC 0004 §3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

from ontologia.config import has_ended


@dataclass(frozen=True)
class LeaseRecord:
    """Who holds the lease and until when. `released` is ours: an end that needs no clock to be believed; for
    readers that do not know it, `expires_at` of a released lease is already past. `process` is ours too: the process
    that renews the lease, so that another one of the same machine sees that it is gone. Unknown fields are kept."""

    owner_id: str
    acquired_at: datetime
    expires_at: datetime
    lease_ttl_ms: int
    released: bool = False
    process: str | None = None
    other: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def starting(cls, owner_id: str, now: float, ttl_s: float, process: str | None = None) -> Self:
        return cls(owner_id, _utc(now), _utc(now + ttl_s), round(ttl_s * 1000), process=process)

    @property
    def holder_has_ended(self) -> bool:
        """Whether the holder is a process of this machine that is gone. Its owner is a process only where nobody chose
        another name for it."""
        return has_ended(self.owner_id if self.process is None else self.process)

    def prolong(self, now: float, ttl_s: float) -> Self:
        return replace(self, expires_at=_utc(now + ttl_s))

    def end(self, now: float) -> Self:
        return replace(self, expires_at=_utc(now), released=True)

    def payload(self) -> dict[str, Any]:
        return {
            **self.other,
            **({} if self.process is None else {"process": self.process}),
            "owner_id": self.owner_id,
            "acquired_at": self.acquired_at.isoformat(),
            "expires_at": self.expires_at.isoformat(),
            "lease_ttl_ms": self.lease_ttl_ms,
            "released": self.released,
        }

    @classmethod
    def read(cls, body: Mapping[str, Any] | None) -> Self | None:
        """None if this is not the payload of a lease. Such an object is waited for like a lease that never
        renews."""
        if body is None:
            return None
        other = dict(body)
        try:
            return cls(
                owner_id=str(other.pop("owner_id")),
                acquired_at=_instant(other.pop("acquired_at")),
                expires_at=_instant(other.pop("expires_at")),
                lease_ttl_ms=int(other.pop("lease_ttl_ms")),
                released=bool(other.pop("released", False)),
                process=_text_or_none(other.pop("process", None)),
                other=other,
            )
        except (KeyError, TypeError, ValueError):
            return None


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _instant(text: Any) -> datetime:
    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
