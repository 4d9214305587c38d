"""`onto erase`: a preview, its token, and a report that says what was done."""


def test_an_identity_is_erased_with_the_token_of_its_preview(onto, filled):
    store = filled("sqlite-v2")
    words = ("erase", "Customer", "c1", "--reason", "article 17", *store.flags, "--json")
    onto(*words).failed(7, "Subscription", "with --cascade")
    preview = onto(*words, "--cascade").valid("erase")
    assert (preview["applied"], preview["rows"] > 1) == (False, True)
    onto(*words, "--cascade", "--apply").failed(2, "--apply needs --token")
    onto(*words, "--cascade", "--apply", "--token", "0" * 32).failed(7, "preview it again")
    report = onto(*words, "--cascade", "--apply", "--token", preview["token"]).valid("erase")
    assert (report["rows"], report["commit_id"], len(report["receipt"])) == (preview["rows"], 3, 32)
    answer = onto("query", "entities", "Customer", *store.flags, "--json")
    assert "c1" not in answer.keys


def test_a_preview_says_which_keys_it_did_not_find_and_gives_no_token_for_nothing(onto, filled):
    store = filled("sqlite-v2")
    words = ("--reason", "r", "--cascade", *store.flags)
    some = onto("erase", "Customer", "c1", "nobody", *words)
    assert "1 of 2 keys found" in some.out
    assert "token: " in some.out
    none = onto("erase", "Customer", "nobody", *words)
    assert "nothing would be erased" in none.out
    assert "token" not in none.out + none.err


def test_a_type_that_is_not_there_is_named(onto, filled):
    store = filled("sqlite-v2")
    onto("erase", "Nobody", "x", "--reason", "r", *store.flags).failed(1, "Nobody is not in this store")


def test_a_relation_is_named_as_it_is_for_remove(onto, filled):
    store = filled("sqlite-v2")
    words = ("--reason", "r", *store.flags, "--json")
    by_slashes = onto("erase", "Subscription", "c1/10/b", *words).valid("erase")
    assert by_slashes["rows"] > 0
    assert onto("erase", "Subscription", '["c1", "10", "b"]', *words).valid("erase") == by_slashes
    onto("erase", "Subscription", "[c1", *words).failed(2, "not a JSON list")
