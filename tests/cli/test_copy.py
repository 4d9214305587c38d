"""`onto copy`: what it says, and what it refuses."""

from pathlib import Path


def test_a_store_is_copied_and_the_answer_says_up_to_where(onto, filled, models):
    source = filled("sqlite-v1")
    preview = onto("copy", source.where, "copy.db", "--with-history", "--dry-run", "--json").valid("copy")
    assert (preview["applied"], preview["head"], Path("copy.db").exists()) == (False, 2, False)
    answer = onto("copy", source.where, "copy.db", "--with-history", "--json")
    facts = answer.valid("copy")
    assert (facts["engine"], facts["head"], facts["applied"], facts["resumed_after"]) == ("sqlite/v2", 2, True, 0)
    assert "target: copy.db" in answer.err
    logs = [onto("commits", "--db", where, "--json").json for where in (source.where, "copy.db")]
    assert logs[0] == logs[1]


def test_a_store_becomes_v2_where_it_is(onto, filled):
    for name in ("sqlite-v1", "s3-v1"):
        source = filled(name, name)
        answer = onto("copy", source.where, "--in-place")
        assert answer.code == 0, answer.err
        assert "every commit compared" in answer.out
        assert onto("info", *source.flags, "--json").json["engine_version"] == "v2"
    assert "the files of v1 stay until onto vacuum" in answer.err


def test_what_makes_no_sense_is_refused_before_anything_is_opened(onto):
    onto("copy", "a.db", "b.db").failed(2, "add --with-history")
    onto("copy", "a.db", "--with-history").failed(2, "name a TARGET")
    onto("copy", "a.db", "b.db", "--in-place").failed(2, "name a TARGET")
    onto("copy", "a.db", "b.db", "--with-history").failed(5, "no ontology here to copy")
    assert not list(Path().iterdir())
