"""Conditional puts are settled whatever happens to requests and answers."""

from __future__ import annotations

import json
import uuid

import pytest

from ontologia.errors import CommitOutcomeUnknownError, StorageBackendError
from ontologia.objects import Committed, Objects, Rejected, Request, conditional_put, prove_conditions
from ontologia.testing.stores import FaultyObjects, ManualClock

HEAD = "meta/head.json"


@pytest.fixture
def faulty(memory: Objects) -> FaultyObjects:
    return FaultyObjects(memory)


def write_as(objects: Objects, name: str, **body: object) -> None:
    """What another writer does in the meantime."""
    objects.put(HEAD, json.dumps({"writer_id": name, **body}).encode())


def test_a_put_without_trouble_is_one_request(objects: Objects) -> None:
    with objects.counting() as count:
        created = conditional_put(objects, HEAD, {"commit_id": 0}, etag=None)
        assert isinstance(created, Committed)
        replaced = conditional_put(objects, HEAD, {"commit_id": 1}, etag=created.etag)
    assert isinstance(replaced, Committed)
    assert count.total == 2
    assert objects.get(HEAD).etag == replaced.etag
    assert json.loads(objects.get(HEAD).data) == replaced.body


def test_equal_bodies_of_two_attempts_differ(objects: Objects) -> None:
    first = conditional_put(objects, "a", {"commit_id": 0}, etag=None)
    second = conditional_put(objects, "b", {"commit_id": 0}, etag=None)
    assert isinstance(first, Committed)
    assert isinstance(second, Committed)
    assert first.etag != second.etag


def test_a_lost_race_names_the_winner(objects: Objects) -> None:
    etag = objects.put(HEAD, b"{}")
    write_as(objects, "other", commit_id=7)
    outcome = conditional_put(objects, HEAD, {"commit_id": 1}, etag=etag)
    assert outcome == Rejected({"writer_id": "other", "commit_id": 7}, objects.get(HEAD).etag)


def test_a_replace_of_an_object_that_is_gone_is_rejected(objects: Objects) -> None:
    etag = objects.put(HEAD, b"{}")
    objects.delete(HEAD)
    assert conditional_put(objects, HEAD, {}, etag=etag) == Rejected(None, None)


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("fault", ["lose_request", "lose_response", "repeat"])
def test_one_fault_of_any_kind_still_commits_exactly_once(faulty: FaultyObjects, create: bool, fault: str) -> None:
    etag = None if create else faulty.put(HEAD, b"{}")
    getattr(faulty, fault)(operation="put_if_*", key=HEAD)
    outcome = conditional_put(faulty, HEAD, {"commit_id": 1}, etag=etag, clock=ManualClock())
    assert isinstance(outcome, Committed)
    assert (json.loads(faulty.get(HEAD).data), faulty.get(HEAD).etag) == (outcome.body, outcome.etag)


@pytest.mark.parametrize("fault", ["lose_request", "lose_response"])
def test_every_single_lost_message_is_survived(memory: Objects, fault: str) -> None:
    """Both the put and the read back may fail, in any combination of two."""
    for first in (1, 2, 3):
        for second in (2, 3, 4):
            faulty = FaultyObjects(memory.under(f"{fault}-{first}-{second}"))
            etag = faulty.put(HEAD, b"{}")
            faulty.heal()
            getattr(faulty, fault)(at=first)
            getattr(faulty, fault)(at=second)
            outcome = conditional_put(faulty, HEAD, {"commit_id": 1}, etag=etag, clock=ManualClock())
            assert isinstance(outcome, Committed)


def test_an_answer_lost_on_real_servers_is_settled(objects: Objects) -> None:
    faulty = FaultyObjects(objects)
    faulty.lose_response(operation="put_if_absent")
    created = conditional_put(faulty, HEAD, {"commit_id": 0}, etag=None)
    assert isinstance(created, Committed)
    faulty.lose_response(operation="put_if_match")
    replaced = conditional_put(faulty, HEAD, {"commit_id": 1}, etag=created.etag)
    assert isinstance(replaced, Committed)
    assert faulty.get(HEAD).etag == replaced.etag


def test_nothing_can_be_said_while_the_store_is_silent(faulty: FaultyObjects) -> None:
    etag = faulty.put(HEAD, b"{}")
    faulty.lose_response(operation="put_if_match", times=None)
    faulty.lose_request(operation="get", times=None)
    clock = ManualClock()
    with pytest.raises(CommitOutcomeUnknownError, match="writer_id is known-to-me"):
        conditional_put(faulty, HEAD, {}, etag=etag, writer_id="known-to-me", budget_s=3, clock=clock)
    assert clock.slept == pytest.approx(3)


def test_a_request_that_never_arrives_leaves_the_outcome_unknown(faulty: FaultyObjects) -> None:
    """It may be under way still: reading the old state does not prove that it will not come."""
    etag = faulty.put(HEAD, b"{}")
    faulty.lose_request(operation="put_if_match", times=None)
    with pytest.raises(CommitOutcomeUnknownError):
        conditional_put(faulty, HEAD, {}, etag=etag, budget_s=3, clock=ManualClock())


