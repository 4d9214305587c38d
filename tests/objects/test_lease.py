"""The write lease: RFC 0004 §3.1 and §3.2, and what happens when clocks, networks and holders fail."""

from __future__ import annotations

import gc
import json
import re
import socket
import threading
import time
from pathlib import Path

import pytest

from ontologia.config import new_runtime_id
from ontologia.errors import LeaseExpiredError, LockContentionError, StorageBackendError
from ontologia.objects import Lease, LeaseRecord, Objects, open_objects
from ontologia.testing.crash import crash_point, run_and_crash
from ontologia.testing.stores import FaultyObjects, ManualClock, SharedTime, When

KEY = "meta/locks/ontology_write.json"


def lease(objects: Objects, owner: str, clock: ManualClock | None = None, **options: object) -> Lease:
    arguments = {"ttl_s": 30.0, "timeout_s": 5.0, "keep_alive": False} | options
    return Lease(objects, KEY, owner_id=owner, clock=clock or ManualClock(), **arguments)  # type: ignore[arg-type]


def wait_until(condition: object) -> None:
    deadline = time.monotonic() + 20
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def payload(objects: Objects) -> dict[str, object]:
    found: dict[str, object] = json.loads(objects.get(KEY).data)
    return found


def test_the_payload_says_who_and_until_when(objects: Objects) -> None:
    clock = ManualClock(now=0)
    lease(objects, "writer-a", clock).acquire()
    found = payload(objects)
    assert found.pop("writer_id")
    assert found == {
        "owner_id": "writer-a",
        "acquired_at": "1970-01-01T00:00:00+00:00",
        "expires_at": "1970-01-01T00:00:30+00:00",
        "lease_ttl_ms": 30000,
        "released": False,
    }


def test_a_held_lease_is_not_given_to_another(objects: Objects) -> None:
    clock = ManualClock()
    lease(objects, "writer-a", clock).acquire()
    with pytest.raises(LockContentionError, match=r"'writer-a' until 1970-01-12T13:47:10\+00:00"):
        lease(objects, "writer-b", clock).acquire()
    assert payload(objects)["owner_id"] == "writer-a"


def test_who_waited_in_vain_is_told_when_the_lease_ends_and_which_setting_waits_longer(memory: Objects) -> None:
    clock = ManualClock()
    lease(memory, "killed", clock).acquire()
    with pytest.raises(LockContentionError, match=r"a dead one's ends in 25 s: .* raise OntologiaConfig\.patience"):
        lease(memory, "heir", clock, timeout_setting="OntologiaConfig.patience").acquire()


def test_two_sessions_of_one_runtime_exclude_each_other(memory: Objects) -> None:
    clock = ManualClock()
    lease(memory, "runtime", clock).acquire()
    with pytest.raises(LockContentionError):
        lease(memory, "runtime", clock).acquire()


def test_waiting_ends_with_the_timeout_and_polls_with_backoff(memory: Objects) -> None:
    clock = ManualClock()
    lease(memory, "a", clock).acquire()
    with memory.counting() as count, pytest.raises(LockContentionError):
        lease(memory, "b", clock, timeout_s=5.0).acquire()
    assert clock.slept == pytest.approx(5.0)
    assert count.total < 40


def test_with_no_time_to_wait_a_free_lease_is_still_taken(memory: Objects) -> None:
    clock = ManualClock()
    with lease(memory, "a", clock), pytest.raises(LockContentionError):
        lease(memory, "b", clock, timeout_s=0.0).acquire()
    lease(memory, "b", clock, timeout_s=0.0).acquire()
    assert payload(memory)["owner_id"] == "b"


def test_an_expired_lease_is_taken_over(objects: Objects) -> None:
    clock = ManualClock()
    lease(objects, "dead", clock).acquire()
    clock.now += 30.0
    with objects.counting() as count:
        lease(objects, "heir", clock).acquire()
    assert payload(objects)["owner_id"] == "heir"
    assert count.by_operation == {"put_if_absent": 1, "get": 1, "put_if_match": 1}


def test_who_waits_long_enough_gets_it_when_it_expires(memory: Objects) -> None:
    clock = ManualClock()
    lease(memory, "dead", clock).acquire()
    lease(memory, "heir", clock, timeout_s=60.0).acquire()
    assert 30.0 <= clock.slept < 33.0


def test_of_two_heirs_one_inherits(memory: Objects) -> None:
    clock = ManualClock()
    lease(memory, "dead", clock).acquire()
    clock.now += 31
    faulty = FaultyObjects(memory)
    faulty.call(lambda request: lease(memory, "quick", clock).acquire(), operation="put_if_match")
    with pytest.raises(LockContentionError, match="'quick'"):
        lease(faulty, "slow", clock).acquire()
    assert payload(memory)["owner_id"] == "quick"


