"""Ctrl-C at any point of a commit or a query, as in a notebook that lives on: the next call finds all in order."""

import sys

import pytest

from ontologia import Entity, Field, Ontology, Relation, ValidationError

# Interrupts also come while Python closes a generator, which can only report them.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    value: Field[int] = 0


class Link(Relation[Thing, Thing]):
    value: Field[int] = 0


@pytest.fixture
def onto(path):
    with Ontology(path, entity_types=[Thing], relation_types=[Link]) as onto:
        with onto.session() as session:
            session.ensure([Thing(id="a"), Link(left_key="a", right_key="a")])
        yield onto


class Interrupt:
    """Raises `KeyboardInterrupt` at the n-th line that runs in the engine, as a signal handler may at any."""

    def __init__(self, number):
        self.left = number
        self.tracebacks = []

    def __call__(self, call):
        """Whether the call was interrupted. What it left is kept alive, as a notebook keeps the last traceback."""
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            call()
            return False
        except KeyboardInterrupt as problem:
            self.tracebacks.append(problem)
            return True
        finally:
            sys.settrace(before)

    def trace(self, frame, event, argument):
        if "ontologia/engines" not in frame.f_code.co_filename and frame.f_globals["__name__"] != "contextlib":
            return self.trace if "ontologia" in frame.f_code.co_filename else None
        if event in ("line", "return"):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self.trace


def interrupted_everywhere(call, check):
    """Interrupt a call at its first step, its second, and so on; after each the check must hold."""
    number, kept = 0, []
    while True:
        number += 1
        interrupt = Interrupt(number)
        if not interrupt(call):
            return number
        kept.append(interrupt)
        check()


def commit(onto, value):
    session = onto.session()
    session.ensure(Thing(id="a", value=value))
    return session.commit()


@pytest.mark.thorough
def test_a_commit_interrupted_at_any_step_leaves_a_store_that_takes_the_next_one(onto):
    values = iter(range(1, 100_000))

    def check():
        value = next(values)
        assert commit(onto, value) == onto.repository.get_head_commit_id()
        assert onto.query().entities(Thing).first().value == value

    assert interrupted_everywhere(lambda: commit(onto, next(values)), check) > 100


@pytest.mark.thorough
@pytest.mark.slow_on("v1")
def test_a_query_interrupted_at_any_step_leaves_reads_that_see_new_commits(onto, path):
    values = iter(range(1, 100_000))
    with Ontology(path, entity_types=[Thing], relation_types=[Link]) as other:

        def check():
            value = next(values)
            commit(other, value)
            assert onto.query().entities(Thing).first().value == value

        assert interrupted_everywhere(lambda: onto.query().relations(Link).collect(), check) > 100


def test_a_transaction_that_is_kept_open_is_not_taken_for_an_abandoned_one(onto):
    onto.repository.begin_transaction()
    with pytest.raises(ValidationError, match="open already"):
        commit(onto, 1)
    onto.repository.rollback_transaction()
    assert commit(onto, 1) == 2


def test_a_commit_inside_a_commit_is_refused_and_breaks_nothing(onto):
    def work(transaction):
        with pytest.raises(ValidationError, match="open already"):
            commit(onto, 1)
        return transaction.publish({})

    assert onto.engine.transact(work) == 2
