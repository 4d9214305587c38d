"""Any identifier may name a type or a field, and no value, key or name reaches SQL as anything but itself."""

import keyword
import sqlite3

import pytest

from ontologia import Entity, Field, Ontology, Relation

KEYWORDS = ["select", "table", "order", "group", "where", "index", "values", "commit", "transaction", "null", "exists"]
UNUSUAL = ["größe", "名前", "имя", "_x", "__private", "x_", "Z" * 100, "ſ", "ﬁ", "µ"]
SYSTEM = [
    "entity_key",
    "commit_id",
    "schema_version_id",
    "fields_json",
    "entity_type",
    "left_key",
    "instance_key",
    "rowid",
    "oid",
    "_rowid_",
    "superseded_by",
]
OWN = [
    "meta",
    "model_dump",
    "self",
    "values",
    "name",
    "keys",
    "t",
    "s",
    "n",
    "c0",
    "window",
    "limit",
    "touched_keys",
    "operation",
]
INJECTIONS = [
    "x'; DROP TABLE commits; --",
    'x"; DROP TABLE commits; --',
    "%",
    "_",
    "\\",
    "' OR '1'='1",
    ":p0",
    "?",
    "$1",
    "{}",
]


def entity(stored_name, *fields):
    body = {
        "__annotations__": {"key": Field[str], **dict.fromkeys(fields, Field[int])},
        "key": Field(primary_key=True),
        **{field: Field(default=0, index=True) for field in fields},
    }
    return type("Named", (Entity,), body, name=stored_name)


def commit(onto, *objects):
    with onto.session() as session:
        session.ensure(objects)


@pytest.fixture
def onto(path):
    with Ontology(path) as onto:
        yield onto


@pytest.mark.parametrize("name", KEYWORDS + UNUSUAL + SYSTEM + OWN)
def test_a_field_may_have_any_identifier_as_its_name(onto, name):
    assert name.isidentifier()
    assert not keyword.iskeyword(name)
    cls = entity("Thing", name)
    commit(onto, cls(key="a", **{name: 1}), cls(key="b", **{name: 2}))
    expression = cls.__declaration__.expression(name)
    found = onto.query().entities(cls).where(expression == 2).order_by(expression).collect()
    assert [(thing.key, thing.__dict__[name]) for thing in found] == [("b", 2)]


@pytest.mark.parametrize("name", KEYWORDS + UNUSUAL + SYSTEM + OWN)
def test_a_field_of_any_name_is_in_arrow_under_that_name(onto, name):
    cls = entity("Thing", name)
    commit(onto, cls(key="a", **{name: 1}))
    assert onto.query().entities(cls).to_arrow().to_pylist() == [{"key": "a", name: 1}]


def test_fields_that_differ_only_in_case_stay_apart(onto):
    cls = entity("Thing", "value", "Value", "VALUE")
    commit(onto, cls(key="a", value=1, Value=2, VALUE=3))
    assert onto.query().entities(cls).where(cls.Value == 2).to_arrow().to_pylist() == [
        {"key": "a", "value": 1, "Value": 2, "VALUE": 3}
    ]


def test_all_system_names_at_once_stay_apart(onto):
    cls = entity("Thing", *SYSTEM)
    values = {name: number for number, name in enumerate(SYSTEM)}
    commit(onto, cls(key="a", **values))
    assert onto.query().entities(cls).first().model_dump() == {"key": "a", **values}


@pytest.mark.parametrize(
    "name", KEYWORDS + UNUSUAL + INJECTIONS + ["with space", "storage_meta", "sqlite_master", "a.b"]
)
def test_a_type_may_have_any_text_as_its_name(onto, name):
    cls = entity(name, "value")
    commit(onto, cls(key="a", value=1))
    commit(onto, cls(key="a", value=2))
    assert (onto.query().entities(cls).where(cls.value == 2).count(), onto.list_commit_changes(2)) == (
        1,
        [{"kind": "entity", "type_name": name, "key": "a", "operation": "update_version"}],
    )


def test_types_that_differ_only_in_case_stay_apart(onto):
    lower, upper = entity("thing", "value"), entity("THING", "value")
    commit(onto, lower(key="a", value=1), upper(key="a", value=2))
    assert [onto.query().entities(cls).first().value for cls in (lower, upper)] == [1, 2]


def test_an_entity_and_a_relation_may_share_a_name(onto):
    cls = entity("Same", "value")

    class Same(Relation[cls, cls], name="Same"):
        weight: Field[int] = 0

    commit(onto, cls(key="a", value=1), Same(left_key="a", right_key="a", weight=5))
    assert (onto.query().entities(cls).count(), onto.query().relations(Same).first().weight) == (1, 5)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (entity("A_b", "c"), entity("A", "b_c")),
        (entity("Order", "value"), entity("order", "value")),
        (entity("A", "v1_b"), entity("A_v1", "b")),
    ],
)
def test_types_whose_names_run_together_each_have_their_index(onto, path, one, other):
    commit(onto, one(key="a"), other(key="a"))
    for cls in (one, other):
        field = list(cls.__entity_fields__)[1]
        plan = onto.query().entities(cls).where(cls.__declaration__.expression(field) == 1).explain()
        assert "USING INDEX index_" in plan


@pytest.mark.parametrize("text", INJECTIONS)
def test_a_key_is_only_a_key(onto, text):
    cls = entity("Thing", "value")
    commit(onto, cls(key=text, value=1), cls(key="other", value=2))
    assert [thing.key for thing in onto.query().entities(cls).where(cls.key == text).collect()] == [text]


@pytest.mark.parametrize("text", INJECTIONS)
@pytest.mark.parametrize("method", ["startswith", "endswith", "contains"])
def test_special_characters_match_themselves_and_nothing_else(onto, text, method):
    cls = entity("Thing", "value")
    commit(onto, cls(key=f"{text}", value=1), cls(key="plain text", value=2), cls(key="xx", value=3))
    found = onto.query().entities(cls).where(getattr(cls.key, method)(text)).collect()
    assert [thing.key for thing in found] == [text]


@pytest.mark.parametrize("text", INJECTIONS)
def test_the_tables_are_all_there_afterwards(onto, path, text):
    cls = entity(text, "value")
    commit(onto, cls(key=text, value=1))
    onto.query().entities(cls).where(cls.key.contains(text)).collect()
    onto.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert connection.execute("SELECT count(*) FROM commits").fetchone() == (1,)


@pytest.mark.parametrize("text", INJECTIONS)
def test_commit_metadata_is_only_text(onto, text):
    cls = entity("Thing", "value")
    session = onto.session()
    session.ensure(cls(key="a"))
    session.add_commit_meta(text, text)
    session.commit()
    assert onto.get_commit(1)["metadata"] == {text: text}
