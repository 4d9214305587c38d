"""Export and import on executors: the files, reports and refusals of the embedded path."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ontologia import Entity, Field, OntologiaError, Ontology, Session, copy_history
from ontologia.cli import main
from ontologia.errors import ImportConflictError, SchemaOutdatedError, StorageBackendError, ValidationError
from ontologia.runtime import transfer as embedded
from ontologia.spark import export_data, import_data, transfer
from ontologia.spark.transfer import exporting, importing
from support.copied_shop import everything
from support.spark_shop import Buys, Customer, Everything, Knows, commit, customers, head, new_store, session, staged

MOMENT = datetime(1850, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)


def fill(uri: str) -> str:
    """Four commits: keys whose order as numbers and as texts differs, every kind of value, versions, two relations."""
    new_store(uri)
    commit(uri, *(Customer(id=f"c{number}", name=f'n{number}\n"ü"', age=number, tags=["x"]) for number in range(40)))
    commit(uri, *(Everything(number=number, real=number / 3) for number in (2, 10, 1, -5)))
    everything = {"text": "", "real": float("nan"), "yes": False, "moment": MOMENT, "day": date(1, 1, 1)}
    commit(
        uri,
        Everything(number=10, raw=b"\0\xff", shape={"a": 1}, commit_id=7, **everything),
        *(Customer(id=f"c{number}", name="later", age=number) for number in range(0, 40, 3)),
        *(Buys(left_key=f"c{number}", right_key="c1", at=at, amount=0.5) for number in (1, 11, 2) for at in "ba"),
    )
    commit(uri, Knows(left_key="c1", right_key="c2", since=1), Customer(id="c3", name="last", age=3))
    return uri


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The same data in a file and in a folder. Nobody writes into these."""
    place = tmp_path_factory.mktemp("sources")
    return {"sqlite": fill(str(place / "onto.db")), "file": fill((place / "store").as_uri())}


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.slow), "file"])
def source(request, sources):
    return sources[request.param]


@pytest.fixture
def in_parts(monkeypatch):
    """More than one part, also of little data."""
    monkeypatch.setattr(exporting, "ROWS_SORTED", 2)
    monkeypatch.setattr(importing, "ROWS_SORTED", 2)


