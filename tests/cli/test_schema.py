"""`onto verify` and `onto schema`: code against store, history, and dropping types."""

import json

import pytest
import yaml

# --- verify ---


def test_code_that_agrees_is_fine(onto, shop):
    answer = onto("verify", *shop.flags, "--models", "myapp.models", "--json")
    assert answer.code == 0
    assert {item["state"] for item in answer.valid("verify")["types"]} == {"same"}


def test_code_that_differs_exits_with_3_and_shows_the_difference(onto, shop):
    answer = onto("verify", *shop.flags, "--models", "myapp.next_models", "--json")
    assert answer.code == 3
    diff = answer.valid("verify")["types"][0]["diff"]
    assert (diff["added"], diff["removed"]) == (["level", "email"], ["tier"])


def test_the_difference_is_drawn_field_by_field(onto, shop):
    answer = onto("verify", *shop.flags, "--models", "myapp.next_models", "--diff")
    assert answer.code == 3
    for line in ("  + level: int", "  + email: str | None", "  - tier: str"):
        assert line in answer.out.splitlines()


def test_types_of_one_side_only_matter_when_strict(onto, shop, tmp_path):
    (tmp_path / "one.py").write_text("from myapp.models import Customer\n")
    arguments = ("verify", *shop.flags, "--models", "./one.py", "--json")
    assert onto(*arguments).code == 0
    answer = onto(*arguments, "--strict")
    assert answer.code == 3
    assert {item["name"]: item["state"] for item in answer.json["types"]}["Product"] == "not_in_code"


def test_types_that_are_not_stored_yet_matter_when_strict(onto, empty):
    assert onto("verify", *empty.flags, "--models", "myapp.models").code == 0
    assert onto("verify", *empty.flags, "--models", "myapp.models", "--strict").code == 3


# --- export ---


def test_schemas_are_exported_from_code_without_a_store(onto):
    answer = onto("schema", "export", "--models", "myapp.models")
    assert [item["name"] for item in answer.valid("schema-export")["types"]] == ["Customer", "Product", "Subscription"]


def test_schemas_are_exported_from_the_store(onto, shop, models):
    answer = onto("schema", "export", *shop.flags, "--with-hash")
    stored = {item["name"]: item["fingerprint"] for item in answer.valid("schema-export")["types"]}
    assert stored["Customer"] == models.Customer.__declaration__.schema.fingerprint


def test_yaml_says_the_same_as_json(onto, shop):
    arguments = ("schema", "export", *shop.flags, "--kind", "entity", "--type", "Product")
    assert yaml.safe_load(onto(*arguments, "--format", "yaml").out) == json.loads(onto(*arguments).out)


def test_one_version_is_exported(onto, shop):
    arguments = ("schema", "export", *shop.flags, "--kind", "relation", "--type", "Subscription", "--version")
    (found,) = onto(*arguments, "1").valid("schema-export")["types"]
    assert (found["left"], found["right"], found["instance_key"]) == ("Customer", "Product", "seat")
    onto(*arguments, "2").failed(1, "no schema version 2")


@pytest.mark.parametrize(
    ("more", "code", "word"),
    [
        (("--models", "myapp.models", "--type", "Customer"), 2, "one or the other"),
        (("--version", "1"), 2, "--kind and --type"),
        (("--type", "Nobody"), 1, "Customer, Product"),
        (("--format", "yaml", "--json"), 2, "contradict"),
        (("--format", "xml"), 2, "--format"),
    ],
)
def test_an_export_that_makes_no_sense(onto, filled, more, code, word):
    onto("schema", "export", *filled("sqlite-v2").flags, *more).failed(code, word)


# --- history ---


def test_history_lists_versions_and_shows_what_changed_in_one(onto, shop):
    migrate = ("migrate", *shop.flags, "--models", "myapp.next_models", "--upgraders", "myapp.migrations")
    assert onto(*migrate, "--apply", "--force").code == 0
    listed = onto("schema", "history", *shop.flags, "--type", "Customer", "--json").valid("schema-history")
    versions = [(item["schema_version_id"], item["is_current"]) for item in listed["versions"]]
    assert versions == [(1, False), (2, True)]
    detail = ("schema", "history", *shop.flags, "--kind", "entity", "--type", "Customer", "--version", "2")
    assert onto(*detail, "--json").valid("schema-version")["changes"]["removed"] == ["tier"]
    assert "  - tier: str" in onto(*detail).out.splitlines()


