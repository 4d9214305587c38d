"""Ctrl-C at any point of a commit or a query, as in a notebook that lives on: the next call finds all in order."""

import _thread
import sys
import threading

import pytest

from ontologia import Entity, Field, OntologiaConfig, Ontology, Relation, ValidationError, initialize_storage
from ontologia.objects.requests import interceptors

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


def ask(onto, sql):
    with onto.engine.connections.use() as connection:
        connection.create_function("press_ctrl_c", 0, _thread.interrupt_main)
        connection.execute(sql).fetchall()


ENDLESS = "WITH RECURSIVE r(x) AS (SELECT press_ctrl_c() UNION ALL SELECT 1 FROM r) SELECT count(*) FROM r"


@pytest.mark.parametrize(
    "sql", ["SELECT press_ctrl_c(), ontologia_length('abc')", ENDLESS], ids=["function", "endless"]
)
def test_an_interrupt_inside_a_statement_of_sqlite_ends_it_and_stays_an_interrupt(onto, sql):
    with pytest.raises(KeyboardInterrupt):
        ask(onto, sql)
    assert commit(onto, 1) == 2


class InterruptedRequest:
    """Raises `KeyboardInterrupt` before or after the n-th request of this thread."""

    def __init__(self, number, when):
        self.left, self.when, self.thread = number, when, threading.get_ident()

    def __call__(self, request, call):
        if threading.get_ident() != self.thread:
            return call()
        self.left -= 1
        if self.left == 0 and self.when == "before":
            raise KeyboardInterrupt
        answer = call()
        if self.left == 0:
            raise KeyboardInterrupt
        return answer


@pytest.mark.parametrize("when", ["before", "after"])
def test_after_an_interrupt_at_any_request_of_a_commit_others_write_at_once(tmp_path, when):
    uri = (tmp_path / "store").as_uri()
    initialize_storage(storage_uri=uri)
    settings = OntologiaConfig(s3_lock_timeout_ms=1, auto_compact="never")
    values = iter(range(1, 1000))
    with Ontology(storage_uri=uri, entity_types=[Thing]) as onto, Ontology(storage_uri=uri, config=settings) as other:
        commit(onto, next(values))
        number, was_interrupted = 0, True
        while was_interrupted:
            number += 1
            interceptors.append(InterruptedRequest(number, when))
            try:
                commit(onto, next(values))
                was_interrupted = False
            except KeyboardInterrupt:
                pass
            finally:
                interceptors.clear()
            value = next(values)
            commit(other, value)
            assert onto.query().entities(Thing).first().value == value
    assert number > 5
