"""Random histories with random migrations, removals and re-inserts, asked of Spark as of the engines: with and without
`across_versions`, in every window, the answers are those of the reference model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from ontologia.errors import HistoryCutWarning
from ontologia.query.builder import QueryRoot
from ontologia.spark.reading.queries import SparkSource
from ontologia.testing.conformance.across import Across, write_migrated_history
from ontologia.testing.conformance.case import EngineCase, sqlite
from ontologia.testing.conformance.properties import check_answer, profile
from ontologia.testing.strategies import queries
from support.engine_cases import directory
from support.random_migrations import name_classes, named_steps


@dataclass(frozen=True)
class OnSpark:
    """A store that Spark is asked of."""

    spark: Any
    engine: Any

    def query(self) -> QueryRoot:
        return QueryRoot(SparkSource(self.spark, self.engine))


def ask(spark: Any, case: EngineCase, data: st.DataObject, questions: int) -> None:
    """Hold Spark's answers about one random history against the model's."""
    with case.create_store() as store, warnings.catch_warnings():
        warnings.simplefilter("ignore", HistoryCutWarning)
        model, session, reference, steps = write_migrated_history(data, store)
        name_classes(model)
        asked, importable = OnSpark(spark, session.engine), named_steps(steps)
        for _ in range(questions):
            query = data.draw(queries(model, reference.head))
            check_answer(query, asked, reference, reference)
            note("across versions")
            check_answer(query, Across(asked, importable), Across(reference, steps), reference)


def test_any_question_about_a_migrated_history_is_answered_by_spark_as_by_the_model(spark):
    @profile(1)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        ask(spark, directory("v2"), data, 2)

    check()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", [directory("v2"), sqlite("v2"), directory("v1"), sqlite("v1")], ids=str)
def test_many_questions_about_many_migrated_histories_are_answered_by_spark_as_by_the_model(spark, case):
    @profile(6)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        ask(spark, case, data, 3)

    check()
