"""`onto remove`: previewed, and the same removal as in Python."""

import pytest

SUBSCRIPTIONS = ("query", "relations", "Subscription")


@pytest.fixture(params=["sqlite-v2", "s3-v2"])
def shop(request, filled):
    return filled(request.param)


def test_a_preview_counts_and_writes_nothing(onto, shop):
    answer = onto("remove", "Customer", "c1", "c9", "--cascade", *shop.flags, "--json")
    assert answer.valid("remove") == {
        "applied": False,
        "commit_id": None,
        "types": [
            {"kind": "entity", "name": "Customer", "rows": 1},
            {"kind": "relation", "name": "Subscription", "rows": 2},
        ],
        "missing": ["c9"],
    }
    assert len(onto("commits", *shop.flags, "--json").json["commits"]) == 2


@pytest.mark.thorough
def test_what_is_removed_is_gone_and_its_relations_dangle_or_go(onto, shop):
    assert (
        onto("remove", "Customer", "c1", *shop.flags, "--apply", "--meta", "why=left", "--json").valid("remove")[
            "commit_id"
        ]
        == 3
    )
    assert onto("query", "entities", "Customer", *shop.flags, "--json").keys == ["c0", "c2", "c3", "c4"]
    missing = onto(*SUBSCRIPTIONS, *shop.flags, "--filter", "$.left", "is_missing", "true", "--json")
    assert [row["instance_key"] for row in missing.valid("query-rows")["rows"]] == ["a", "b"]
    versions = onto("query", "entities", "Customer", *shop.flags, "--history-since", "2", "--json").valid("query-rows")
    assert [(row["key"], row["removed"]) for row in versions["rows"]] == [("c1", True)]
    examined = onto("commits", "examine", "--id", "3", *shop.flags, "--json").valid("commit")
    assert (examined["summary"][0]["removed"], examined["changes"][0]["operation"]) == (1, "remove")
    assert examined["changes"][0]["fields"]["age"] == {"before": 77, "after": None}
    onto("remove", "Customer", "c1", "--cascade", *shop.flags, "--apply")
    assert onto(*SUBSCRIPTIONS, *shop.flags, "--json").json["count"] == 1


def test_a_relation_is_named_by_its_ends_and_instance_key(onto, shop):
    onto("remove", "Subscription", "c1/1/a", '["c2", "2", "a"]', *shop.flags, "--apply")
    rows = onto(*SUBSCRIPTIONS, *shop.flags, "--json").json["rows"]
    assert [(row["left_key"], row["instance_key"]) for row in rows] == [("c1", "b")]
    onto("remove", "Subscription", "c1/1", *shop.flags).failed(2, "left_key/right_key/seat")
    onto("remove", "Subscription", "[1", *shop.flags).failed(2, "not a JSON list")
    onto("remove", "Subscription", "c1/10/b", "--cascade", *shop.flags).failed(2, "--cascade is for entities")


def test_an_engine_that_keeps_every_row_refuses(onto, filled):
    shop = filled("sqlite-v1")
    onto("remove", "Customer", "c1", *shop.flags, "--apply").failed(1, "engine v1 keeps every row")
    assert len(onto("commits", *shop.flags, "--json").json["commits"]) == 2
