"""Reading across schema versions over files that were compacted, and over a history that goes on after a rename."""

from __future__ import annotations

import pytest

from ontologia.testing.conformance.across import STEPS, Airline, AirlinePartner, Moved, MovedPartner, migrated, renamed
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
    session = migrated(store)
    before = answers(session, Moved, {})
    session.repository.compact(apply=True)
    assert answers(store.session(Moved, MovedPartner), Moved, {}) == before
    later = store.session(Airline, AirlinePartner)
    later.migrate(dry_run=False, force=True, upgraders=STEPS)
    expected = answers(later, Airline, STEPS)
    later.repository.compact(apply=True)
    assert answers(store.session(Airline, AirlinePartner), Airline, STEPS) == expected


def test_a_state_before_a_rename_takes_no_more_requests_as_commits_follow(store):
    session = renamed(store)

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
