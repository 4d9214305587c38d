"""`onto export` and `onto import`: the files, the policies, and that what goes in comes out."""

import json
from pathlib import Path

import jsonschema
import pyarrow.parquet as pq
import pytest

import ontologia

RECORD = json.loads((Path(ontologia.__file__).parent / "cli" / "schemas" / "record.json").read_text())


def export(onto, target, name="data", *more):
    answer = onto("export", *target.flags, "--output", name, *more, "--json")
    assert answer.code == 0, answer.err
    return answer.valid("export")


def import_(onto, target, name="data", *more):
    return onto("import", *target.flags, "--input", name, *more, "--json")


def lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def content(folder):
    """Every record of an export, without the order of files."""
    return {path.name: path.read_text() for path in sorted(Path(folder).rglob("*.jsonl"))}


# --- export ---


def test_an_export_has_one_file_per_type_and_a_header(onto, shop):
    facts = export(onto, shop)
    assert [(item["file"], item["rows"]) for item in facts["types"]] == [
        ("entities/Customer.jsonl", 5),
        ("entities/Product.jsonl", 3),
        ("relations/Subscription.jsonl", 3),
    ]
    header = json.loads(Path("data/export.json").read_text())
    assert (header["format"], header["version"], header["head"]) == ("jsonl", 1, 2)


def test_records_are_those_of_the_rfc(onto, shop):
    export(onto, shop)
    for path in Path("data").rglob("*.jsonl"):
        for record in lines(path):
            jsonschema.validate(record, RECORD)
    entity = lines("data/entities/Customer.jsonl")[4]
    assert (entity["kind"], entity["type"], entity["key"]) == ("entity", "Customer", "c4")
    assert entity["fields"]["photo"] == "00ff04"
    assert entity["fields"]["score"] == "NaN"
    assert entity["fields"]["joined"] == "2026-01-01T04:30:00.000000+00:00"
    relation = lines("data/relations/Subscription.jsonl")[0]
    assert (relation["left_key"], relation["right_key"], relation["instance_key"]) == ("c1", "1", "a")
    assert relation["fields"] == {"seats": 1}


def test_every_engine_exports_the_same_bytes(onto, filled):
    names = ("sqlite-v1", "sqlite-v2", "s3-v1", "s3-v2")
    for name in names:
        export(onto, filled(name, name), f"data-{name}")
    assert [content(f"data-{name}") == content("data-sqlite-v1") for name in names] == [True] * 4


def test_one_type_as_of_a_commit_with_metadata(onto, shop):
    export(onto, shop, "data", "--type", "Customer", "--as-of", "1", "--with-metadata")
    assert [path.name for path in Path("data").rglob("*.jsonl")] == ["Customer.jsonl"]
    record = lines("data/entities/Customer.jsonl")[1]
    assert (record["commit_id"], record["fields"]["age"]) == (1, 21)


def test_history_has_every_version_of_an_identity_in_order(onto, shop):
    export(onto, shop, "data", "--history-since", "0", "--with-metadata", "--type", "Customer")
    versions = [(record["key"], record["commit_id"]) for record in lines("data/entities/Customer.jsonl")]
    assert versions == [("c0", 1), ("c1", 1), ("c1", 2), ("c2", 1), ("c3", 1), ("c4", 1)]


def test_parquet_has_typed_columns(onto, shop):
    export(onto, shop, "data", "--format", "parquet")
    table = pq.read_table("data/entities/Customer.parquet")
    assert table.num_rows == 5
    assert str(table.schema.field("joined").type) == "timestamp[us, tz=UTC]"
    assert table.schema.metadata[b"ontologia.type"] == b"Customer"


def test_an_export_that_fails_leaves_no_folder(onto, filled, tmp_path):
    onto("export", *filled("sqlite-v2").flags, "--output", "data", "--type", "Nobody").failed(1, "Customer, Product")
    assert [path for path in tmp_path.iterdir() if "data" in path.name] == []


@pytest.mark.parametrize(
    ("more", "code", "word"),
    [
        (("--as-of", "1", "--history-since", "1"), 2, "exclude"),
        (("--format", "csv"), 2, "--format"),
        (("--as-of", "-1"), 2, "--as-of"),
    ],
)
def test_an_export_that_makes_no_sense(onto, filled, more, code, word):
    onto("export", *filled("sqlite-v2").flags, "--output", "data", *more).failed(code, word)