def test_the_next_acquire_after_a_clean_release_is_one_request(objects: Objects) -> None:
    writer = lease(objects, "a")
    with writer:
        pass
    with objects.counting() as count:
        writer.acquire()
        assert count.total == 1
        assert writer.release()
    assert count.by_operation == {"put_if_match": 2}


def test_a_released_lease_is_free_for_others_at_once(objects: Objects) -> None:
    clock = ManualClock()
    with lease(objects, "a", clock):
        pass
    lease(objects, "b", SharedTime(clock, skew_s=-1000)).acquire()
    assert payload(objects)["owner_id"] == "b"
    assert clock.slept == 0


def test_a_remembered_release_that_is_stale_costs_two_requests_more(memory: Objects) -> None:
    clock = ManualClock()
    first, second = lease(memory, "a", clock), lease(memory, "b", clock)
    for writer in (first, second):
        with writer:
            pass
    with memory.counting() as count:
        first.acquire()
    assert count.by_operation == {"put_if_match": 2, "get": 1}


def test_release_after_a_takeover_is_a_no_op(objects: Objects) -> None:
    clock = ManualClock()
    slow = lease(objects, "slow", clock).acquire()
    clock.now += 31
    lease(objects, "heir", clock).acquire()
    before = objects.get(KEY)
    assert slow.release() is False
    assert objects.get(KEY) == before
    assert slow.release() is False


def test_release_never_fails_the_caller(memory: Objects) -> None:
    faulty = FaultyObjects(memory)
    writer = lease(faulty, "a").acquire()
    faulty.lose_request(times=None)
    assert writer.release() is False
    assert not writer.held


def test_a_release_whose_answer_was_lost_is_a_release(memory: Objects) -> None:
    faulty = FaultyObjects(memory)
    writer = lease(faulty, "a").acquire()
    faulty.lose_response(operation="put_if_match")
    assert writer.release() is True
    with faulty.counting() as count:
        writer.acquire()
    assert count.total == 1


# --- guard --------------------------------------------------------------------------------------------------


def test_the_guard_passes_while_more_than_a_third_is_left(memory: Objects) -> None:
    clock = ManualClock()
    writer = lease(memory, "a", clock).acquire()
    clock.now += 19.9
    writer.guard()
    clock.now += 0.2
    with pytest.raises(LeaseExpiredError, match="less than the margin"):
        writer.guard()


def test_the_guard_stops_who_holds_nothing(memory: Objects) -> None:
    writer = lease(memory, "a")
    with pytest.raises(LeaseExpiredError, match="not held"):
        writer.guard()
    with writer:
        writer.guard()
    with pytest.raises(LeaseExpiredError, match="not held"):
        writer.guard()


def test_time_spent_acquiring_is_not_counted_as_ours(memory: Objects) -> None:
    clock = ManualClock()
    faulty = FaultyObjects(memory)
    faulty.call(lambda request: clock.sleep(25), operation="put_if_absent", when="after")
    writer = lease(faulty, "a", clock).acquire()
    with pytest.raises(LeaseExpiredError):
        writer.guard()


def test_setting_the_wall_clock_back_does_not_prolong_a_lease(memory: Objects) -> None:
    clock = ManualClock()
    writer = lease(memory, "a", clock).acquire()
    clock.now += 29
    clock.skew_s -= 3600
    with pytest.raises(LeaseExpiredError):
        writer.guard()


def test_a_machine_that_slept_knows_by_the_wall_clock(memory: Objects) -> None:
    clock = ManualClock()
    writer = lease(memory, "a", clock).acquire()
    clock.skew_s += 3600  # the steady clock stood still
    with pytest.raises(LeaseExpiredError):
        writer.guard()


# --- renewal ------------------------------------------------------------------------------------------------


def test_a_renewal_moves_the_local_expiry_and_the_stored_one(objects: Objects) -> None:
    clock = ManualClock()
    writer = lease(objects, "a", clock).acquire()
    acquired = payload(objects)["acquired_at"]
    for _ in range(3):
        clock.now += 15
        writer.renew()
    writer.guard()
    assert writer.remaining_s == 30
    stored = LeaseRecord.read(payload(objects))
    assert stored is not None
    assert stored.expires_at == writer.expires_at
    assert payload(objects)["acquired_at"] == acquired


def test_a_renewal_after_a_takeover_makes_the_lease_unsafe(memory: Objects) -> None:
    clock = ManualClock()
    slow = lease(memory, "slow", clock).acquire()
    lease(memory, "early heir", SharedTime(clock, skew_s=100)).acquire()
    slow.guard()
    with pytest.raises(LeaseExpiredError, match="taken over by 'early heir'"):
        slow.renew()
    with pytest.raises(LeaseExpiredError, match="taken over by 'early heir'"):
        slow.guard()
    assert slow.remaining_s == 0


