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


def test_exports_are_sources_and_histories_are_imported_into_an_empty_place(onto, filled, models):
    source = filled("s3-v2")
    log = onto("commits", *source.flags, "--json").json
    assert onto("export", *source.flags, "--output", "all", "--with-history").code == 0
    assert onto("export", *source.flags, "--output", "now").code == 0
    copied = onto("copy", "all", "copy.db", "--with-history", "--json").valid("copy")
    assert (copied["engine"], copied["head"]) == ("sqlite/v2", 2)
    preview = onto("import", "--db", "back.db", "--input", "all", "--with-history")
    assert (Path("back.db").exists(), "to do it" in preview.err) == (False, True)
    assert onto("import", "--db", "back.db", "--input", "all", "--with-history", "--apply").code == 0
    assert all(onto("commits", "--db", name, "--json").json == log for name in ("copy.db", "back.db"))
    onto("copy", "all", "other.db").failed(2, "add --with-history")
    onto("copy", "all", "other.db", "--dry-run").failed(2, "add --with-history")
    assert not Path("other.db").exists()
    state = onto("copy", "now", "state.db", "--json").valid("copy")
    assert (state["head"], state["rows"]) == (1, onto("copy", "now", "b.db", "--dry-run", "--json").json["rows"])
    onto("copy", "now", "other.db", "--with-history").failed(1, "has a state")
    onto("import", "--db", "back.db", "--input", "all", "--with-history", "--apply").failed(
        1, "holds an ontology already"
    )
    onto("import", "--db", "x.db", "--input", "all", "--with-history", "--on-conflict", "skip").failed(2, "leave out")
    onto("export", *source.flags, "--output", "x", "--with-history", "--as-of", "1").failed(2, "leave out")
