"""Random lives of a graph against a model in plain dicts; `make soak SUITE=graphs` goes on from other seeds."""

import pytest

from ontologia.omnigraph import cleanup
from ontologia.testing.differential.checking import Disagreement
from ontologia.testing.differential.graphs import merge_tables, soak_seed


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_a_graph_lives_as_its_model_does(seed):
    assert soak_seed(seed, steps=25) > 100


@pytest.mark.thorough
def test_a_cleanup_that_keeps_too_little_is_found(monkeypatch):
    monkeypatch.setattr(cleanup, "_find_kept_commits", lambda *arguments: [])
    with pytest.raises(Disagreement):
        sum(soak_seed(seed, steps=15) for seed in range(20))


def test_the_model_merges_three_ways():
    base = {"node:Person": {"a": {"age": 1}, "b": {"age": 1}}}
    source = {"node:Person": {"a": {"age": 2}, "b": {"age": 2}}}
    target = {"node:Person": {"a": {"age": 1}, "b": {"age": 3}}}
    merged, conflicts = merge_tables(base, source, target, theirs=False)
    assert (merged, conflicts) == ({"node:Person": {"a": {"age": 2}, "b": {"age": 3}}}, ["node:Person b"])
