"""Events by the clock: changes of the clocks, ends of months, missed times, several sessions, texts without meaning."""

from datetime import UTC, datetime, timedelta

import pytest

from ontologia import Schedule, ValidationError, on_event
from support.events_shop import StockLow

TICK = StockLow(sku="tick")


def times(cron, begin, end, timezone="UTC"):
    """All times of a schedule in a span, as local texts."""
    from zoneinfo import ZoneInfo

    schedule, found = Schedule(TICK, cron, timezone), []
    moment = begin
    while (moment := schedule.next_after(moment)) < end:
        assert schedule.last_between(begin, moment) == moment
        assert schedule.last_between(begin, moment + timedelta(seconds=0.5)) == moment
        found.append(moment.astimezone(ZoneInfo(timezone)).strftime("%m-%d %H:%M%z"))
    return found


def test_a_time_that_summer_time_leaves_out_comes_right_after_the_gap():
    begin, end = datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 3, 31, tzinfo=UTC)
    assert times("30 2 * * *", begin, end, "Europe/Berlin") == [
        "03-28 02:30+0100",
        "03-29 03:00+0200",
        "03-30 02:30+0200",
    ]


def test_a_time_that_winter_time_repeats_comes_once():
    begin, end = datetime(2026, 10, 24, tzinfo=UTC), datetime(2026, 10, 27, tzinfo=UTC)
    assert times("30 2 * * *", begin, end, "Europe/Berlin") == [
        "10-24 02:30+0200",
        "10-25 02:30+0200",
        "10-26 02:30+0100",
    ]


def test_what_comes_every_hour_comes_every_hour_all_through_the_change():
    begin, end = datetime(2026, 10, 24, 23, 30, tzinfo=UTC), datetime(2026, 10, 25, 3, 30, tzinfo=UTC)
    assert times("0 * * * *", begin, end, "Europe/Berlin") == [
        "10-25 02:00+0200",
        "10-25 02:00+0100",
        "10-25 03:00+0100",
        "10-25 04:00+0100",
    ]
    begin, end = datetime(2026, 3, 28, 23, 30, tzinfo=UTC), datetime(2026, 3, 29, 2, 30, tzinfo=UTC)
    assert times("0 * * * *", begin, end, "Europe/Berlin") == [
        "03-29 01:00+0100",
        "03-29 03:00+0200",
        "03-29 04:00+0200",
    ]


def test_the_end_of_a_month():
    begin, end = datetime(2028, 1, 1, tzinfo=UTC), datetime(2028, 5, 1, tzinfo=UTC)
    assert times("0 0 31 * *", begin, end) == ["01-31 00:00+0000", "03-31 00:00+0000"]
    assert times("0 0 L * *", begin, end) == [
        "01-31 00:00+0000",
        "02-29 00:00+0000",
        "03-31 00:00+0000",
        "04-30 00:00+0000",
    ]
    assert times("0 0 29 2 *", begin, end) == ["02-29 00:00+0000"]


@pytest.mark.parametrize("cron", ["", "nonsense", "60 * * * *", "* * *", "0 0 30 2 *", None, 7])
def test_a_cron_text_that_means_nothing_is_refused_at_once(cron):
    with pytest.raises(ValidationError, match="does not name a time"):
        Schedule(TICK, cron)


def test_a_zone_that_does_not_exist_and_an_event_that_is_none_are_refused():
    with pytest.raises(ValidationError, match="time zone 'Mars/Olympus'"):
        Schedule(TICK, "0 3 * * *", "Mars/Olympus")
    with pytest.raises(TypeError, match="takes an event"):
        Schedule(StockLow, "0 3 * * *")


def test_the_same_schedule_twice_is_refused(bench):
    schedule = Schedule(TICK, "0 3 * * *")
    with pytest.raises(ValidationError, match="the same"):
        bench.run(bench.session(), [], schedules=[schedule, Schedule(StockLow(sku="tick"), "0 3 * * *")])


@pytest.fixture
def every_minute():
    return [Schedule(TICK, "* * * * *")]


@pytest.fixture
def note(seen):
    @on_event(StockLow)
    def note(ctx):
        seen.append(ctx.event.created_at.strftime("%H:%M:%S"))

    return note


def test_a_schedule_begins_when_it_is_first_seen(bench, every_minute, note, seen):
    # The clock starts at 08:00:00 exactly, which is a minute of its own.
    bench.clock.sleep(30)
    bench.run(bench.session(), [note], 2, schedules=every_minute)
    assert seen == []


def test_each_time_comes_once_whoever_is_running(bench, every_minute, note, seen):
    one, two = bench.session(), bench.session()
    for _ in range(6):
        bench.run(one, [note], 1, schedules=every_minute)
        bench.run(two, [note], 1, schedules=every_minute)
        bench.clock.sleep(30)
    assert seen == ["08:01:00", "08:02:00"]


def test_of_the_times_missed_while_down_the_latest_comes(bench, every_minute, note, seen):
    session = bench.session()
    bench.run(session, [note], schedules=every_minute)
    bench.clock.sleep(600)
    bench.run(session, [note], schedules=every_minute)
    assert seen == ["08:10:00"]


def test_a_clock_that_jumps_back_repeats_no_time_and_goes_on_later(bench, every_minute, note, seen, caplog):
    session = bench.session()
    bench.run(session, [note], schedules=every_minute)
    bench.clock.sleep(120)
    bench.run(session, [note], schedules=every_minute)
    bench.clock.skew_s = -600
    bench.run(session, [note], schedules=every_minute)
    assert seen == ["08:02:00"]
    assert "set back" in caplog.text
    bench.clock.sleep(660)
    bench.run(session, [note], schedules=every_minute)
    assert seen == ["08:02:00", "08:03:00"]


def test_a_session_wakes_for_the_next_time(bench, every_minute, note, seen):
    session = bench.session(event_poll_interval_ms=3_600_000)
    bench.clock.sleep(1)
    bench.run(session, [note], 3, schedules=every_minute)
    assert seen == ["08:01:00"]


def test_a_session_may_have_schedules_alone(bench, every_minute):
    session = bench.session()
    bench.run(session, [], schedules=every_minute)
    bench.clock.sleep(60)
    bench.run(session, [], schedules=every_minute)
    assert [state.status for state in session.events.events()] == ["pending"]


@pytest.mark.parametrize("hours", ["*", "0-23", "0-23/1", "0-11,12-23", ",".join(map(str, range(24)))])
def test_every_hour_is_every_hour_however_it_is_spelled(hours):
    begin, end = datetime(2026, 10, 24, 23, 45, tzinfo=UTC), datetime(2026, 10, 25, 2, tzinfo=UTC)
    assert times(f"30 {hours} * * *", begin, end, "Europe/Berlin") == ["10-25 02:30+0200", "10-25 02:30+0100"]
