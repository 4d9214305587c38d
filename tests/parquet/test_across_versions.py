"""Reading across schema versions over files that were compacted, and over a history that goes on after a rename."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from ontologia import Entity, Field
from ontologia.engines.parquet.read.in_order import CarriedInOrder
from ontologia.testing.conformance.across import (
    STEPS,
    Airline,
    AirlinePartner,
    Moved,
    MovedPartner,
    make_migrated,
    make_renamed,
)
from ontologia.testing.conformance.answers import make_plain
from ontologia.testing.conformance.case import StoreUnderTest
from support.engine_cases import directory


@pytest.fixture(params=["v1", "v2"])
def store(request, tmp_path):
    case = directory(request.param)
    found = StoreUnderTest(case, case.create(tmp_path))
    yield found
    found.close()


def answers(session, cls, steps):
    query = session.query().entities(cls).across_versions(steps)
    states = [make_plain(query.as_of(commit).collect()) for commit in range(1, 6)]
    return states, make_plain(query.with_history().collect()), make_plain(query.history_since(2).collect())


def test_compaction_before_and_after_a_migration_changes_no_answer(store):
    session = make_migrated(store)
    before = answers(session, Moved, {})
    session.repository.compact(apply=True)
    assert answers(store.session(Moved, MovedPartner), Moved, {}) == before
    later = store.session(Airline, AirlinePartner)
    later.migrate(dry_run=False, force=True, upgraders=STEPS)
    expected = answers(later, Airline, STEPS)
    later.repository.compact(apply=True)
    assert answers(store.session(Airline, AirlinePartner), Airline, STEPS) == expected


def test_a_state_before_a_rename_takes_no_more_requests_as_commits_follow(store):
    session = make_renamed(store)

    def requests():
        fresh = store.session(Airline, AirlinePartner)
        with fresh.engine.objects.counting() as counted:
            assert fresh.query().entities(Airline).across_versions(STEPS).as_of(1).count() == 2
        return len(counted.log)

    for number in range(12):
        session.ensure(Airline(id="a", zone="utc", fleet=f"{number}"))
        session.commit()
    few = requests()
    for number in range(40):
        session.ensure(Airline(id="a", zone="cet", fleet=f"{number}"))
        session.commit()
    assert requests() <= few


class Sample(Entity):
    """A type before it changed."""

    id: Field[str] = Field(primary_key=True)
    place: Field[str]
    value: Field[int]
    raw: Field[bytes]


class SampleNow(Entity, name="Sample"):
    """A field renamed, one widened, and new ones of every kind."""

    id: Field[str] = Field(primary_key=True)
    site: Field[str] = Field(renamed_from="place")
    value: Field[int | None]
    raw: Field[bytes]
    taken: Field[datetime] = Field(default=datetime(2026, 1, 1, tzinfo=UTC))
    day: Field[date] = Field(default=date(2026, 1, 2))
    size: Field[float] = Field(default=1.5)
    tags: Field[list[str]] = Field(default_factory=lambda: ["a", "b"])
    note: Field[str | None] = Field(default=None)
    seal: Field[bytes] = Field(default=b"\x00x")


def test_a_state_of_an_earlier_version_read_in_the_order_of_its_file_is_what_a_statement_answers(store, monkeypatch):
    session = store.session(Sample)
    session.ensure(Sample(id=f"{number:03}", place=f"p{number}", value=number, raw=b"r") for number in range(50))
    session.commit()
    later = store.session(SampleNow)
    later.migrate(dry_run=False, force=True)
    query = later.query().entities(SampleNow).across_versions().as_of(1)
    read: list[bool] = []
    table = CarriedInOrder.table

    def noted(self, names, **how):
        found = table(self, names, **how)
        read.append(found is not None)
        return found

    monkeypatch.setattr(CarriedInOrder, "table", noted)
    in_order = query.to_arrow()
    monkeypatch.setattr(CarriedInOrder, "table", lambda self, names, **how: None)
    assert (read, in_order.num_rows) == ([True], 50)
    assert in_order.equals(query.to_arrow())
