"""`onto forget`: a preview, its token, and answers that say where history begins."""

import pytest


@pytest.mark.parametrize("kind", ["sqlite-v2", "s3-v2"])
def test_history_is_given_up_with_the_token_of_its_preview(onto, filled, kind):
    store = filled(kind)
    words = ("forget", "--before", "2", *store.flags, "--json")
    preview = onto(*words).valid("forget")
    assert (preview["applied"], preview["base_commit_id"], preview["rows"] > 0) == (False, 2, True)
    onto(*words, "--apply").failed(2, "--apply needs --token")
    onto(*words, "--token", "t").failed(2, "--token is for --apply")
    onto(*words, "--apply", "--token", "0" * 32).failed(7, "preview it again")
    report = onto(*words, "--apply", "--token", preview["token"]).valid("forget")
    assert (report["rows"], report["commit_id"]) == (preview["rows"], 3)
    assert ("onto vacuum" in (report["space_waits_for"] or "")) == (kind == "s3-v2")
    query = ("query", "entities", "Customer", *store.flags, "--json")
    onto(*query, "--as-of", "1").failed(1, "history begins at commit 2")
    onto(*query, "--as-of", "2").valid("query-rows")
    assert "history begins at commit 2" in onto(*query, "--with-history").err
    onto("commits", "examine", "--id", "2", *store.flags).failed(1, "was given up")
    onto("commits", "examine", "--id", "3", *store.flags)
    onto("info", *store.flags, "--json").valid("info")
    assert "begins at commit 2" in onto("info", *store.flags).out
    again = onto("forget", "--before", "2", *store.flags)
    assert ("begins at commit 2 already" in again.out, "--apply" in again.err) == (True, False)
    assert "token" not in again.out
    onto("check", *store.flags)


def test_a_point_is_a_commit_or_a_time_and_v1_refuses(onto, filled):
    store = filled("sqlite-v2")
    assert onto("forget", "--before", "2100-01-01", *store.flags, "--json").valid("forget")["base_commit_id"] == 2
    onto("forget", "--before", "soon", *store.flags).failed(2, "takes a commit or a time")
    onto("forget", "--before", "9", *store.flags).failed(1, "from 1 to the head, 2, not at 9")
    onto("forget", "--before", "1", *filled("s3-v1").flags).failed(1, "of engine v2 can forget")
