"""The fault-injecting store and the crash runner do what tests rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ontologia.errors import StorageBackendError
from ontologia.objects import Objects, open_objects
from ontologia.testing.crash import crash_point, run_and_crash
from ontologia.testing.stores import FaultyObjects, SimulatedCrash


@pytest.fixture
def faulty(memory: Objects) -> FaultyObjects:
    return FaultyObjects(memory)


def three_puts(objects: Objects) -> None:
    for name in "abc":
        objects.put(name, b"x")


def test_without_rules_nothing_changes(faulty: FaultyObjects, memory: Objects) -> None:
    three_puts(faulty)
    assert [info.key for info in memory.list()] == ["a", "b", "c"]
    assert faulty.under("sub").uri == memory.under("sub").uri


def test_a_lost_request_does_nothing_and_a_lost_response_does_all(faulty: FaultyObjects, memory: Objects) -> None:
    faulty.lose_request(key="a")
    faulty.lose_response(key="b")
    for name in "ab":
        with pytest.raises(StorageBackendError, match="injected") as failure:
            faulty.put(name, b"x")
        assert failure.value.context["may_be_applied"] is True
    assert (memory.exists("a"), memory.exists("b")) == (False, True)


def test_rules_pick_by_operation_key_and_number_and_are_used_up(faulty: FaultyObjects) -> None:
    faulty.lose_request(operation="put", key="*.json", times=2)
    faulty.put("a.parquet", b"x")
    for _ in range(2):
        with pytest.raises(StorageBackendError):
            faulty.put("a.json", b"x")
    faulty.put("a.json", b"x")
    faulty.heal()
    faulty.lose_request(at=2)
    faulty.get("a.json")
    with pytest.raises(StorageBackendError):
        faulty.get("a.json")
    faulty.get("a.json")


def test_rules_hold_one_folder_down(faulty: FaultyObjects) -> None:
    faulty.lose_request(key="sub/a")
    with pytest.raises(StorageBackendError):
        faulty.under("sub").put("a", b"x")


def test_a_crash_at_each_step_leaves_exactly_the_steps_before(faulty: FaultyObjects, memory: Objects) -> None:
    steps = faulty.steps_of(lambda: three_puts(faulty))
    assert [str(step) for step in steps] == ["1: put a", "2: put b", "3: put c"]
    for step in steps:
        for when, left in (("before", step.number - 1), ("after", step.number)):
            store = memory.under(f"{step.number}-{when}")
            dying = FaultyObjects(store)
            dying.crash(at=step.number, when="before" if when == "before" else "after")
            with pytest.raises(SimulatedCrash):
                three_puts(dying)
            with pytest.raises(SimulatedCrash):
                dying.delete("a")
            assert len(list(store.list())) == left


def put_three_at(uri: str) -> str:
    three_puts(open_objects(uri))
    return "done"


def with_a_point_between(uri: str) -> None:
    objects = open_objects(uri)
    objects.put("a", b"x")
    crash_point("half way")
    objects.put("b", b"x")


def raises(uri: str) -> None:
    raise LookupError(uri)


@pytest.mark.parametrize(("when", "left"), [("before", ["a"]), ("after", ["a", "b"])])
def test_a_process_is_killed_at_a_request(tmp_path: Path, when: str, left: list[str]) -> None:
    uri = (tmp_path / "store").as_uri()
    crash = run_and_crash(put_three_at, uri, at_request=2, when="before" if when == "before" else "after")
    assert crash.killed
    assert [info.key for info in open_objects(uri).list()] == left


def test_a_process_is_killed_at_a_named_step(tmp_path: Path) -> None:
    uri = (tmp_path / "store").as_uri()
    assert run_and_crash(with_a_point_between, uri, at_step="half way").killed
    assert [info.key for info in open_objects(uri).list()] == ["a"]


def test_a_process_that_never_comes_to_the_point_ends_with_its_result(tmp_path: Path) -> None:
    crash = run_and_crash(put_three_at, (tmp_path / "store").as_uri(), at_request=99)
    assert (crash.killed, crash.result) == (False, "done")


def test_an_error_is_not_taken_for_a_crash(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="LookupError"):
        run_and_crash(raises, "x", at_request=1)
