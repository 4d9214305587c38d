"""`onto commits`: the log, and one commit's changes."""

import pytest


def test_the_log_is_newest_first(onto, shop):
    facts = onto("commits", *shop.flags, "--json").valid("commits")
    assert [commit["id"] for commit in facts["commits"]] == [2, 1]


def test_the_log_is_what_the_python_api_lists(onto, shop, models):
    with shop.ontology(models) as ontology:
        assert onto("commits", *shop.flags, "--json").json["commits"] == ontology.list_commits()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (("--last", "1"), [2]),
        (("--since", "1"), [2]),
        (("--since", "2"), []),
        (("--meta", "source=crm"), [2]),
        (("--meta", "source=erp"), []),
    ],
)
def test_the_log_can_be_narrowed(onto, shop, more, expected):
    assert [commit["id"] for commit in onto("commits", *shop.flags, *more, "--json").json["commits"]] == expected


def test_examine_gives_changes_with_fields_before_and_after(onto, shop):
    facts = onto("commits", "examine", "--id", "2", *shop.flags, "--json").valid("commit")
    assert facts["summary"] == [{"kind": "entity", "name": "Customer", "inserted": 0, "updated": 1, "removed": 0}]
    (change,) = facts["changes"]
    assert (change["key"], change["operation"]) == ("c1", "update_version")
    assert change["fields"]["age"] == {"before": 21, "after": 77}
    assert "tier" not in change["fields"]


def test_examine_lists_what_the_python_api_lists(onto, shop, models):
    found = onto("commits", "examine", "--id", "1", *shop.flags, "--json").valid("commit")["changes"]
    with shop.ontology(models) as ontology:
        expected = ontology.list_commit_changes(1)
    assert [{name: value for name, value in item.items() if name != "fields"} for item in found] == expected


def test_examine_is_drawn_as_a_diff(onto, shop):
    lines = onto("commits", "examine", "--id", "2", *shop.flags).out.splitlines()
    assert "~ Customer c1" in lines
    assert "  - age: 21" in lines
    assert "  + age: 77" in lines


def test_examine_shows_a_limited_number_of_changes(onto, shop):
    answer = onto("commits", "examine", "--id", "1", "--limit", "2", *shop.flags)
    assert "… and 9 more" in answer.out
    facts = onto("commits", "examine", "--id", "1", "--limit", "2", *shop.flags, "--json").json
    assert (facts["total_changes"], len(facts["changes"])) == (11, 2)


def test_examine_of_a_commit_before_a_migration_knows_its_changes_without_fields(onto, shop):
    more = ("--models", "myapp.next_models", "--upgraders", "myapp.migrations", "--apply", "--force")
    assert onto("migrate", *shop.flags, *more).code == 0
    (change,) = onto("commits", "examine", "--id", "2", *shop.flags, "--json").valid("commit")["changes"]
    assert (change["key"], change["fields"]) == ("c1", None)
    migration = onto("commits", "examine", "--id", "3", *shop.flags, "--json").valid("commit")["changes"]
    assert {item["fields"] for item in migration} == {None}


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("commits", "examine"), 2, "--id"),
        (("commits", "examine", "--id", "99"), 1, "the head is 2"),
        (("commits", "examine", "--id", "0"), 2, "--id"),
        (("commits", "examine", "--id", "two"), 2, "--id"),
        (("commits", "--last", "0"), 2, "--last"),
        (("commits", "--meta", "crm"), 2, "key=value"),
    ],
)
def test_a_mistake_is_one_line(onto, filled, arguments, code, word):
    onto(*arguments, *filled("sqlite-v2").flags).failed(code, word)
