"""Values that are nested too deeply: refused by name at every door, before anything is written."""

import json
from typing import Any

import pyarrow as pa
import pytest
from typing_extensions import TypedDict

from ontologia import Entity, Field, Ontology, ValidationError, import_data
from ontologia.model.values import MOST_LEVELS
from ontologia.runtime.intake.reports import TypeReport
from ontologia.runtime.loading.local import LocalPipeline


class Tree(TypedDict, total=False):
    kids: "list[Tree]"


class Note(Entity):
    id: Field[str] = Field(primary_key=True)
    content: Field[Any] = None
    tree: Field[Tree] = Field(default_factory=dict)


def lists(levels):
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value


def tree(levels):
    value = {}
    for _ in range(levels // 2):
        value = {"kids": [value]}
    return value


def inside_itself():
    value = []
    value.append({"again": value})
    return value


@pytest.fixture
def onto(path):
    with Ontology(path, entity_types=[Note]) as onto:
        yield onto


def ensure(onto, note):
    with onto.session() as session:
        session.ensure(note)


def test_a_value_as_deep_as_the_limit_comes_back_as_it_was(onto):
    note = Note(id="n", content=lists(MOST_LEVELS), tree=tree(MOST_LEVELS - 1))
    ensure(onto, note)
    assert onto.query().entities(Note).first() == note


def test_many_lists_side_by_side_are_not_deep(onto):
    ensure(onto, Note(id="n", content=[[] for _ in range(2 * MOST_LEVELS)]))
    assert onto.query().entities(Note).count() == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("content", lists(MOST_LEVELS + 1)),
        ("content", lists(600)),
        ("content", lists(5000)),
        ("content", inside_itself()),
        ("content", {1}),
        ("tree", tree(MOST_LEVELS + 10)),
    ],
    ids=["one too deep", "deep", "very deep", "inside itself", "a set", "tree"],
)
def test_a_value_that_no_reader_could_take_back_is_refused_by_name(onto, name, value):
    with pytest.raises(ValidationError, match=rf"entity Note\.{name}: "):
        ensure(onto, Note(id="n", **{name: value}))
    assert onto.repository.get_head_commit_id() == 0


def test_the_refusal_of_a_deep_value_says_the_limit(onto):
    with pytest.raises(ValidationError, match=f"at most {MOST_LEVELS} deep"):
        ensure(onto, Note(id="n", content=lists(600)))


def test_a_row_given_alone_is_refused_too(onto):
    ensure(onto, Note(id="n"))
    onto.repository.begin_transaction()
    onto.repository.insert_entity("Note", "m", {"id": "m", "content": lists(600)}, schema_version_id=1)
    onto.repository.create_commit()
    with pytest.raises(ValidationError, match=r"entity Note\.content: .*deep"):
        onto.repository.commit_transaction()


@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, 900, 3000])
def test_a_line_with_a_deep_value_is_refused_with_its_place(onto, tmp_path, levels):
    deep = "[" * levels + "]" * levels
    file = tmp_path / "deep.jsonl"
    file.write_text('{"kind":"entity","type":"Note","key":"q","fields":{"id":"q","content":' + deep + "}}\n")
    with pytest.raises(ValidationError, match=r"deep\.jsonl:1: .*at most 200 deep"):
        import_data(onto, file, dry_run=False)
    assert onto.query().entities(Note).count() == 0


@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, 900])
def test_a_row_of_a_load_with_a_deep_value_is_rejected(path, levels):
    texts = [json.dumps({"ok": 1}), "[" * levels + "]" * levels]
    table = pa.table({"id": ["a", "b"], "content": texts})
    report = LocalPipeline(str(path), on_invalid="quarantine").load(table, into=Note).commit()
    assert report.types["Note"] == TypeReport(read=2, inserted=1, rejected=1)


def test_a_question_with_a_deep_value_is_a_type_error_in_few_words(onto):
    for value in (lists(5000), inside_itself()):
        with pytest.raises(TypeError, match="cannot be compared") as refused:
            onto.query().entities(Note).where(Note.content == value)
        assert len(str(refused.value)) < 400