def test_a_commit_that_another_built_upon_is_found_in_its_history(faulty: FaultyObjects) -> None:
    etag = faulty.put(HEAD, b"{}")
    faulty.lose_response(operation="put_if_match")
    faulty.call(lambda request: write_as(faulty, "other", parents=["mine"]), operation="get")

    outcome = conditional_put(
        faulty,
        HEAD,
        {},
        etag=etag,
        writer_id="mine",
        buried=lambda winner: "mine" in winner["parents"],
        clock=ManualClock(),
    )
    assert isinstance(outcome, Committed)
    assert outcome.etag is None


def test_a_commit_that_another_may_have_built_upon_is_unknown_if_nobody_can_tell(
    faulty: FaultyObjects,
) -> None:
    etag = faulty.put(HEAD, b"{}")
    faulty.lose_response(operation="put_if_match")
    faulty.call(lambda request: write_as(faulty, "other"), operation="get")
    with pytest.raises(CommitOutcomeUnknownError):
        conditional_put(faulty, HEAD, {}, etag=etag, clock=ManualClock())


def test_a_create_of_a_key_that_is_written_once_is_rejected_after_a_lost_request(
    faulty: FaultyObjects,
) -> None:
    faulty.lose_request(operation="put_if_absent")
    faulty.call(lambda request: write_as(faulty, "other"), operation="get")
    outcome = conditional_put(faulty, HEAD, {}, etag=None, clock=ManualClock())
    assert isinstance(outcome, Rejected)
    assert outcome.winner == {"writer_id": "other"}


def test_what_was_certainly_not_applied_is_a_storage_error_at_once(faulty: FaultyObjects) -> None:
    faulty.fail(OSError("status code: 403 Forbidden: <Code>AccessDenied</Code>"), operation="put_if_absent")
    with faulty.counting() as count, pytest.raises(StorageBackendError, match="credentials were refused"):
        conditional_put(faulty, HEAD, {}, etag=None, clock=ManualClock())
    assert count.total == 1


def test_an_endpoint_that_comes_back_within_the_budget_is_waited_for(faulty: FaultyObjects) -> None:
    faulty.fail(OSError("HTTP error: kind: Connect"), operation="put_if_absent", times=3)
    assert isinstance(conditional_put(faulty, HEAD, {}, etag=None, clock=ManualClock()), Committed)


def test_a_refusal_while_nothing_is_there_is_tried_again(faulty: FaultyObjects) -> None:
    """S3 answers 409 while another conditional write to the key is under way, which may then fail."""
    from ontologia.objects import ConditionFailed

    faulty.fail(ConditionFailed(faulty.url(HEAD), None), operation="put_if_absent", times=2)
    assert isinstance(conditional_put(faulty, HEAD, {}, etag=None, clock=ManualClock()), Committed)


def test_a_winner_that_is_not_json_is_rejected_without_a_body(memory: Objects) -> None:
    etag = memory.put(HEAD, b"{}")
    memory.put(HEAD, b"\xff not json")
    assert conditional_put(memory, HEAD, {}, etag=etag) == Rejected(None, memory.get(HEAD).etag)


# --- proof --------------------------------------------------------------------------------------------------


def test_a_gateway_that_ignores_conditions_is_refused_every_time(memory: Objects) -> None:
    gateway = FaultyObjects(memory)
    gateway.ignore_conditions()
    for _ in range(2):
        with pytest.raises(StorageBackendError, match="ignores the If-None-Match condition"):
            prove_conditions(gateway)
    assert list(memory.list()) == []


def test_a_gateway_that_ignores_if_match_alone_is_refused(memory: Objects) -> None:
    gateway = FaultyObjects(memory)

    def overwrite(request: Request, call: object) -> str:
        return memory.put(request.key, b"overwritten")

    gateway.inject(overwrite, operation="put_if_match", times=None)
    with pytest.raises(StorageBackendError, match="ignores the If-Match condition"):
        prove_conditions(gateway)


def test_a_store_is_proven_once_per_process(memory: Objects) -> None:
    with memory.counting() as count:
        prove_conditions(memory)
        assert count.total == 5
        prove_conditions(memory)
        prove_conditions(memory.under(uuid.uuid4().hex))
    assert count.total == 5


def test_a_probe_that_cannot_be_deleted_does_no_harm(memory: Objects) -> None:
    faulty = FaultyObjects(memory)
    faulty.fail(OSError("status code: 403"), operation="delete")
    prove_conditions(faulty)
    assert [info.key.startswith("_probe/") for info in memory.list()] == [True]


def test_a_failed_proof_is_tried_again(memory: Objects) -> None:
    faulty = FaultyObjects(memory)
    faulty.lose_request(at=2)
    with pytest.raises(StorageBackendError):
        prove_conditions(faulty)
    prove_conditions(faulty)
