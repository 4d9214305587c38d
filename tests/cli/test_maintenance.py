"""Care of object storage: compaction, indices, vacuum; and that SQLite says it needs none."""

import json
import os
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

OBJECTS = ["s3-v1", "s3-v2", pytest.param("server-v2", marks=pytest.mark.s3)]


@pytest.fixture(params=OBJECTS)
def shop(request, filled):
    return filled(request.param)


@pytest.fixture(params=["s3-v1", "s3-v2"])
def folder(request, filled):
    """A store whose files a test can reach."""
    target = filled(request.param)
    target.root = Path(urlsplit(target.where).path)
    return target


def all_rows(onto, target):
    answers = [
        onto("query", kind, name, *target.flags, *window, "--json").out
        for kind, name in (("entities", "Customer"), ("relations", "Subscription"))
        for window in ((), ("--with-history",), ("--as-of", "1"), ("--history-since", "1"))
    ]
    return [json.loads(text)["rows"] for text in answers]


# --- compact ---


def test_compact_is_a_preview_that_changes_nothing(onto, shop):
    answer = onto("compact", *shop.flags, "--json")
    (item,) = answer.valid("compact")["types"]
    assert (item["name"], item["files"]) == ("Customer", 2)
    assert onto("info", *shop.flags, "--json").json["types"][0]["files"] == 2


@pytest.mark.thorough
def test_compact_merges_files_and_answers_stay_the_same(onto, shop):
    before = all_rows(onto, shop)
    answer = onto("compact", *shop.flags, "--apply", "--json")
    assert answer.valid("compact")["applied"]
    assert shop.where in answer.err
    assert all_rows(onto, shop) == before
    assert onto("info", *shop.flags, "--json").json["types"][0]["files"] == 1
    assert onto("compact", *shop.flags, "--json").json["types"] == []


def test_compact_takes_one_type(onto, shop):
    assert onto("compact", *shop.flags, "--type", "Product", "--json").json["types"] == []
    onto("compact", *shop.flags, "--type", "Nobody").failed(1, "Nobody")


# --- indices ---


def hide_newest_commit(target):
    """Set the index of customers back, as a writer that died after its swap would leave it."""
    path = target.root / "meta" / "indices" / "entities" / "Customer.json"
    index = json.loads(path.read_text())
    index["max_indexed_commit"] = 1
    index["entries"] = [entry for entry in index["entries"] if entry["max_commit_id"] <= 1]
    path.write_text(json.dumps(index))


def test_healthy_indices(onto, shop):
    answer = onto("index", "verify", *shop.flags, "--json")
    assert answer.code == 0
    assert answer.valid("index-verify")["healthy"]
    assert onto("index", "repair", *shop.flags, "--json").valid("index-repair")["repaired"] == []


def test_a_lagging_index_exits_with_3(onto, folder):
    hide_newest_commit(folder)
    answer = onto("index", "verify", *folder.flags, "--json")
    assert answer.code == 3
    customers = answer.valid("index-verify")["types"][0]
    assert (customers["name"], customers["lagging"]) == ("Customer", True)
    assert "warning" in answer.err


def test_info_and_queries_warn_of_a_lagging_index_and_stay_right(onto, folder):
    hide_newest_commit(folder)
    info = onto("info", *folder.flags, "--json")
    assert "index repair" in info.err
    assert not info.valid("info")["index"]["healthy"]
    answer = onto("query", "entities", "Customer", *folder.flags, "--filter", "$.id", "eq", '"c1"', "--json")
    assert answer.rows[0]["name"] == "Bob"
    assert "index repair" in answer.err


def test_repair_is_a_preview_unless_applied_and_then_done_once(onto, folder):
    hide_newest_commit(folder)
    preview = onto("index", "repair", *folder.flags, "--json").valid("index-repair")
    assert (preview["applied"], [item["name"] for item in preview["repaired"]]) == (False, ["Customer"])
    assert onto("index", "verify", *folder.flags).code == 3
    answer = onto("index", "repair", *folder.flags, "--apply", "--json")
    assert answer.valid("index-repair")["applied"]
    assert folder.where in answer.err
    assert onto("index", "verify", *folder.flags).code == 0
    assert onto("index", "repair", *folder.flags, "--apply", "--json").json["repaired"] == []
    assert onto("info", *folder.flags, "--json").json["head"] == 2


# --- vacuum ---


@pytest.mark.thorough
def test_vacuum_previews_and_deletes_orphans_and_nothing_else(onto, folder):
    orphan = folder.root / "commits" / "3-0a0a0a0a" / "manifest.json"
    orphan.parent.mkdir(parents=True)
    orphan.write_text("{}")
    long_ago = time.time() - 30 * 86_400
    for path in (orphan, orphan.parent):
        os.utime(path, (long_ago, long_ago))
    before = all_rows(onto, folder)
    preview = onto("vacuum", *folder.flags, "--json").valid("vacuum")
    assert [item["key"] for item in preview["objects"]] == ["commits/3-0a0a0a0a/manifest.json"]
    assert orphan.exists()
    answer = onto("vacuum", *folder.flags, "--apply", "--json")
    assert answer.valid("vacuum")["applied"]
    assert folder.where in answer.err
    assert not orphan.exists()
    assert all_rows(onto, folder) == before


@pytest.mark.parametrize(("age", "seconds"), [("90s", 90), ("30m", 1_800), ("1.5h", 5_400), ("2w", 1_209_600)])
def test_an_age_is_a_number_and_a_unit(onto, filled, age, seconds):
    facts = onto("vacuum", *filled("s3-v2").flags, "--older-than", age, "--json").valid("vacuum")
    assert facts["older_than_s"] == seconds


@pytest.mark.parametrize("age", ["", "7", "d", "-1d", "a week"])
def test_an_age_that_is_none_is_a_usage_error(onto, filled, age):
    onto("vacuum", *filled("s3-v2").flags, "--older-than", age).failed(2, "--older-than")


# --- not for SQLite ---


@pytest.mark.parametrize("command", [("compact",), ("index", "verify"), ("index", "repair"), ("vacuum",)], ids=" ".join)
def test_sqlite_needs_no_such_care(onto, filled, command):
    onto(*command, *filled("sqlite-v2").flags).failed(1, "object storage")