def texts(folder: Path) -> dict[str, str]:
    """What an export says of each type, in one file or in parts."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.jsonl")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        found[name.partition("/part-")[0]] = found.get(name.partition("/part-")[0], "") + path.read_text()
    return found


def state(uri: str, place: Path) -> dict[str, str]:
    """Everything a store says now."""
    with session(uri) as opened:
        embedded.export_data(opened, place)
    return texts(place)


def copied(uri: str, place: Path) -> str:
    if "://" not in uri:
        shutil.copy(uri, place.with_suffix(".db"))
        return str(place.with_suffix(".db"))
    shutil.copytree(uri.removeprefix("file://"), place)
    return place.as_uri()


# --- export ---


@pytest.mark.parametrize(
    "options",
    [{}, {"as_of": 2}, {"history_since": 0, "with_metadata": True}, {"history_since": 2}, {"as_of": 99}],
    ids=["latest", "as of", "all history", "since", "as of the future"],
)
@pytest.mark.slow_on("latest", "as of", "as of the future", "since")
def test_parts_put_together_are_the_file_that_the_embedded_export_writes(spark, source, options, in_parts, tmp_path):
    with session(source) as opened:
        plain = embedded.export_data(opened, tmp_path / "plain", **options)
        parts = export_data(spark, opened, tmp_path / "parts", **options)
    assert texts(tmp_path / "parts") == texts(tmp_path / "plain")
    assert [(item.ref, item.rows) for item in parts.types] == [(item.ref, item.rows) for item in plain.types]
    assert (parts.head, parts.rows, parts.format) == (plain.head, plain.rows, plain.format)
    assert len(list((tmp_path / "parts" / "entities" / "Customer").iterdir())) > 1
    headers = [json.loads((tmp_path / name / "export.json").read_text()) for name in ("plain", "parts")]
    for header in headers:
        header.pop("exported_at")
        for item in (*header["types"], *header.get("history", {}).get("versions", ())):
            item["file"] = item["file"].removesuffix(".jsonl")
    assert headers[0] == headers[1]
    if options.get("history_since") == 0:
        copies = [copy_history(tmp_path / name, tmp_path / f"{name}.db").target for name in ("plain", "parts")]
        assert everything(copies[0]) == everything(copies[1]) == everything(source)


def test_parquet_parts_have_the_columns_and_rows_of_the_embedded_file(spark, source, in_parts, tmp_path):
    with session(source) as opened:
        embedded.export_data(opened, tmp_path / "plain", format="parquet", with_metadata=True)
        export_data(spark, opened, tmp_path / "parts", format="parquet", with_metadata=True)
    for name in ("entities/Customer", "entities/Everything", "relations/Buys", "relations/Knows"):
        plain = pq.ParquetFile(tmp_path / "plain" / f"{name}.parquet").read()
        parts = [pq.ParquetFile(path).read() for path in sorted((tmp_path / "parts" / name).iterdir())]
        assert all(part.schema.equals(plain.schema, check_metadata=True) for part in parts)
        assert str(pa.concat_tables(parts).to_pylist()) == str(plain.to_pylist())  # as text, for NaN


@pytest.mark.parametrize("options", [{}, {"history_since": 0}], ids=["latest", "history"])
def test_commits_made_meanwhile_stay_out(spark, source, options, tmp_path, monkeypatch):
    uri, plain = copied(source, tmp_path / "copy"), exporting.read_stored_rows

    def and_then(*given, **more):
        commit(uri, Customer(id="c1", name="too late", age=1), Customer(id="too late", name="n", age=1))
        return plain(*given, **more)

    monkeypatch.setattr(exporting, "read_stored_rows", and_then)
    with session(uri) as opened:
        report = export_data(spark, opened, tmp_path / "data", types=["Customer"], **options)
    assert (report.head, head(uri)) == (4, 5)
    assert "too late" not in texts(tmp_path / "data")["entities/Customer"]


def test_what_a_failed_task_left_is_not_in_the_export(spark, sources, tmp_path, monkeypatch):
    plain = exporting._write_part

    def tried_again(task, batches):
        Path(task.folder, ".part-00000.jsonl.7").write_text("half a li")
        return plain(task, batches)

    monkeypatch.setattr(exporting, "_write_part", tried_again)
    with session(sources["file"]) as opened:
        export_data(spark, opened, tmp_path / "data", types=["Buys"])
    assert [path.name for path in (tmp_path / "data" / "relations" / "Buys").iterdir()] == ["part-00000.jsonl"]


def test_one_type_and_types_without_rows(spark, sources, tmp_path):
    with session(sources["file"]) as opened:
        one = export_data(spark, opened, tmp_path / "one", types=["Knows"])
        none = export_data(spark, opened, tmp_path / "none", as_of=0, types=["Knows"], format="parquet")
        assert [item.file for item in one.types] == ["relations/Knows"]
        assert (
            none.rows,
            pq.read_table(tmp_path / "none" / "relations" / "Knows" / "part-00000.parquet").num_rows,
        ) == (0, 0)
        assert import_data(spark, opened, tmp_path / "none").types == []


def test_an_export_that_cannot_be_leaves_no_folder(spark, sources, tmp_path, monkeypatch):
    with session(sources["file"]) as opened:
        with pytest.raises(ValidationError, match="Nobody is not in this store"):
            export_data(spark, opened, tmp_path / "data", types=["Nobody"])
        with pytest.raises(ValidationError, match="not both"):
            export_data(spark, opened, tmp_path / "data", as_of=1, history_since=1)
        elsewhere = {"part": "part-00000.jsonl", "rows": 3}  # as from a machine that does not share the folder
        monkeypatch.setattr(
            exporting, "_write_part", lambda task, batches: iter([exporting.WRITTEN.batch([elsewhere])])
        )
        with pytest.raises(StorageBackendError, match="a folder that all of them share"):
            export_data(spark, opened, tmp_path / "data")
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "letter.txt").write_text("keep me")
        with pytest.raises(ValidationError, match="not an empty folder"):
            export_data(spark, opened, tmp_path / "full")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


# --- import ---


@pytest.fixture(scope="module")
def exported(sources, tmp_path_factory):
    """Embedded exports, by format."""
    place = tmp_path_factory.mktemp("exported")
    with session(sources["sqlite"]) as opened:
        for form in ("jsonl", "parquet"):
            embedded.export_data(opened, place / form, format=form)
        embedded.export_data(opened, place / "history", history_since=0, with_metadata=True)
    return place


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.slow_on("parquet")
def test_what_goes_in_comes_out_in_one_commit(spark, uri, exported, form, sources, tmp_path, monkeypatch):
    monkeypatch.setattr(importing, "SPLIT_BYTES", 700)
    with session(uri) as opened:
        report = import_data(spark, opened, exported / form, dry_run=False, meta={"ticket": "7"})
        notes = opened.list_commits()[0]["metadata"]
    with session(new_store(str(tmp_path / "embedded.db"))) as opened:
        assert report == embedded.import_data(opened, exported / form, dry_run=False)
    assert (report.commit_id, head(uri)) == (1, 1)
    assert notes == {"kind": "import", "ticket": "7"}
    assert state(uri, tmp_path / "after") == state(sources["sqlite"], tmp_path / "before")
    assert staged(uri) == []


@pytest.mark.slow
def test_both_imports_read_parts_with_no_class_declared(spark, sources, in_parts, tmp_path):
    with session(sources["file"]) as opened:
        export_data(spark, opened, tmp_path / "parts", history_since=0)
    found = []
    for name, bring in (
        ("a.db", embedded.import_data),
        ("b.db", lambda *given, **how: import_data(spark, *given, **how)),
    ):
        with Ontology(str(tmp_path / name)) as opened:
            found.append(bring(opened, tmp_path / "parts", dry_run=False))
        with Ontology(str(tmp_path / f"one-{name}")) as opened:  # the header is found from inside as well
            bring(opened, tmp_path / "parts" / "relations" / "Buys", dry_run=False)
    assert found[0] == found[1]
    assert {item.ref.name: (item.inserted, item.repeated) for item in found[0].types} == {
        "Customer": (40, 15),
        "Everything": (4, 1),
        "Buys": (6, 0),
        "Knows": (1, 0),
    }
    states = [state(str(tmp_path / name), tmp_path / f"of-{name}") for name in ("a.db", "b.db")]
    assert states == [state(sources["file"], tmp_path / "of-source")] * 2


def record(**changes):
    fields = {"id": "c1", "name": "Changed", "age": 1, "tags": [], "note": None}
    return {"kind": "entity", "type": "Customer", "fields": {**fields, **changes}}


def jsonl(path: Path, *records) -> Path:
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in records))
    return path


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        *(("abort", None), ("skip", None), ("upsert", None), ("upsert", "must_exist"), ("skip", "must_not_exist")),
        *(("abort", "if_commit_id:3"), ("upsert", "if_commit_id:3"), ("skip", "if_commit_id:4")),
    ],
)
@pytest.mark.slow_on("upsert-None", "abort-None", "skip-must_not_exist", "upsert-must_exist", "skip-if_commit_id:4")
def test_policies_and_preconditions_are_those_of_the_embedded_import(spark, sources, policy, rule, tmp_path):
    """A changed row, an unchanged one, a new one, and one that is there twice, of which the last counts."""
    unchanged = {"id": "c2", "name": 'n2\n"ü"', "age": 2, "tags": ["x"]}
    path = jsonl(
        tmp_path / "rows.jsonl",
        record(id="c4", name="first"),
        record(),
        record(**unchanged),
        record(id="c4", name="last"),
        record(id="new"),
    )
    how = {"on_conflict": policy, "precondition": rule}

    def outcome(name, bring):
        with session(copied(sources["file"], tmp_path / name)) as opened:
            found = [bring(opened, path, **how)]
            try:
                found.append(bring(opened, path, **how, dry_run=False))
            except OntologiaError as problem:
                found.append((type(problem), str(problem)))
            rows = {one.id: one.name for one in opened.query().entities(Customer).collect()}
            return *found, opened.repository.get_head_commit_id(), rows

    expected = outcome("embedded", embedded.import_data)
    assert outcome("spark", lambda *given, **more: import_data(spark, *given, **more)) == expected
    assert staged((tmp_path / "spark").as_uri()) == []


def test_an_embedded_file_is_merged_alike_and_nothing_changes_twice(spark, sources, tmp_path):
    uri = copied(sources["sqlite"], tmp_path / "copy")
    path = jsonl(tmp_path / "rows.jsonl", record(), record(id="new"))
    with session(uri) as opened:
        done = import_data(spark, opened, path, dry_run=False, on_conflict="upsert")
        again = import_data(spark, opened, path, dry_run=False, on_conflict="upsert")
        with pytest.raises(ImportConflictError, match="'c1' is in the store already"):
            import_data(spark, opened, path, dry_run=False)
    assert [(item.inserted, item.updated) for item in done.types] == [(1, 1)]
    assert (done.commit_id, again.commit_id, again.types[0].unchanged, head(uri)) == (5, None, 2, 5)
    assert customers(uri)["c1"] == customers(uri)["new"] == ("Changed", 1)
    assert not Path(f"{uri}.staging").exists()


def test_of_many_files_the_last_by_name_has_the_last_word(spark, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(importing, "SPLIT_BYTES", 200)
    (tmp_path / "data").mkdir()
    for number in (2, 0, 1):
        rows = [record(id=f"c{key}", name=f"file {number} line {line}") for line in range(3) for key in range(3)]
        jsonl(tmp_path / "data" / f"{number}.jsonl", *rows)
    with session(folder) as opened:
        report = import_data(spark, opened, tmp_path / "data", dry_run=False)
    assert (report.types[0].rows, report.types[0].inserted, report.types[0].repeated) == (27, 3, 24)
    assert {name for name, _ in customers(folder).values()} == {"file 2 line 2"}


BAD = {
    "not JSON": "{\n",
    "no object": "[]\n",
    "no kind": record() | {"kind": "thing"},
    "no type": record() | {"type": ["Customer"]},
    "unknown type": record() | {"type": "Nothing"},
    "no fields": record() | {"fields": 3},
    "another key": record() | {"key": "c9"},
    "a missing field": record() | {"fields": {"id": "c1"}},
    "a field too many": record(colour="red"),
    "a bad value": record(age=-1),
    "half a character": '{"kind": "entity", "type": "Customer", "fields": {"name": "\\ud800"}}\n',
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_record_is_named_with_its_line_and_nothing_is_imported(spark, folder, bad, tmp_path, monkeypatch):
    monkeypatch.setattr(importing, "SPLIT_BYTES", 150)
    good = [record(id=f"c{number}") for number in range(9)]
    path = jsonl(tmp_path / "rows.jsonl", *good, "\n", bad, *good, "also bad\n")
    with session(folder) as opened:
        with pytest.raises(ValidationError) as expected:
            embedded.import_data(opened, path, dry_run=False)
        with pytest.raises(ValidationError) as found:
            import_data(spark, opened, path, dry_run=False)
    assert str(found.value) == str(expected.value)
    assert (head(folder), staged(folder)) == (0, [])


def test_files_that_are_no_exports_are_refused_as_by_the_embedded_import(spark, folder, exported, tmp_path):
    table = pq.ParquetFile(exported / "parquet" / "entities" / "Customer.parquet").read()
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn.parquet").write_text("PAR1")
    (tmp_path / "notes.txt").write_text("dear diary")
    pq.write_table(table.replace_schema_metadata({}), tmp_path / "foreign.parquet")
    pq.write_table(table.drop_columns(["age"]), tmp_path / "narrow.parquet")
    wrong = table.set_column(table.schema.get_field_index("age"), "age", table.column("age").cast("string"))
    pq.write_table(wrong.replace_schema_metadata(table.schema.metadata), tmp_path / "texts.parquet")
    negative = table.set_column(table.schema.get_field_index("age"), "age", pa.array([*range(39), -1]))
    pq.write_table(negative.replace_schema_metadata(table.schema.metadata), tmp_path / "late.parquet", row_group_size=7)
    for name in (
        "empty",
        "missing",
        "torn.parquet",
        "notes.txt",
        "foreign.parquet",
        "narrow.parquet",
        "texts.parquet",
        "late.parquet",
    ):
        with session(folder) as opened:
            with pytest.raises(ValidationError) as expected:
                embedded.import_data(opened, tmp_path / name, dry_run=False)
            with pytest.raises(ValidationError) as found:
                import_data(spark, opened, tmp_path / name, dry_run=False)
        assert str(found.value) == str(expected.value)
    assert (head(folder), staged(folder)) == (0, [])


def test_a_class_that_differs_and_a_type_that_was_dropped(spark, sources, exported, tmp_path):
    class Other(Entity, name="Customer"):
        id: Field[str] = Field(primary_key=True)

    uri = copied(sources["file"], tmp_path / "copy")
    with Session(uri, entity_types=[Other]) as opened, pytest.raises(SchemaOutdatedError):
        import_data(spark, opened, exported / "jsonl")
    with session(uri) as opened:
        opened.drop_types(relations=["Knows"], dry_run=False, token=opened.drop_types(relations=["Knows"]).token)
        with pytest.raises(ValidationError, match="was dropped"):
            import_data(spark, opened, exported / "jsonl", on_conflict="skip")


def test_an_index_that_a_class_adds_is_made_by_the_import(spark, tmp_path):
    class Plain(Entity, name="Thing"):
        id: Field[str] = Field(primary_key=True)
        kind: Field[str]

    class Indexed(Entity, name="Thing"):
        id: Field[str] = Field(primary_key=True)
        kind: Field[str] = Field(index=True)

    path = jsonl(tmp_path / "rows.jsonl", {"kind": "entity", "type": "Thing", "fields": {"id": "b", "kind": "x"}})
    with Session(str(tmp_path / "onto.db"), entity_types=[Plain]) as opened:
        opened.ensure(Plain(id="a", kind="x"))
    with Session(str(tmp_path / "onto.db"), entity_types=[Indexed]) as opened:
        import_data(spark, opened, path, dry_run=False)
        assert "USING INDEX" in opened.query().entities(Indexed).where(Indexed.kind == "x").explain()


def test_a_store_in_memory_is_out_of_reach(spark, exported):
    with Ontology(":memory:") as opened, pytest.raises(ValidationError, match="in memory"):
        import_data(spark, opened, exported / "jsonl")


@pytest.mark.s3
def test_a_bucket_takes_and_gives_what_a_folder_does(spark, bucket, exported, sources, tmp_path):
    with session(bucket) as opened:
        report = import_data(spark, opened, exported / "history", dry_run=False)
        export_data(spark, opened, tmp_path / "out")
        leftovers = list(opened.engine.objects.list("staging/"))
    assert (report.commit_id, report.types[0].repeated, leftovers) == (1, 15, [])
    assert texts(tmp_path / "out") == state(sources["file"], tmp_path / "before")


# --- the console ---


def test_the_console_moves_data_on_spark_and_in_this_process_alike(spark, sources, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def onto(*words, code=0):
        found = main(list(map(str, words)))
        said = capsys.readouterr()
        assert found == code, said.err
        return said

    facts = json.loads(onto("export", "--db", sources["sqlite"], "-o", "data", "--engine", "spark", "--json").out)
    assert (facts["rows"], facts["types"][0]["file"]) == (51, "entities/Customer")
    words = ["import", "--db", "new.db", "--input", "data", "--models", "support.spark_shop", "--json"]
    previews = [json.loads(onto(*words, "--engine", engine).out) for engine in ("spark", "local")]
    assert previews[0] == previews[1]
    assert not Path("new.db").exists()
    assert json.loads(onto(*words, "--engine", "spark", "--apply").out)["commit_id"] == 1
    refused = json.loads(onto(*words, "--engine", "spark", code=6).out)
    assert "is in the store already" in refused["refused"]
    assert "is in the store already" in onto(*words, "--engine", "spark", "--apply", code=6).err
    assert head("new.db") == 1
    Path("bad.jsonl").write_text("{\n")
    said = onto("import", "--db", "new.db", "--input", "bad.jsonl", "--engine", "spark", "--apply", code=1).err
    assert "bad.jsonl:1: not JSON" in said


def test_much_data_goes_to_spark_by_itself(spark, sources, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("onto.toml").write_text("spark_above_rows = 50\n")
    for more in ([], ["--type", "Customer"]):
        main(["export", "--db", sources["sqlite"], "-c", "onto.toml", "-o", f"data{len(more)}", *more])
    assert Path("data0/entities/Customer").is_dir()
    assert Path("data2/entities/Customer.jsonl").is_file()
    called = []
    monkeypatch.setattr(
        transfer, "import_data", lambda *given, **how: called.append(given) or embedded.import_data(*given[1:], **how)
    )
    for path in ("data0", "data2"):
        main(["import", "--db", "new.db", "-c", "onto.toml", "--input", path])
    assert [str(given[2]) for given in called] == ["data0"]