def test_a_renewal_that_fails_makes_the_lease_unsafe(memory: Objects) -> None:
    clock = ManualClock()
    faulty = FaultyObjects(memory)
    writer = lease(faulty, "a", clock).acquire()
    clock.now += 10
    faulty.lose_request(times=None)
    with pytest.raises(LeaseExpiredError, match="could not be renewed"):
        writer.renew()
    faulty.heal()
    with pytest.raises(LeaseExpiredError, match="could not be renewed"):
        writer.guard()


def test_a_renewal_whose_answer_was_lost_is_a_renewal(memory: Objects) -> None:
    clock = ManualClock()
    faulty = FaultyObjects(memory)
    writer = lease(faulty, "a", clock).acquire()
    clock.now += 10
    faulty.lose_response(operation="put_if_match")
    writer.renew()
    writer.guard()
    assert writer.release()


def test_the_keep_alive_thread_renews_until_release(memory: Objects) -> None:
    writer = Lease(memory, KEY, ttl_s=0.3, owner_id="a")
    with memory.counting() as count, writer:
        first = writer.expires_at
        wait_until(lambda: count.count("put_if_match") >= 3)
        assert writer.expires_at != first
    assert payload(memory)["released"] is True
    wait_until(lambda: not any(thread.name.startswith("lease") for thread in threading.enumerate()))


def test_the_keep_alive_thread_notices_a_takeover(memory: Objects) -> None:
    writer = Lease(memory, KEY, ttl_s=0.3, owner_id="a").acquire()
    memory.put(KEY, json.dumps({"owner_id": "thief"}).encode())
    wait_until(lambda: writer.remaining_s == 0)
    with pytest.raises(LeaseExpiredError):
        writer.guard()


def test_a_lease_that_was_dropped_without_release_is_not_renewed_for_ever(memory: Objects) -> None:
    Lease(memory, KEY, ttl_s=0.2, owner_id="careless").acquire()
    gc.collect()
    Lease(memory, KEY, ttl_s=0.2, owner_id="heir", timeout_s=20, keep_alive=False).acquire()
    assert payload(memory)["owner_id"] == "heir"


# --- clocks and corpses -------------------------------------------------------------------------------------


def test_skew_within_a_third_never_lets_two_pass_the_guard(memory: Objects) -> None:
    """The heir's clock is a third ahead: it takes over early, when the guard of the first already says no."""
    clock = ManualClock()
    first = lease(memory, "first", clock).acquire()
    heir = lease(memory, "heir", SharedTime(clock, skew_s=10.0), timeout_s=60)
    heir.acquire()
    heir.guard()
    with pytest.raises(LeaseExpiredError):
        first.guard()


def test_a_dead_holder_whose_clock_was_a_year_ahead_is_survived(memory: Objects) -> None:
    clock = ManualClock()
    lease(memory, "dead", SharedTime(clock, skew_s=365 * 86400.0)).acquire()
    heir = lease(memory, "heir", clock, timeout_s=8.0)
    failures = 0
    while not heir.held:
        try:
            heir.acquire()
        except LockContentionError:
            failures += 1
    assert failures == 3, "seen unchanged for its ttl of 30 s, over calls of 8 s each"


def test_a_living_holder_with_a_wrong_clock_keeps_its_lease(memory: Objects) -> None:
    clock = ManualClock()
    alive = lease(memory, "alive", SharedTime(clock, skew_s=365 * 86400.0)).acquire()
    waiting = lease(memory, "waiting", clock, timeout_s=9.0)
    for _ in range(8):
        with pytest.raises(LockContentionError):
            waiting.acquire()
        alive.renew()


def test_an_object_that_is_no_lease_does_not_block_for_ever(memory: Objects) -> None:
    memory.put(KEY, b"what is this")
    clock = ManualClock()
    with pytest.raises(LockContentionError, match="not readable"):
        lease(memory, "a", clock).acquire()
    lease(memory, "a", clock, timeout_s=31).acquire()
    assert payload(memory)["owner_id"] == "a"


def test_an_unreachable_store_is_a_storage_error_not_contention(memory: Objects) -> None:
    faulty = FaultyObjects(memory)
    faulty.lose_request(times=None)
    with pytest.raises(StorageBackendError, match="could not acquire the lease"):
        lease(faulty, "a").acquire()


def test_one_lease_object_is_one_holder(memory: Objects) -> None:
    writer = lease(memory, "a").acquire()
    with pytest.raises(RuntimeError, match="held already"):
        writer.acquire()