def test_history_of_an_unknown_type_or_version(onto, filled):
    flags = filled("sqlite-v2").flags
    onto("schema", "history", *flags, "--type", "Nobody").failed(1, "Nobody")
    onto("schema", "history", *flags, "--version", "1").failed(2, "--kind and --type")
    arguments = ("--kind", "entity", "--type", "Customer", "--version", "9")
    onto("schema", "history", *flags, *arguments).failed(1, "no schema version 9")


# --- drop ---


def drop(onto, target, *more):
    return onto("schema", "drop", *target.flags, *more)


def test_a_drop_is_a_preview_with_a_token_that_applies_it(onto, shop):
    preview = drop(onto, shop, "--drop-relation", "Subscription", "--json").valid("schema-drop")
    assert (preview["applied"], preview["types"][0]["rows"]) == (False, 3)
    assert onto("info", *shop.flags, "--json").json["head"] == 2
    answer = drop(onto, shop, "--drop-relation", "Subscription", "--apply", "--token", preview["token"], "--json")
    assert answer.valid("schema-drop")["commit_id"] == 3
    assert shop.where in answer.err
    assert onto("info", *shop.flags, "--json").json["dropped"] == [{"kind": "relation", "name": "Subscription"}]


def test_a_dropped_type_reads_as_empty_with_a_note_as_in_python(onto, shop):
    token = drop(onto, shop, "Product", "--cascade-relations", "--json").json["token"]
    assert drop(onto, shop, "Product", "--cascade-relations", "--apply", "--token", token).code == 0
    for question in (
        ("entities", "Product"),
        ("entities", "Product", "--as-of", "1", "--filter", "$.price", "gt", "0", "--order-by", "price"),
        ("entities", "Product", "--with-history", "--across-versions"),
        ("relations", "Subscription"),
    ):
        answer = onto("query", *question, *shop.flags, "--json")
        assert (answer.code, answer.valid("query-rows")["rows"]) == (0, [])
        assert {"reason": "type_dropped"} in answer.json["diagnostics"]
        assert "was dropped: it reads as empty" in answer.err
    paths = onto("query", "traverse", "Customer", "--via", "Subscription", *shop.flags, "--json")
    assert (paths.code, paths.json["paths"]) == (0, [])
    onto("query", "entities", "Product", "--filter", "$.nothing", "eq", "1", *shop.flags).failed(1, "nothing")


def test_a_drop_that_leaves_relations_without_ends_is_refused(onto, shop):
    drop(onto, shop, "Product").failed(7, "Subscription")


def test_relations_go_with_their_ends_when_cascading(onto, shop):
    facts = drop(onto, shop, "Product", "--cascade-relations", "--json").json
    assert [item["name"] for item in facts["types"]] == ["Product", "Subscription"]


def test_a_stale_token_is_refused(onto, shop, models):
    token = drop(onto, shop, "--drop-relation", "Subscription", "--json").json["token"]
    with shop.ontology(models) as ontology, ontology.session() as session:
        session.ensure(models.Customer(id="new", name="New"))
    drop(onto, shop, "--drop-relation", "Subscription", "--apply", "--token", token).failed(7, "token")
    assert onto("info", *shop.flags, "--json").json["head"] == 3


def test_purging_is_another_plan_with_another_token(onto, filled):
    target = filled("sqlite-v2")
    arguments = ("--drop-relation", "Subscription")
    kept = drop(onto, target, *arguments, "--json").json["token"]
    purge = drop(onto, target, *arguments, "--purge-history", "--json").json
    assert purge["purge_history"]
    assert purge["token"] != kept
    drop(onto, target, *arguments, "--purge-history", "--apply", "--token", kept).failed(7, "token")
    assert drop(onto, target, *arguments, "--purge-history", "--apply", "--token", purge["token"]).code == 0


@pytest.mark.parametrize(
    ("more", "code", "word"),
    [
        ((), 2, "name a type"),
        (("Customer", "--apply"), 2, "--token"),
        (("Customer", "--token", "x"), 2, "--apply"),
        (("Nobody",), 1, "Nobody"),
        (("--drop-relation", "Subscription", "--cascade-relations"), 2, "--cascade-relations"),
        (("Product", "--drop-relation", "Subscription", "--cascade-relations"), 2, "--cascade-relations"),
        (("--drop-relation", "Nothing"), 1, "Nothing"),
    ],
)
def test_a_drop_that_makes_no_sense(onto, filled, more, code, word):
    drop(onto, filled("sqlite-v2"), *more).failed(code, word)
