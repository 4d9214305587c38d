"""Events that come by the clock: a cron text, and an event for every time it names."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from ontologia.errors import ValidationError
from ontologia.model import encode_json, instant_text
from ontologia.runtime.events.records import StoredEvent
from ontologia.runtime.events.store import EventStore
from ontologia.runtime.events.types import Event, derive_id

_log = logging.getLogger(__name__)
SPANS = [timedelta(days=days) for days in (1 / 24, 1, 32, 366, 366 * 8)]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Send an event at the times of a cron text: `Schedule(NightlySync(source="crm"), "0 3 * * *")`.

    The text has five fields: minute, hour, day of the month, month and day of the week. Where it names both a day of
    the month and one of the week, both must hold. Times are in UTC, or in `timezone`. A time that the change to summer
    time leaves out comes right after the gap; one that the change back repeats comes once, unless the text says every
    hour. However many sessions have a schedule, each time comes once. Of the times missed while none was running, the
    latest comes when one runs again.
    """

    event: Event
    cron: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise TypeError(f"Schedule takes an event, such as Schedule(Synced(source='crm'), …), not {self.event!r}")
        try:
            ZoneInfo(self.timezone)
        except (KeyError, ValueError, OSError) as problem:
            raise ValidationError(f"Schedule: there is no time zone {self.timezone!r}") from problem
        self.next_after(datetime.now(UTC))

    @property
    def name(self) -> str:
        """The name of its mark in the store."""
        said = f"{self.event.__event_type_name__} {self.cron} {self.timezone} {encode_json(self.event.__dict__)}"
        return f"schedule.{self.event.__event_type_name__}.{derive_id(said)}"

    def next_after(self, moment: datetime) -> datetime:
        """The first time after a moment, in UTC."""
        from croniter import CroniterError, croniter

        try:
            check_cron(self.cron)
            times = croniter(self.cron, moment.astimezone(ZoneInfo(self.timezone)), day_or=False)
            found: datetime = times.get_next(datetime)
            while self._is_repeated(found):
                found = times.get_next(datetime)
        except (CroniterError, ValueError, AttributeError, TypeError) as problem:
            raise ValidationError(
                f"Schedule: {self.cron!r} does not name a time ({problem}); "
                "write one such as '0 3 * * *' for 3 o'clock every day"
            ) from None
        return found.astimezone(UTC)

    def last_between(self, after: datetime, until: datetime) -> datetime | None:
        """The last time after one moment and not after another, in UTC.

        Looked for from the end, in spans that grow: croniter's own way back is wrong around changes of the clocks.
        """
        for span in SPANS:
            begin = max(after, until - span)
            found = self.next_after(begin)
            if found <= until:
                while (following := self.next_after(found)) <= until:
                    found = following
                return found
            if begin == after:
                return None
        return None

    def _is_repeated(self, moment: datetime) -> bool:
        """The second pass through the hour that is there twice, of a text that names some hours."""
        from croniter import croniter

        if moment.fold == 0:
            return False
        fields = self.cron.split()
        in_steps = len(fields) > 1 and fields[1].startswith("*")
        hours = set(croniter.expand(self.cron)[0][1])
        return not in_steps and hours != {"*"} and len(hours) < 24

    def at(self, moment: datetime, namespace: str) -> StoredEvent:
        """The event of one time, the same whoever makes it."""
        template = self.event.to_record(namespace)
        id = derive_id(namespace, self.name, instant_text(moment))
        return StoredEvent(
            id, namespace, template.type, template.payload, instant_text(moment), template.priority, id, 0
        )


def check_cron(text: str) -> None:
    """Refuse what croniter would take and nobody means: seconds, times by chance, ranges that end before they begin."""
    fields = text.split()
    if len(fields) != 5 and not text.startswith("@"):
        raise ValueError(f"it has {len(fields)} fields, and five are needed")
    for field in fields:
        if field[:1] in ("R", "r", "H", "h") and not field[1:2].isalpha():
            raise ValueError(f"{field!r} is a time by chance")
        for first, last in re.findall(r"(?<![\w#])(\d+)-(\d+)", field):
            if int(first) > int(last):
                raise ValueError(f"the range {first}-{last} ends before it begins")


class Timetable:
    """The schedules of a session, and when each comes next."""

    def __init__(self, schedules: list[Schedule], store: EventStore) -> None:
        for schedule in schedules:
            if not isinstance(schedule, Schedule):
                raise TypeError(f"schedules are Schedule(event, cron), not {schedule!r}")
        if len({schedule.name for schedule in schedules}) < len(schedules):
            raise ValidationError("two schedules are the same: same event, same cron text, same time zone")
        self._store = store
        self._next: dict[str, datetime] = {}
        self._schedules = schedules

    def send_due(self) -> int:
        """Queue the events whose time has come; how many."""
        return sum(self._send(schedule) for schedule in self._schedules)

    def seconds_to_next(self) -> float | None:
        """How long until there is something to send."""
        now = self._store.clock.wall()
        return min((max(moment.timestamp() - now, 0.0) for moment in self._next.values()), default=None)

    def _send(self, schedule: Schedule) -> int:
        now = datetime.fromtimestamp(self._store.clock.wall(), UTC)
        due = self._next.get(schedule.name)
        if due is not None and due > now:
            return 0
        sent = self._catch_up(schedule, now)
        self._next[schedule.name] = schedule.next_after(now)
        return sent

    def _catch_up(self, schedule: Schedule, now: datetime) -> int:
        mark = self._store.mark(schedule.name)
        if mark is None:  # seen for the first time: it begins now
            self._store.advance(schedule.name, None, _mark(now), [])
            return 0
        done = datetime.fromisoformat(str(mark["until"]))
        if done > now:
            _log.warning(
                "schedule %s was served until %s, and it is %s: the clock was set back, or another's is ahead. "
                "It goes on from there",
                schedule.name,
                mark["until"],
                instant_text(now),
            )
            return 0
        moment = schedule.last_between(done, now)
        if moment is None:
            return 0
        event = schedule.at(moment, self._store.namespace)
        return int(self._store.advance(schedule.name, mark, _mark(moment), [event]))


def _mark(moment: datetime) -> dict[str, Any]:
    return {"until": instant_text(moment)}