def test_an_export_does_not_touch_a_folder_with_something_in_it(onto, filled):
    target = filled("sqlite-v2")
    Path("data").mkdir()
    Path("data/letter.txt").write_text("keep me")
    onto("export", *target.flags, "--output", "data").failed(2, "empty folder")
    Path("file").write_text("")
    onto("export", *target.flags, "--output", "file").failed(2, "empty folder")
    onto("export", *target.flags).failed(2, "--output")


def test_an_empty_folder_is_filled(onto, filled):
    Path("data").mkdir()
    assert export(onto, filled("sqlite-v2"))["rows"] == 11


# --- import ---


@pytest.mark.parametrize("classes", [(), ("--models", "myapp.models")], ids=["by schema", "by class"])
@pytest.mark.parametrize("format", ["jsonl", "parquet"])
@pytest.mark.thorough
def test_what_goes_in_comes_out_in_one_commit(onto, filled, empty, format, classes):
    export(onto, filled("sqlite-v2", "source"), "data", "--format", format)
    facts = import_(onto, empty, "data", *classes, "--apply").valid("import")
    assert (facts["commit_id"], facts["rows"]) == (1, 11)
    export(onto, filled("sqlite-v2", "again"), "before")
    export(onto, empty, "after")
    assert content("after") == content("before")


def test_an_import_is_a_preview_unless_applied(onto, filled, empty):
    export(onto, filled("sqlite-v2", "source"))
    for more in ((), ("--dry-run",)):
        facts = import_(onto, empty, "data", *more).valid("import")
        assert (facts["applied"], facts["commit_id"]) == (False, None)
        assert facts["types"][0]["inserted"] == 5
    assert onto("info", *empty.flags, "--json").json["head"] == 0


def test_a_preview_for_a_file_that_is_not_there_does_not_make_it(onto, filled):
    export(onto, filled("sqlite-v2", "source"))
    assert onto("import", "--db", "new.db", "--input", "data").code == 0
    assert not Path("new.db").exists()


def test_an_import_makes_a_sqlite_file_that_is_not_there(onto, filled):
    export(onto, filled("sqlite-v2", "source"))
    assert onto("import", "--db", "new.db", "--input", "data", "--apply").code == 0
    assert onto("info", "--db", "new.db", "--json").json["head"] == 1


def test_an_import_that_is_refused_makes_no_file(onto, filled):
    store = filled("sqlite-v2", "source")
    models = ("--models", "myapp.next_models", "--upgraders", "myapp.migrations")
    assert onto("migrate", *store.flags, *models, "--apply", "--force").code == 0
    assert onto("export", *store.flags, "--output", "all", "--with-history").code == 0
    onto("import", "--db", "new.db", "--input", "all", "--apply").failed(1, "--with-history")
    assert not Path("new.db").exists()
    assert onto("import", "--db", "new.db", "--input", "all", "--with-history", "--apply").code == 0


def test_the_commit_carries_notes(onto, filled, empty):
    export(onto, filled("sqlite-v2", "source"))
    answer = import_(onto, empty, "data", "--apply", "--meta", "ticket=7", "--meta", "who=me=you")
    assert empty.where in answer.err
    notes = onto("commits", *empty.flags, "--json").json["commits"][0]["metadata"]
    assert (notes["ticket"], notes["who"], notes["kind"]) == ("7", "me=you", "import")


def changed(onto, target):
    """An export in which one customer is changed and one is new."""
    export(onto, target)
    path = Path("data/entities/Customer.jsonl")
    records = lines(path)
    records[0]["fields"]["name"] = "Changed"
    records.append({**records[0], "key": "c9", "fields": {**records[0]["fields"], "id": "c9"}})
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def name_of(onto, target, key):
    answer = onto("query", "entities", "Customer", *target.flags, "--filter", "$.id", "eq", f'"{key}"', "--json")
    return [row["name"] for row in answer.rows]


def test_abort_stops_at_what_is_stored_and_writes_nothing(onto, shop):
    changed(onto, shop)
    onto("import", *shop.flags, "--input", "data", "--apply", "--on-conflict", "abort").failed(6, "c0", "upsert")
    assert onto("info", *shop.flags, "--json").json["head"] == 2


def test_a_preview_of_an_import_that_would_abort_says_so(onto, shop):
    changed(onto, shop)
    answer = import_(onto, shop)
    assert answer.code == 6
    assert "c0" in answer.valid("import")["refused"]


