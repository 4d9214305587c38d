"""Questions by type name: the same answers as the Python API, on every engine."""

import pytest

QUERY = ("query", "entities", "Customer")


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (("$.tier", "eq", '"Gold"'), ["c1", "c3"]),
        (("$.tier", "ne", '"Gold"'), ["c0", "c2", "c4"]),
        (("$.age", "gt", "23"), ["c1", "c4"]),
        (("$.age", "gte", "23"), ["c1", "c3", "c4"]),
        (("$.age", "lt", "23"), ["c0"]),
        (("$.age", "lte", "23"), ["c0", "c3"]),
        (("$.age", "in", "[20, 77]"), ["c0", "c1"]),
        (("$.age", "in", "[]"), []),
        (("$.age", "is_null", "true"), ["c2"]),
        (("$.age", "is_null", "false"), ["c0", "c1", "c3", "c4"]),
        (("$.active", "eq", "false"), ["c3"]),
        (("$.active", "ne", "false"), ["c0", "c1", "c2", "c4"]),
        (("$.address.city", "eq", '"Oslo"'), ["c3", "c4"]),
        (("$.address.zip", "gte", "2"), ["c2", "c3", "c4"]),
        (("$.joined", "eq", '"2026-01-01T02:30:00+00:00"'), ["c2"]),
        (("$.joined", "eq", '"2026-01-01T03:30:00+01:00"'), ["c2"]),
        (("$.photo", "eq", '"00ff03"'), ["c3"]),
        (("$.id", "eq", '"c4"'), ["c4"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
@pytest.mark.thorough
def test_a_filter_finds_what_it_says(onto, shop, question, expected):
    answer = onto(*QUERY, *shop.flags, "--filter", *question, "--json")
    answer.valid("query-rows")
    assert answer.keys == expected


def test_many_filters_must_all_pass(onto, shop):
    filters = ("--filter", "$.tier", "eq", '"Gold"', "--filter", "$.age", "gt", "50")
    assert onto(*QUERY, *shop.flags, *filters, "--json").keys == ["c1"]


def test_rows_are_what_the_python_api_collects(onto, shop, models):
    answer = onto(*QUERY, *shop.flags, "--models", "myapp.models", "--json")
    with shop.ontology(models) as ontology:
        collected = ontology.query().entities(models.Customer).collect()
    assert [row["name"] for row in answer.rows] == [customer.name for customer in collected]
    assert [row["commit_id"] for row in answer.json["rows"]] == [customer.meta().commit_id for customer in collected]


def test_values_are_in_the_json_forms_of_the_store(onto, shop):
    (row,) = onto(*QUERY, *shop.flags, "--filter", "$.id", "eq", '"c4"', "--json").rows
    assert row["joined"] == "2026-01-01T04:30:00.000000+00:00"
    assert row["photo"] == "00ff04"
    assert row["score"] == "NaN"
    assert row["address"] == {"city": "Oslo", "zip": 4}


def test_order_limit_and_offset(onto, shop):
    answer = onto(*QUERY, *shop.flags, "--order-by", "age:desc", "--limit", "2", "--offset", "1", "--json")
    assert answer.keys == ["c4", "c3"]


def test_as_of_a_commit(onto, shop):
    (row,) = onto(*QUERY, *shop.flags, "--as-of", "1", "--filter", "$.id", "eq", '"c1"', "--json").rows
    assert row["age"] == 21


def test_with_history_gives_every_version(onto, shop):
    answer = onto(*QUERY, *shop.flags, "--with-history", "--filter", "$.id", "eq", '"c1"', "--json")
    assert [(row["commit_id"], row["fields"]["age"]) for row in answer.json["rows"]] == [(1, 21), (2, 77)]


def test_history_since_a_commit(onto, shop):
    assert onto(*QUERY, *shop.flags, "--history-since", "1", "--json").keys == ["c1"]


def test_relations_filter_on_their_ends(onto, shop):
    filters = ("--filter", "$.left.tier", "eq", '"Gold"', "--filter", "$.right.sku", "gt", "1")
    answer = onto("query", "relations", "Subscription", *shop.flags, *filters, "--json")
    (row,) = answer.valid("query-rows")["rows"]
    assert (row["left_key"], row["right_key"], row["instance_key"]) == ("c1", "10", "b")


def test_relations_filter_on_their_keys(onto, shop):
    answer = onto("query", "relations", "Subscription", *shop.flags, "--filter", "$.seat", "eq", '"b"', "--json")
    assert [row["right_key"] for row in answer.json["rows"]] == ["10"]


def test_traverse_gives_paths(onto, shop):
    answer = onto("query", "traverse", "Customer", "--via", "Subscription", *shop.flags, "--json")
    paths = answer.valid("query-paths")["paths"]
    found = [(path["source"]["key"], path["steps"][0]["relation"]["instance_key"]) for path in paths]
    assert found == [("c1", "a"), ("c1", "b"), ("c2", "a")]


def test_traverse_follows_relations_in_both_directions(onto, shop):
    via = ("--via", "Subscription", "--via", "Subscription")
    answer = onto("query", "traverse", "Product", *via, *shop.flags, "--filter", "$.sku", "eq", "1", "--json")
    assert [path["steps"][1]["entity"]["key"] for path in answer.json["paths"]] == ["1", "10"]


def test_a_pipe_gets_aligned_text_without_colour(onto, shop):
    out = onto(*QUERY, *shop.flags, "--order-by", "id", "--limit", "2").out
    assert "\x1b" not in out
    assert out.splitlines()[0].split()[:3] == ["ID", "NAME", "TIER"]
    assert r"\n" in out.splitlines()[1]
    assert out.splitlines()[-1] == "2 rows"


@pytest.mark.parametrize("name", ["sqlite-v2", "s3-v2"])
def test_a_declared_type_without_rows_is_empty(onto, initialized, name):
    answer = onto(*QUERY, *initialized(name).flags, "--models", "myapp.models", "--json")
    assert (answer.code, answer.json["count"]) == (0, 0)


# --- mistakes ---


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        ((*QUERY, "--filter", "$.tier", "eq", "Gold"), 2, "not JSON"),
        ((*QUERY, "--filter", "tier", "eq", '"Gold"'), 2, "starts with $."),
        ((*QUERY, "--filter", "$.tier", "like", '"G"'), 2, "eq ne gt"),
        ((*QUERY, "--filter", "$.tier", "eq", "1"), 2, "cannot be compared"),
        ((*QUERY, "--filter", "$.tier", "eq", "null"), 2, "is_null"),
        ((*QUERY, "--filter", "$.tier", "is_null", "1"), 2, "true or false"),
        ((*QUERY, "--filter", "$.active", "gt", "true"), 2, "eq or ne"),
        ((*QUERY, "--filter", "$.age", "in", "3"), 2, "list"),
        ((*QUERY, "--filter", "$.joined", "gt", '"yesterday"'), 2, "yesterday"),
        ((*QUERY, "--filter", "$.tier.x", "eq", "1"), 2, "no path into it"),
        ((*QUERY, "--filter", "$.address.a-b", "eq", "1"), 2, "identifier"),
        ((*QUERY, "--filter", "$.tier", "eq"), 2, "three words"),
        ((*QUERY, "--filter", "$.age", "is_null", "--json"), 2, "three words"),
        ((*QUERY, "--filter=$.age eq 1"), 2, "three words"),
        ((*QUERY, "--filter", "$.tier", "eq", "[" * 5_000 + "]" * 5_000), 2, "nested too deeply"),
        ((*QUERY, "--filter", "$.nothing", "eq", "1"), 1, "no field 'nothing'"),
        ((*QUERY, "--order-by", "nothing"), 1, "no field 'nothing'"),
        ((*QUERY, "--order-by", "age:down"), 2, "FIELD:desc"),
        ((*QUERY, "--limit", "-1"), 2, "--limit"),
        ((*QUERY, "--as-of", "x"), 2, "takes a commit or a time such as 2026-01-31T12:00, not 'x'"),
        ((*QUERY, "--as-of=-1"), 2, "takes a commit or a time"),
        ((*QUERY, "--as-of", "2026-13-01"), 2, "takes a commit or a time"),
        ((*QUERY, "--as-of", "1", "--with-history"), 2, "exclude"),
        ((*QUERY, "--engine", "abacus"), 2, "--engine"),
        (("query", "entities", "Nobody"), 1, "Customer, Product"),
        (("query", "entities", "Subscription"), 1, "not in this store"),
        (("query", "relations", "Customer"), 1, "Subscription"),
        (("query", "relations", "Subscription", "--filter", "$.left.x", "eq", "1"), 1, "no field 'x'"),
        (("query", "relations", "Subscription", "--order-by", "left.tier"), 2, "itself"),
        (("query", "traverse", "Customer"), 2, "--via"),
        (("query", "traverse", "Customer", "--via", "Nothing"), 1, "Subscription"),
        (("query", "entities"), 2, "TYPE"),
        (("query", "everything"), 2, "everything"),
    ],
    ids=lambda value: " ".join(value[2:]) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_line_with_the_code_of_its_kind(onto, filled, arguments, code, word):
    onto(*arguments, *filled("sqlite-v2").flags).failed(code, word)


def test_a_relation_that_does_not_touch_the_type_is_named(onto, filled, tmp_path):
    target = filled("sqlite-v2")
    (tmp_path / "more.py").write_text(
        "from ontologia import Entity, Field, Relation\n"
        "class Shelf(Entity):\n    id: Field[str] = Field(primary_key=True)\n"
        "class Beside(Relation[Shelf, Shelf]): ...\n"
    )
    answer = onto("query", "traverse", "Customer", "--via", "Beside", "--models", "./more.py", *target.flags)
    answer.failed(2, "does not touch Customer")


def test_classes_that_differ_from_the_store_are_a_mismatch(onto, shop):
    onto(*QUERY, *shop.flags, "--models", "myapp.next_models").failed(3, "tier")


def test_a_time_stands_for_the_last_commit_made_by_then(onto, shop):
    moments = {entry["id"]: entry["created_at"] for entry in onto("commits", *shop.flags, "--json").json["commits"]}
    first, last = moments[min(moments)], moments[max(moments)]
    newest = onto(*QUERY, *shop.flags, "--json").rows
    assert onto(*QUERY, *shop.flags, "--as-of", last, "--json").rows == newest
    assert (
        onto(*QUERY, *shop.flags, "--as-of", first, "--json").rows
        == onto(
            *QUERY, *shop.flags, "--as-of", str(max(commit for commit in moments if moments[commit] <= first)), "--json"
        ).rows
    )
    assert onto(*QUERY, *shop.flags, "--as-of", "1999-12-31", "--json").rows == []
