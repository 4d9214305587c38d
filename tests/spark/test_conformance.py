"""What every engine must do, done by Spark: the suite's questions answered, and its history written.

The questions are those of `ontologia.testing`: asked through `to_spark` where the result is a table, and through the
source behind it where it is a number or a path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from ontologia import ValidationError
from ontologia.model import Declared, encode_json
from ontologia.query.aggregating import GroupedQuery
from ontologia.query.builder import EntityQuery, QueryRoot, RelationQuery
from ontologia.query.paths import EndQuery
from ontologia.spark import Pipeline
from ontologia.spark.reading.queries import SparkSource
from ontologia.testing.conformance.answers import are_close, make_plain, plain_values
from ontologia.testing.conformance.case import EngineCase, StoreUnderTest, commit, sqlite
from ontologia.testing.conformance.questions import QUESTIONS, Question
from ontologia.testing.conformance.shop import history
from ontologia.testing.conformance.writes import Box, WriteConformance
from support.engine_cases import directory

# --- questions ---


def fair_sample() -> list[Question]:
    """Some twenty-five questions, from every kind alike. The strides share no factor with what a kind repeats in."""
    strides = {"filter": 17, "order": 7, "window": 23, "number": 7, "groups": 5}
    kinds = defaultdict(list)
    for question in QUESTIONS:
        kinds[question.kind].append(question)
    assert kinds.keys() == strides.keys()
    return [question for kind, stride in strides.items() for question in kinds[kind][::stride]]


SAMPLE = fair_sample()
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, StoreUnderTest]]:
    """The shop's history: as it was committed, with three of its four commits compacted, and in a file."""
    cases = {"directory": directory("v2"), "compacted": directory("v2"), "sqlite": sqlite("v2")}
    found = {name: StoreUnderTest(case, case.create(tmp_path_factory.mktemp(name))) for name, case in cases.items()}
    for name, store in found.items():
        session = store.session()
        for number, state in enumerate(history(), 1):
            commit(session, state)
            if name == "compacted" and number == 3:
                session.repository.compact(apply=True)
    yield found
    for store in found.values():
        store.close()


def asked(store: str, questions: list[Question], *marks: Any) -> list[Any]:
    return [pytest.param(store, question, id=f"{store}-{question}", marks=marks) for question in questions]


