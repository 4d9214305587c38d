"""Thousands of random questions, answered by every embedded engine as by an oracle that shares no code with it.

The seeds are fixed here; `make soak` goes on from others for as long as asked.
"""

import pytest

from ontologia.query import conditions
from ontologia.query.dialects import DIALECTS
from ontologia.testing.conformance import directory, graph, sqlite
from ontologia.testing.differential.checking import Disagreement, check_seed

QUESTIONS = 40
CASES = [(sqlite("v1"), 3), (sqlite("v2"), 8), (directory("v1"), 2), (directory("v2"), 5), (graph(), 4)]


@pytest.mark.thorough
@pytest.mark.parametrize(("case", "histories"), CASES, ids=lambda value: str(value))
def test_an_engine_answers_as_the_oracle_does(case, histories):
    asked = sum(check_seed(case, seed, QUESTIONS) for seed in range(histories))
    assert asked > histories * QUESTIONS * 0.9


def wrong_comparisons(monkeypatch):
    monkeypatch.setattr(conditions.numbers, "floats", lambda op, value: (float(value), float(value)))


def forgotten_nulls(monkeypatch):
    monkeypatch.setattr(type(DIALECTS["sqlite"]), "json_absent", lambda self, place: conditions.exp.false())


def cut_texts(monkeypatch):
    monkeypatch.setattr(type(DIALECTS["sqlite"]), "whole_text", lambda self, found, place: found)


@pytest.mark.parametrize(
    "mistake", [wrong_comparisons, forgotten_nulls, cut_texts], ids=lambda mistake: mistake.__name__
)
@pytest.mark.thorough
def test_a_mistake_in_the_compiler_is_found(monkeypatch, mistake):
    mistake(monkeypatch)
    with pytest.raises(Disagreement, match=r"sqlite/v2, seed \d+, question \d+"):
        sum(check_seed(sqlite("v2"), seed, QUESTIONS) for seed in range(100, 200))
