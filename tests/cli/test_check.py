"""Bit rot is seen: what is damaged, what that costs, and how a lost head comes back."""

import json

import pytest

ENGINES = ["s3-v1", "s3-v2"]


@pytest.fixture(params=ENGINES)
def store(request, filled, tmp_path):
    """The flags of a filled store, and its folder."""
    return filled(request.param).flags, tmp_path / "store"


def one(folder, pattern):
    """A file of the store that fits."""
    return sorted(folder.glob(pattern))[0]


def flip(file, place=None):
    """Turn one bit over."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 1
    file.write_bytes(data)


def check(onto, flags):
    answer = onto("check", *flags, "--json")
    return answer.code, answer.valid("check")


def test_a_store_that_is_well_is_said_to_be(onto, store):
    code, found = check(onto, store[0])
    assert (code, found["healthy"], found["head"], found["commits"], found["damages"]) == (0, True, 2, 2, [])
    assert found["files"] == 4
    assert "everything is as it was written" in onto("check", *store[0]).out


@pytest.mark.thorough
def test_every_flipped_bit_of_a_data_file_is_found(onto, store):
    flags, folder = store
    file = one(folder, "commits/1-*/**/*.parquet")
    plain = file.read_bytes()
    for place in range(0, len(plain), max(1, len(plain) // 25)):
        flip(file, place)
        code, found = check(onto, flags)
        assert (code, [damage["what"] for damage in found["damages"]]) == (5, ["file"])
        file.write_bytes(plain)
    assert check(onto, flags)[0] == 0


def test_a_missing_file_is_named_with_what_is_lost(onto, store):
    flags, folder = store
    file = one(folder, "commits/2-*/**/*.parquet")
    file.unlink()
    code, found = check(onto, flags)
    (damage,) = found["damages"]
    assert (code, damage["problem"], damage["key"]) == (5, "it is missing", str(file.relative_to(folder)))
    assert "what commit 2 wrote of entity Customer is lost" in damage["effect"]


def test_where_a_snapshot_has_the_rows_that_is_said(onto, store):
    flags, folder = store
    onto("compact", *flags, "--apply")
    one(folder, "commits/2-*/**/*.parquet").unlink()
    _, found = check(onto, flags)
    assert "a snapshot has its rows" in found["damages"][0]["effect"]
    assert onto("query", "entities", "Customer", *flags, "--json").json["count"] == 5


def test_a_flipped_bit_of_a_snapshot_is_found_and_what_helps_is_true(onto, store):
    flags, folder = store
    onto("compact", *flags, "--apply")
    file = one(folder, "snapshots/**/*.parquet")
    flip(file, 200)
    code, found = check(onto, flags)
    (damage,) = found["damages"]
    assert (code, damage["what"]) == (5, "snapshot")
    (folder / damage["effect"].partition("delete ")[2].partition(",")[0]).unlink()
    assert onto("index", "repair", *flags, "--apply").code == 0
    assert onto("compact", *flags, "--apply").code == 0
    assert check(onto, flags)[0] == 0
    assert onto("query", "entities", "Customer", *flags, "--json").json["count"] == 5


def test_a_damaged_manifest_index_and_schema_are_told_apart(onto, store):
    flags, folder = store
    for pattern, what in (
        ("commits/2-*/manifest.json", "manifest"),
        ("commits/1-*/manifest.json", "manifest"),
        ("meta/indices/entities/Customer.json", "index"),
    ):
        file = one(folder, pattern)
        plain = file.read_bytes()
        file.write_bytes(plain[:40])
        code, found = check(onto, flags)
        assert (code, what in [damage["what"] for damage in found["damages"]]) == (5, True)
        file.write_bytes(plain)


def test_the_newest_manifest_is_what_the_head_says(onto, store):
    flags, folder = store
    file = one(folder, "commits/2-*/manifest.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"runtime_id": "somebody else"}))
    code, found = check(onto, flags)
    assert (code, found["damages"][0]["problem"]) == (5, "it is not what the head says it is")


@pytest.mark.parametrize("name", ["sqlite-v1", "sqlite-v2"])
def test_a_sqlite_file_is_checked_by_sqlite(onto, filled, name):
    target = filled(name)
    assert check(onto, target.flags)[1]["healthy"]
    onto("check", "--db", "missing.db").failed(5, "no ontology")
    onto("recover", *target.flags).failed(1, "no head to recover")


# --- a lost head ---


@pytest.mark.parametrize("damage", ["missing", "cut off", "wrong"])
@pytest.mark.thorough
def test_a_lost_or_damaged_head_is_recovered_with_the_token_of_a_preview(onto, store, damage):
    flags, folder = store
    before = onto("query", "entities", "Customer", *flags, "--json").json["rows"]
    head = folder / "meta/head.json"
    plain = head.read_text()
    if damage == "missing":
        head.unlink()
    else:
        head.write_text(plain[:30] if damage == "cut off" else json.dumps(json.loads(plain) | {"commit_id": 7}))
    assert check(onto, flags)[0] == 5
    plan = onto("recover", *flags, "--json").valid("recover")
    assert (plan["commit_id"], plan["is_certain"], plan["applied"]) == (2, True, False)
    onto("recover", *flags, "--apply", "--token", "x").failed(1, "token")
    done = onto("recover", *flags, "--apply", "--token", plan["token"], "--json").valid("recover")
    assert (done["applied"], done["commit_id"]) == (True, 2)
    assert onto("query", "entities", "Customer", *flags, "--json").json["rows"] == before
    assert check(onto, flags)[0] == 0


def test_a_store_with_a_new_head_takes_commits(onto, store, models):
    flags, folder = store
    (folder / "meta/head.json").unlink()
    token = onto("recover", *flags, "--json").json["token"]
    onto("recover", *flags, "--apply", "--token", token)
    from ontologia import Ontology

    with Ontology(storage_uri=folder.as_uri(), entity_types=[models.Product]) as ontology:
        with ontology.session() as session:
            session.ensure(models.Product(sku=99, price=1.0))
        assert ontology.repository.get_head_commit_id() == 3


def test_the_last_commit_is_recovered_also_where_nothing_proves_that_it_was_made(onto, store):
    flags, folder = store
    (folder / "meta/head.json").unlink()
    for index in folder.glob("meta/indices/**/*.json"):
        index.unlink()
    plan = onto("recover", *flags, "--json").json
    assert (plan["commit_id"], plan["is_certain"]) == (2, False)
    assert "nothing proves" in onto("recover", *flags).out


def test_between_two_attempts_at_the_last_commit_the_operator_chooses(onto, store):
    flags, folder = store
    (folder / "meta/head.json").unlink()
    for index in folder.glob("meta/indices/**/*.json"):
        index.unlink()
    made = one(folder, "commits/2-*/manifest.json")
    other = folder / "commits/2-ffffffff/manifest.json"
    other.parent.mkdir()
    other.write_text(made.read_text())
    onto("recover", *flags).failed(1, "several attempts at commit 2", "--manifest")
    plan = onto("recover", *flags, "--manifest", str(made.relative_to(folder)), "--json").json
    assert plan["manifest_path"] == str(made.relative_to(folder))
    onto("recover", *flags, "--manifest", "commits/9-x/manifest.json").failed(1, "not a manifest with a whole chain")


def test_a_chain_that_is_broken_at_its_end_is_recovered_up_to_there(onto, store):
    flags, folder = store
    one(folder, "commits/2-*/manifest.json").write_text("{")
    plan = onto("recover", *flags, "--json").json
    assert (plan["commit_id"], plan["is_certain"]) == (1, True)


def test_a_head_that_is_well_is_left_alone(onto, store):
    onto("recover", *store[0]).failed(1, "is well, at commit 2")
    onto("recover", *store[0], "--apply").failed(2, "--token")
    onto("recover", "--storage-uri", "memory://nothing-here").failed(1, "there is no ontology")