def test_skip_keeps_what_is_stored(onto, shop):
    changed(onto, shop)
    facts = import_(onto, shop, "data", "--apply", "--on-conflict", "skip").valid("import")
    customers = facts["types"][0]
    assert (customers["inserted"], customers["skipped"], customers["unchanged"]) == (1, 1, 4)
    assert name_of(onto, shop, "c9") == ["Changed"]
    assert name_of(onto, shop, "c0") != ["Changed"]


def test_upsert_replaces_what_is_stored(onto, shop):
    changed(onto, shop)
    facts = import_(onto, shop, "data", "--apply", "--on-conflict", "upsert").valid("import")
    customers = facts["types"][0]
    assert (customers["inserted"], customers["updated"], customers["unchanged"]) == (1, 1, 4)
    assert name_of(onto, shop, "c0") == ["Changed"]
    changes = onto("commits", "examine", "--id", "3", *shop.flags, "--json").json
    assert changes["total_changes"] == 2


def test_what_is_stored_already_makes_no_commit(onto, shop):
    export(onto, shop)
    facts = import_(onto, shop, "data", "--apply", "--on-conflict", "upsert").valid("import")
    assert facts["commit_id"] is None
    assert onto("info", *shop.flags, "--json").json["head"] == 2


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("must_exist", 6),
        ("must_not_exist", 6),
        ("if_commit_id:1", 6),
        ("if_commit_id:2", 0),
    ],
)
@pytest.mark.thorough
def test_preconditions(onto, shop, rule, code):
    changed(onto, shop)
    more = ("--on-conflict", "upsert", "--precondition", rule)
    assert import_(onto, shop, "data", *more).code == code
    answer = import_(onto, shop, "data", *more, "--apply")
    assert answer.code == code
    assert onto("info", *shop.flags, "--json").json["head"] == (3 if code == 0 else 2)


def test_must_exist_passes_when_everything_does(onto, shop):
    export(onto, shop)
    more = ("--on-conflict", "upsert", "--precondition", "must_exist", "--apply")
    assert import_(onto, shop, "data", *more).code == 0


def test_history_collapses_to_the_last_version(onto, filled, empty):
    export(onto, filled("sqlite-v2", "source"), "data", "--history-since", "0", "--with-metadata")
    facts = import_(onto, empty, "data", "--apply").valid("import")
    assert facts["commit_id"] == 1
    assert facts["types"][0]["repeated"] == 1
    assert name_of(onto, empty, "c1") == ["Bob"]


def test_one_file_is_imported_alone(onto, filled, empty):
    export(onto, filled("sqlite-v2", "source"))
    facts = import_(onto, empty, "data/entities/Product.jsonl", "--apply").valid("import")
    assert [item["name"] for item in facts["types"]] == ["Product"]


def test_records_of_many_types_may_share_a_file(onto, filled, empty, tmp_path):
    export(onto, filled("sqlite-v2", "source"))
    Path("all.jsonl").write_text("".join(content("data").values()))
    assert import_(onto, empty, "all.jsonl", "--models", "myapp.models", "--apply").json["rows"] == 11


# --- mistakes in files ---

GOOD = {"kind": "entity", "type": "Product", "key": "1", "fields": {"sku": 1, "price": 2.5, "since": None}}