@pytest.mark.parametrize(
    ("store", "question"),
    [
        *asked("compacted", SAMPLE),
        *asked("compacted", [question for question in QUESTIONS if question not in SAMPLE], SLOW),
        *asked("directory", SAMPLE, SLOW),
        *asked("sqlite", SAMPLE[::5]),
        *asked("sqlite", [question for question in SAMPLE if question not in SAMPLE[::5]], SLOW),
    ],
)
def test_a_question_has_the_same_answer_on_spark(spark, stores, monkeypatch, store, question):
    session = stores[store].session()
    query = unended(question, session.query(), monkeypatch)
    if query is None:
        found = question.ask(QueryRoot(SparkSource(spark, session.engine)))
        assert are_close(make_plain(found), make_plain(question.answer()), 0.0)
    else:
        target, aggregates = query
        found = target.to_spark(spark, **aggregates)
        expected = target.to_arrow(**aggregates)
        assert found.columns == expected.column_names
        assert are_close(make_plain(found.toArrow().to_pylist()), make_plain(expected.to_pylist()), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_objects_that_spark_found_are_those_of_the_reference(spark, stores, question):
    root = QueryRoot(SparkSource(spark, stores["compacted"].session().engine))
    assert are_close(make_plain(question.ask(root)), make_plain(question.answer()), 0.0)


def unended(question: Question, root: QueryRoot, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, dict[str, Any]] | None:
    """The query of a question that has a table for its answer, just before its ending, and the ending's aggregates."""
    with monkeypatch.context() as patch:
        for kind in (EntityQuery, RelationQuery, EndQuery):
            patch.setattr(kind, "collect", lambda query: (query, {}))
        patch.setattr(GroupedQuery, "agg", lambda query, **aggregates: (query, aggregates))
        found = question.ask(root)
    return found if isinstance(found, tuple) else None


def test_the_sample_is_fair():
    assert 20 <= len(SAMPLE) <= 30
    windows = {question.name.rpartition("(")[2] for question in SAMPLE if question.name.startswith("window")}
    assert len(windows) == 9
    assert len({question.name for question in QUESTIONS}) == len(QUESTIONS)


# --- writes ---


ENGINES = [sqlite("v1"), sqlite("v2"), directory("v1"), directory("v2")]


def engines(*quick: str) -> list[Any]:
    """Every engine, in the normal run only these: a history takes Spark many jobs."""
    return [pytest.param(case, id=str(case), marks=() if str(case) in quick else SLOW) for case in ENGINES]


@pytest.fixture
def empty(engine: EngineCase, tmp_path: Path) -> Iterator[StoreUnderTest]:
    store = StoreUnderTest(engine, engine.create(tmp_path))
    yield store
    store.close()


def frames(spark, objects: list[Declared]) -> dict[type[Declared], Any]:
    """Objects as DataFrames, one per type: keys and scalars typed, structure as the JSON it is."""
    found = defaultdict(list)
    for obj in objects:
        found[type(obj)].append(obj)
    return {cls: spark.createDataFrame(_table(cls, members)) for cls, members in found.items()}


def _table(cls: type[Declared], members: list[Declared]) -> pa.Table:
    columns = {}
    for name in members[0].__dict__:
        column = cls.__declaration__.schema.by_name.get(name)
        values = [obj.__dict__[name] for obj in members]
        if column is not None and column.scalar is None:
            values = [None if value is None else encode_json(value) for value in values]
        columns[name] = pa.array(values, pa.string() if column is None else column.arrow_type)
    return pa.table(columns)


def unlike_the_reference(store: StoreUnderTest) -> list[str]:
    root = store.session().query()
    return [
        question.name
        for question in QUESTIONS
        if not are_close(make_plain(question.ask(root)), make_plain(question.answer()), 0.0)
    ]


@pytest.mark.parametrize("engine", engines("s3/v2 in a directory"))
def test_a_history_that_pipelines_wrote_gives_every_answer(spark, empty):
    for number, state in enumerate(history(), 1):
        pipeline = Pipeline(spark, empty.target)
        for cls, rows in frames(spark, state).items():
            pipeline.load(rows, into=cls)
        report = pipeline.commit()
        assert report.commit_id == number
        assert sum(counts.unchanged for counts in report.types.values()) == (1 if number == 3 else 0)
    assert unlike_the_reference(empty) == []


@pytest.mark.parametrize("engine", engines())
def test_a_history_that_writes_wrote_ends_in_the_same_state(spark, empty):
    """A write is a commit of one type, so that the numbers of commits differ and the states do not."""
    for state in history():
        for cls, rows in frames(spark, state).items():
            write(rows, empty, cls, models=f"{cls.__module__}:{cls.__name__}")
    latest = [question for question in QUESTIONS if question.name.endswith("(latest)")]
    reader = empty.session().query()
    wrong = [q.name for q in latest if not are_close(without_commits(q.ask(reader)), without_commits(q.answer()), 0.0)]
    assert wrong == []


def write(rows, store: StoreUnderTest, cls: type[Declared], **options: str) -> None:
    frame = rows.write.format("ontologia").options(type=cls.__name__, kind=cls.__declaration__.ref.kind, **options)
    frame.mode("append").save(store.target)


def without_commits(answer: Any) -> Any:
    """An answer as plain data that does not tell which commit wrote it."""
    from ontologia.model import Meta

    def bare(value: Any) -> Any:
        if isinstance(value, Meta):
            return None
        if isinstance(value, (list, tuple)):
            return type(value)(bare(item) for item in value)
        return {key: bare(item) for key, item in value.items()} if isinstance(value, dict) else value

    return bare(make_plain(answer))


def cases_of(test: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The pairs of states that a test of the suite goes through, one by one; a load takes them all at once."""
    (cases,) = (mark.args[1] for mark in test.pytestmark if mark.name == "parametrize")
    return cases


EQUAL = cases_of(WriteConformance.test_equal_by_value_is_unchanged)
DIFFERENT = cases_of(WriteConformance.test_different_by_value_is_a_new_version)


def boxes(spark, place: int):
    made = [Box(id=str(number), **case[place]) for number, case in enumerate([*EQUAL, *DIFFERENT])]
    return frames(spark, made)[Box], {box.id: box for box in made}


@pytest.mark.parametrize("engine", engines("sqlite/v2", "s3/v2 in a directory"))
def test_the_delta_rule_decides_what_a_pipeline_writes(spark, empty):
    before, _ = boxes(spark, 0)
    after, expected = boxes(spark, 1)
    assert Pipeline(spark, empty.target).load(before, into=Box).commit().commit_id == 1
    report = Pipeline(spark, empty.target).load(after, into=Box).commit().types["Box"]
    counts = (report.updated, report.unchanged)
    assert counts == (len(DIFFERENT), len(EQUAL))
    written = empty.session(Box).query().entities(Box).history_since(1).collect()
    assert plain_values(written) == plain_values([expected[box.id] for box in written])
    assert len(written) == len(DIFFERENT)


@pytest.mark.slow  # on a folder, test_pipeline has the same
@pytest.mark.parametrize("engine", engines("sqlite/v2"))
def test_a_conflict_aborts_is_skipped_or_updates_as_asked(spark, empty):
    commit(empty.session(Box), Box(id="a", size=1))
    rows = frames(spark, [Box(id="a", size=2), Box(id="b")])[Box]

    def stored() -> dict[str, float | None]:
        return {box.id: box.size for box in empty.session(Box).query().entities(Box).collect()}

    with pytest.raises(ValidationError, match="entity Box 'a' exists with other values"):
        Pipeline(spark, empty.target, on_conflict="abort").load(rows, into=Box).commit()
    with pytest.raises(PySparkException, match="entity Box 'a' exists with other values"):
        write(rows, empty, Box, onConflict="abort")
    assert stored() == {"a": 1}
    assert Pipeline(spark, empty.target, on_conflict="skip").load(rows, into=Box).commit().commit_id == 2
    assert stored() == {"a": 1, "b": None}
    write(rows, empty, Box, onConflict="upsert")
    assert stored() == {"a": 2, "b": None}