def hold_and_die(uri: str) -> None:
    Lease(open_objects(uri), KEY, ttl_s=0.5, owner_id="killed").acquire()
    crash_point("holding")


def test_a_killed_holder_is_taken_over_after_its_lease(tmp_path: Path) -> None:
    uri = (tmp_path / "store").as_uri()
    assert run_and_crash(hold_and_die, uri, at_step="holding").killed
    with Lease(open_objects(uri), KEY, ttl_s=0.5, owner_id="heir", timeout_s=20) as heir:
        heir.guard()


def hold_for_long_and_die(uri: str, owner: str, keep_alive: bool) -> None:
    Lease(open_objects(uri), KEY, ttl_s=3600, owner_id=owner or new_runtime_id(), keep_alive=keep_alive).acquire()
    crash_point("holding")


@pytest.mark.parametrize(("owner", "keep_alive"), [("", True), ("writer-a", True), ("", False)])
def test_the_lease_of_a_dead_process_of_this_machine_is_free_at_once(
    tmp_path: Path, owner: str, keep_alive: bool
) -> None:
    uri = (tmp_path / "store").as_uri()
    assert run_and_crash(hold_for_long_and_die, uri, owner, keep_alive, at_step="holding").killed
    with Lease(open_objects(uri), KEY, owner_id="heir", timeout_s=0) as heir:
        heir.guard()


def test_a_lock_under_a_chosen_name_outlives_the_process_that_took_it(tmp_path: Path) -> None:
    uri = (tmp_path / "store").as_uri()
    assert run_and_crash(hold_for_long_and_die, uri, "night-shift", False, at_step="holding").killed
    with pytest.raises(LockContentionError, match="night-shift"):
        Lease(open_objects(uri), KEY, owner_id="heir", timeout_s=0).acquire()


def test_the_lease_of_a_process_of_another_machine_is_waited_for(memory: Objects) -> None:
    ended = new_runtime_id().replace(socket.gethostname(), "another-host", 1)
    lease(memory, re.sub(r"-\d+-", "-999999999-", ended)).acquire()
    with pytest.raises(LockContentionError, match="another-host"):
        lease(memory, "heir", timeout_s=0.0).acquire()


def test_threads_that_compete_hold_it_one_at_a_time(objects: Objects) -> None:
    inside: list[str] = []
    overlaps: list[list[str]] = []

    def work(name: str) -> None:
        writer = Lease(objects, KEY, ttl_s=30, owner_id=name, timeout_s=30)
        for _ in range(3):
            with writer:
                inside.append(name)
                overlaps.append(list(inside))
                inside.remove(name)

    objects.map(work, ["a", "b", "c"])
    assert [names for names in overlaps if len(names) > 1] == []
    assert len(overlaps) == 9


# --- interrupts: Ctrl-C between any two steps ----------------------------------------------------------------------


WHEN = pytest.mark.parametrize("when", ["before", "after"])


def interrupt(request: object) -> None:
    raise KeyboardInterrupt


@WHEN
def test_a_lease_whose_acquisition_is_interrupted_is_free_at_once(objects: Objects, when: When) -> None:
    faulty = FaultyObjects(objects)
    faulty.call(interrupt, when=when, operation="put*")
    with pytest.raises(KeyboardInterrupt):
        lease(faulty, "interrupted").acquire()
    assert lease(objects, "next", timeout_s=0).acquire().held


@WHEN
def test_a_lease_whose_takeover_is_interrupted_is_free_at_once(objects: Objects, when: When) -> None:
    lease(objects, "before").acquire().release()
    faulty = FaultyObjects(objects)
    faulty.call(interrupt, when=when, operation="put_if_match")
    with pytest.raises(KeyboardInterrupt):
        lease(faulty, "interrupted").acquire()
    assert lease(objects, "next", timeout_s=0).acquire().held


@WHEN
def test_a_lease_whose_release_is_interrupted_is_free_at_once(objects: Objects, when: When) -> None:
    faulty = FaultyObjects(objects)
    holder = lease(faulty, "interrupted").acquire()
    faulty.call(interrupt, when=when, operation="put*")
    with pytest.raises(KeyboardInterrupt):
        holder.release()
    assert lease(objects, "next", timeout_s=0).acquire().held


def test_an_interrupted_acquisition_leaves_the_lease_of_another_alone(objects: Objects) -> None:
    lease(objects, "holder").acquire()
    faulty = FaultyObjects(objects)
    faulty.call(interrupt, when="after", operation="get")
    with pytest.raises(KeyboardInterrupt):
        lease(faulty, "interrupted").acquire()
    assert payload(objects)["released"] is False
