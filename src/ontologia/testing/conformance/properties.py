"""What must hold for any model, any history and any question; found by Hypothesis, judged by the reference model.

The quick profile repeats the same examples every time, and does not shrink what fails.
`ONTOLOGIA_HYPOTHESIS_PROFILE=deep` looks for new ones, longer, and shrinks them.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Protocol

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from ontologia.query.builder import QueryRoot
from ontologia.runtime.session import Session
from ontologia.testing.conformance.answers import are_close, make_plain, plain_values, take_answer
from ontologia.testing.conformance.case import EngineCase, StoreUnderTest
from ontologia.testing.conformance.frames import expected_rows
from ontologia.testing.conformance.machine import StoreMachine
from ontologia.testing.reference import ReferenceStore
from ontologia.testing.strategies import RandomModel, RandomQuery, histories, models, queries

DEEP = os.environ.get("ONTOLOGIA_HYPOTHESIS_PROFILE") == "deep"
LARGEST_EXACT_SUM = 2.0**62


def profile(examples: int, *, steps: int = 20) -> settings:
    """Settings for one property: few fixed examples, or many new ones in the deep profile."""
    return settings(
        max_examples=examples * 60 if DEEP else examples,
        stateful_step_count=steps * 2 if DEEP else steps,
        derandomize=not DEEP,
        database=None,
        deadline=None,
        print_blob=True,
        phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if DEEP else [])],
        suppress_health_check=list(HealthCheck),
    )


def write_history(data: st.DataObject, store: StoreUnderTest) -> tuple[RandomModel, Session, ReferenceStore]:
    """A random history, in a store and in the reference model."""
    model = data.draw(models(), label="model")
    session, reference = store.session(*model.classes), ReferenceStore()
    for number, objects in enumerate(data.draw(histories(model), label="history")):
        session.ensure(objects)
        assert session.commit() == reference.commit(objects), f"commit {number}"
    return model, session, reference


class Asked(Protocol):
    """What can be asked: a session, the reference model."""

    def query(self) -> QueryRoot: ...


def check_answer(query: RandomQuery, session: Asked, model: Asked, reference: ReferenceStore) -> None:
    """Hold an answer against the reference model's, with room for rounding where numbers were added up."""
    note(query.text)
    magnitude = query.magnitude(reference)
    if magnitude > LARGEST_EXACT_SUM:
        return  # a sum may leave 64 bits on its way, or overflow, in the order in which an engine adds
    found, expected = take_answer(lambda: query.ask(session.query())), take_answer(lambda: query.ask(model.query()))
    assert are_close(make_plain(found), make_plain(expected), magnitude * 1e-9), query.text
    assert getattr(found, "diagnostics", []) == getattr(expected, "diagnostics", [])


class PropertyConformance:
    """Properties."""

    @profile(20)
    @given(data=st.data())
    def test_any_question_about_any_history_is_answered_as_the_reference_model_does(
        self, engine: EngineCase, data: st.DataObject
    ) -> None:
        with engine.create_store() as store:
            model, session, reference = write_history(data, store)
            for _ in range(8):
                check_answer(data.draw(queries(model, reference.head)), session, reference, reference)

    @profile(10)
    @given(data=st.data())
    def test_what_was_written_is_what_is_read(self, engine: EngineCase, data: st.DataObject) -> None:
        with engine.create_store() as store:
            model = data.draw(models())
            item = data.draw(st.sampled_from(model.entities))
            obj = data.draw(item.rows)
            session = store.session(*model.classes)
            session.ensure(obj)
            session.commit()
            assert plain_values(session.query().entities(item.cls).collect()) == plain_values([obj])

    @profile(8)
    @given(data=st.data())
    def test_a_table_of_any_history_has_the_rows_of_its_objects(self, engine: EngineCase, data: st.DataObject) -> None:
        with engine.create_store() as store:
            model, session, _ = write_history(data, store)
            for item in model.entities:
                query = session.query().entities(item.cls)
                table = query.to_arrow()
                assert make_plain(table.to_pylist()) == make_plain(expected_rows(query))

    @profile(8)
    @given(data=st.data())
    def test_the_log_of_any_history_is_that_of_the_reference_model(
        self, engine: EngineCase, data: st.DataObject
    ) -> None:
        with engine.create_store() as store:
            _, session, reference = write_history(data, store)
            numbers = range(1, reference.head + 1)
            assert [session.list_commit_changes(number) for number in numbers] == [
                reference.list_commit_changes(number) for number in numbers
            ]

    def test_any_life_of_a_store_is_that_of_the_reference_model(self, engine: EngineCase) -> None:
        machine: Any = partial(StoreMachine, engine)
        run_state_machine_as_test(machine, settings=profile(6))
