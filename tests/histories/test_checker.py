"""The checker of histories names each anomaly in the smallest history that has it, and none in one that has none."""

import pytest

from ontologia.testing.histories import Anomaly, Append, Level, Outcome, Read, Transaction, check, forbidden

R, A = Read, Append


def history(*transactions, outcome=Outcome.COMMITTED):
    """Transactions that all run at once, so that real time orders none of them."""
    return [Transaction(f"p{number}", ops, outcome, 0, 100) for number, ops in enumerate(transactions)]


CASES = {
    Anomaly.LOST_APPEND: (history([A("x", 1)]), {"x": []}),
    Anomaly.DUPLICATE: (history([A("x", 1)]), {"x": [1, 1]}),
    Anomaly.TORN: (history([A("x", 1), A("y", 2)]), {"x": [1], "y": []}),
    Anomaly.ABORTED_READ: (history([A("x", 1)], outcome=Outcome.REJECTED) + history([R("x", [1])]), {"x": [1]}),
    Anomaly.INTERMEDIATE_READ: (history([A("x", 1), A("x", 2)], [R("x", [1])]), {"x": [1, 2]}),
    Anomaly.INTERNAL: (history([A("x", 1), R("x", [])]), {"x": [1]}),
    Anomaly.ORDER: (history([A("x", 1)], [A("x", 2)], [R("x", [1, 2])], [R("x", [2, 1])]), {"x": [1, 2]}),
    Anomaly.DIRTY_WRITE: (history([A("x", 1), A("y", 2)], [A("x", 3), A("y", 4)]), {"x": [1, 3], "y": [4, 2]}),
    Anomaly.CIRCULAR: (history([A("x", 1), R("y", [2])], [A("y", 2), R("x", [1])]), {"x": [1], "y": [2]}),
    Anomaly.NON_REPEATABLE_READ: (history([A("x", 1)], [R("x", []), R("x", [1])]), {"x": [1]}),
    Anomaly.LOST_UPDATE: (history([R("x", []), A("x", 1)], [R("x", []), A("x", 2)]), {"x": [1, 2]}),
    Anomaly.READ_SKEW: (history([A("x", 1), A("y", 2)], [R("x", [1]), R("y", [])]), {"x": [1], "y": [2]}),
    Anomaly.WRITE_SKEW: (
        history([R("x", []), A("y", 1)], [R("y", []), A("x", 2)]),
        {"x": [2], "y": [1]},
    ),
    Anomaly.STALE_READ: (
        [
            Transaction("p0", [A("x", 1)], Outcome.COMMITTED, 0, 10),
            Transaction("p1", [R("x", [])], Outcome.COMMITTED, 20, 30),
        ],
        {"x": [1]},
    ),
}


def test_there_is_a_case_of_every_anomaly():
    assert set(CASES) == set(Anomaly)


@pytest.mark.parametrize("anomaly", CASES, ids=lambda anomaly: anomaly.name.lower())
def test_the_checker_names_the_anomaly(anomaly):
    assert anomaly in {piece.anomaly for piece in check(*CASES[anomaly])}


def test_a_serial_history_has_no_anomaly():
    serial = [
        Transaction("p0", [A("x", 1), A("y", 2)], Outcome.COMMITTED, 0, 10),
        Transaction("p1", [R("x", [1]), A("x", 3)], Outcome.COMMITTED, 11, 20),
        Transaction("p0", [R("x", [1, 3]), R("y", [2])], Outcome.COMMITTED, 21, 30),
    ]
    assert check(serial, {"x": [1, 3], "y": [2]}) == []


def test_a_commit_of_unknown_outcome_may_be_there_or_not():
    unknown = history([R("x", []), A("x", 1)], outcome=Outcome.UNKNOWN)
    assert check(unknown, {"x": []}) == check(unknown, {"x": [1]}) == []


def test_write_skew_is_allowed_under_snapshots_and_forbidden_when_serializable():
    evidence = check(*CASES[Anomaly.WRITE_SKEW])
    assert forbidden(evidence, Level.SNAPSHOT) == []
    assert forbidden(evidence, Level.SERIALIZABLE) != []


def test_transactions_survive_a_round_trip_through_their_file():
    [transaction] = history([R("x", [1]), A("x", 2)])
    assert Transaction.from_json(transaction.to_json()).to_json() == transaction.to_json()
