"""Mistakes in a pipeline file, or in a load that is typed, are said before Spark is started."""

import pytest

from ontologia.cli.run import Run

TARGET = '[target]\ndb = "shop.db"\nmodels = ["myapp.models"]\n'
LOAD = '[[load]]\nsource = "people.csv"\ninto = "Customer"\n'


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch, tmp_path):
    def started(*_, **__):
        raise AssertionError("Spark was started")

    monkeypatch.setattr(Run, "spark", started)
    (tmp_path / "people.csv").write_text("id,name\nc1,Ann\n")


MISTAKES = [
    (TARGET + LOAD.replace("Customer", "Nobody"), 1, "[[load]] 1: no declared type is named 'Nobody'"),
    (TARGET + LOAD + 'map = { size = "1" }', 1, "[[load]] 1: entity Customer has no field size"),
    (TARGET + LOAD + 'left = "a"', 1, "entity Customer has no left"),
    (TARGET + LOAD + LOAD + 'on_duplicate = "last"', 1, "[[load]] 2: on_duplicate='last' needs order_by"),
    (TARGET + LOAD.replace("people", "missing"), 2, "missing.csv: there is no such file"),
    (TARGET + LOAD.replace("people.csv", "people"), 1, "say what it is with format='csv'"),
    (TARGET + LOAD.replace("people.csv", "jdbc:sqlite:x"), 1, "dbtable or query"),
    (TARGET + LOAD + 'map = "id"', 1, "map must be a table"),
    (TARGET + LOAD + "map = { age = 5 }", 1, "map.age must be a Spark expression"),
    (TARGET + LOAD + "order_by = 5", 1, "order_by must be text"),
    (TARGET, 1, "[[load]]"),
    ("what", 2, "is not TOML"),
    (TARGET.replace('db = "shop.db"\n', "") + LOAD, 2, "has no [target]"),
]


@pytest.mark.parametrize(("text", "code", "told"), MISTAKES, ids=[told for _, _, told in MISTAKES])
def test_a_mistake_in_a_pipeline_file_is_said_before_spark_starts(onto, tmp_path, text, code, told):
    (tmp_path / "nightly.toml").write_text(text)
    onto("pipeline", "run", "nightly.toml").failed(code, "nightly.toml", told)
    assert not (tmp_path / "onto.db").exists()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--map", "size=1"), 1, "has no field size"),
        (("--left", "x"), 1, "has no left"),
        (("--map", "id"), 2, "--map"),
        (("--format", "xml"), 1, "format"),
    ],
)
def test_a_mistake_in_a_load_that_is_typed_is_said_before_spark_starts(onto, words, code, told):
    words = ("people.csv", "--into", "Customer", "--models", "myapp.models", *words)
    answer = onto("ingest", *words, "--db", "shop.db", "--quiet")
    assert (answer.code, told in answer.err, len(answer.err.splitlines())) == (code, True, 1)


def test_a_refused_sync_names_the_option_that_allows_it(onto, filled, tmp_path):
    store = filled("sqlite-v2")
    (tmp_path / "few.csv").write_text("id,name\nnew,New\n")
    words = ("few.csv", "--into", "Customer", "--models", "myapp.models", *store.flags)
    onto("ingest", *words, "--mode", "sync", "--max-removals", "0", "--quiet").failed(1, "raise --max-removals")


def test_a_load_says_which_fields_get_their_defaults_and_which_columns_fill_none(onto, filled, tmp_path):
    store = filled("sqlite-v2")
    (tmp_path / "few.csv").write_text("id;name;agee;note\nnew;New;3;x\n")
    words = ("few.csv", "--into", "Customer", "--models", "myapp.models", *store.flags, "--option", "sep=;")
    words = (*words, "--map", "tier=trim(note)")
    said = onto("ingest", *words).err
    assert "Customer: the source has no column for age, " in said
    assert "Customer: columns that fill no field: agee\n" in said
    facts = onto("ingest", *words, "--json").json
    assert ("age" in facts["defaulted"]["Customer"], facts["ignored"]) == (True, {"Customer": ["agee"]})