@pytest.mark.parametrize("classes", [(), ("--models", "myapp.models")], ids=["by schema", "by class"])
@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("{", "not JSON"),
        ("[]", "JSON object"),
        (json.dumps({**GOOD, "kind": "thing"}), "kind"),
        (json.dumps({**GOOD, "type": ""}), "type"),
        (json.dumps({**GOOD, "fields": 3}), "fields"),
        (json.dumps({**GOOD, "key": "7"}), "'7'"),
        (json.dumps({**GOOD, "fields": {"sku": 1, "price": "dear"}}), "price"),
        (json.dumps({**GOOD, "fields": {"sku": 1, "price": None}}), "price"),
        (json.dumps({**GOOD, "fields": {"sku": 1}}), "price"),
        (json.dumps({**GOOD, "fields": {"sku": 2**70, "price": 1}}), "sku"),
        (json.dumps({**GOOD, "fields": {"sku": 1, "price": 1, "colour": "red"}}), "colour"),
        (json.dumps({**GOOD, "type": "Nothing"}), "Nothing"),
        (json.dumps({**GOOD, "type": ["Product"]}), "type"),
        (
            json.dumps({"kind": "entity", "type": "Customer", "key": "x", "fields": {"id": "x", "name": "\ud800"}}),
            "surrogate",
        ),
        (json.dumps({"kind": "entity", "type": "Customer", "fields": {"id": "x", "name": "y", "photo": "xyz"}}), "hex"),
        ("\ufeff{", "not JSON"),
        (json.dumps({"kind": "relation", "type": "Subscription", "left_key": "c1", "fields": {}}), "right_key"),
        (
            json.dumps({"kind": "relation", "type": "Subscription", "left_key": "c", "right_key": "1", "fields": {}}),
            "seat",
        ),
    ],
)
@pytest.mark.thorough
def test_a_bad_record_is_named_with_its_line_and_nothing_is_imported(onto, filled, line, word, classes):
    target = filled("sqlite-v2")
    Path("rows.jsonl").write_text(
        json.dumps({**GOOD, "key": "77", "fields": {**GOOD["fields"], "sku": 77}}) + f"\n{line}\n"
    )
    more = ("--input", "rows.jsonl", "--apply", "--on-conflict", "upsert", *classes)
    message = onto("import", *target.flags, *more).failed(1, word)
    assert "rows.jsonl:2" in message or "Nothing" in message
    assert onto("info", *target.flags, "--json").json["head"] == 2


def test_a_type_nobody_knows_is_named(onto, initialized):
    Path("rows.jsonl").write_text(json.dumps(GOOD) + "\n")
    onto("import", *initialized("sqlite-v2").flags, "--input", "rows.jsonl", "--apply").failed(1, "Product", "models")


def test_classes_that_differ_from_the_store_are_a_mismatch(onto, shop):
    export(onto, shop)
    more = ("--input", "data", "--models", "myapp.next_models", "--apply")
    onto("import", *shop.flags, *more).failed(3, "Customer")


def test_a_dropped_type_takes_no_rows(onto, shop):
    export(onto, shop)
    token = onto("schema", "drop", *shop.flags, "--drop-relation", "Subscription", "--json").json["token"]
    onto("schema", "drop", *shop.flags, "--drop-relation", "Subscription", "--apply", "--token", token)
    onto("import", *shop.flags, "--input", "data", "--on-conflict", "skip", "--apply").failed(1, "dropped")


@pytest.mark.parametrize(
    ("more", "code", "word"),
    [
        (("--input", "missing"), 2, "missing"),
        ((), 2, "--input"),
        (("--input", "empty"), 2, "no .jsonl"),
        (("--input", "notes.txt"), 2, ".jsonl"),
        (("--input", "torn.parquet"), 2, "not a Parquet file"),
        (("--input", "empty", "--apply", "--dry-run"), 2, "exclude"),
        (("--input", "empty", "--on-conflict", "pray"), 2, "--on-conflict"),
        (("--input", "empty", "--precondition", "maybe"), 2, "if_commit_id:N"),
        (("--input", "empty", "--precondition", "if_commit_id:x"), 2, "if_commit_id:N"),
        (("--input", "empty", "--precondition", "must_exist"), 2, "upsert"),
        (("--input", "empty", "--meta", "x"), 2, "key=value"),
        (("--input", "empty", "--engine", "abacus"), 2, "--engine"),
        (("--input", "header"), 1, "malformed"),
    ],
)
def test_an_import_that_makes_no_sense(onto, filled, more, code, word):
    Path("empty").mkdir()
    Path("notes.txt").write_text("dear diary")
    Path("torn.parquet").write_text("PAR1")
    Path("header").mkdir()
    Path("header/export.json").write_text("{}")
    Path("header/x.jsonl").write_text("")
    onto("import", *filled("sqlite-v2").flags, *more).failed(code, word)


# --- other writers ---


@pytest.mark.parametrize("name", ["sqlite-v1", "sqlite-v2", "s3-v1", "s3-v2"])
def test_a_store_that_another_writer_holds_is_a_lost_race(onto, filled, models, name):
    target = filled(name)
    export(onto, target)
    Path("onto.toml").write_text("lock_timeout_ms = 50\ns3_lock_timeout_ms = 50\n")
    with target.ontology(models) as holder, holder.engine.write():
        more = ("--input", "data", "--apply", "--on-conflict", "upsert", "-c", "onto.toml")
        onto("import", *target.flags, *more).failed(4)
    assert onto("info", *target.flags, "--json").json["head"] == 2
