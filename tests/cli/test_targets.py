"""Which store a command is about: flags, environment, config file, and what happens when they disagree."""

import pytest

INFO = ("info", "--json")


def target_of(answer):
    assert answer.code == 0, answer.err
    return answer.json["target"]


def test_global_options_work_before_and_after_the_command(onto, filled):
    flags = filled("sqlite-v2").flags
    before, after = onto(*flags, "--json", "info"), onto("info", *flags, "--json")
    assert before.json == after.json


def test_global_options_work_on_groups(onto, filled):
    flags = filled("sqlite-v2").flags
    answer = onto("--json", "query", *flags, "entities", "Customer")
    assert answer.json["count"] == 5


def test_the_default_is_onto_db_in_the_working_directory(onto, filled, tmp_path):
    filled("sqlite-v2", "onto")
    assert target_of(onto(*INFO)) == f"sqlite {tmp_path}/onto.db"


def test_db_and_storage_uri_may_name_the_same_file(onto, filled):
    target = filled("sqlite-v2")
    assert onto(*INFO, *target.flags, "--storage-uri", f"sqlite:///{target.where}").code == 0


def test_db_and_storage_uri_for_different_targets_fail_at_once(onto, filled):
    flags = filled("sqlite-v2").flags
    onto(*INFO, *flags, "--storage-uri", "s3://bucket/prefix").failed(2, "different targets")


def test_the_conflict_is_seen_wherever_the_options_stand(onto, filled):
    flags = filled("sqlite-v2").flags
    onto(*flags, *INFO, "--storage-uri", "sqlite:///other.db").failed(2, "different targets")


@pytest.mark.parametrize("uri", ["ftp://host/x", "nonsense", "sqlite:relative.db", "sqlite:///"])
def test_a_uri_of_no_engine_is_a_usage_error(onto, uri):
    onto("info", "--storage-uri", uri).failed(2, uri)


def test_the_environment_names_a_target(onto, filled, monkeypatch):
    target = filled("sqlite-v2")
    monkeypatch.setenv("ONTOLOGIA_DB", target.where)
    assert target_of(onto(*INFO)) == f"sqlite {target.where}"


def test_the_environment_names_a_uri(onto, filled, monkeypatch):
    target = filled("s3-v2")
    monkeypatch.setenv("ONTOLOGIA_STORAGE_URI", target.where)
    assert target_of(onto(*INFO)) == target.where


def test_a_flag_wins_over_the_environment(onto, filled, monkeypatch):
    target = filled("sqlite-v2")
    monkeypatch.setenv("ONTOLOGIA_STORAGE_URI", "s3://elsewhere/prefix")
    assert target_of(onto(*INFO, *target.flags)) == f"sqlite {target.where}"


def test_two_targets_in_the_environment_are_a_conflict(onto, monkeypatch):
    monkeypatch.setenv("ONTOLOGIA_STORAGE_URI", "s3://elsewhere/prefix")
    monkeypatch.setenv("ONTOLOGIA_DB", "onto.db")
    onto("info").failed(2, "different targets")


def test_the_config_file_names_target_models_and_settings(onto, filled, tmp_path):
    target = filled("sqlite-v2")
    config = tmp_path / "onto.toml"
    config.write_text(f'db = "{target.where}"\nmodels = "myapp.models"\nlock_timeout_ms = 100\n')
    assert onto("verify", "-c", config).code == 0


def test_the_environment_names_the_config_file_and_wins_over_it(onto, filled, tmp_path, monkeypatch):
    target = filled("sqlite-v2")
    config = tmp_path / "onto.toml"
    config.write_text('db = "elsewhere.db"\n')
    monkeypatch.setenv("ONTOLOGIA_CONFIG", str(config))
    onto(*INFO).failed(5, "elsewhere.db")
    monkeypatch.setenv("ONTOLOGIA_DB", target.where)
    assert target_of(onto(*INFO)) == f"sqlite {target.where}"


def test_settings_of_the_config_file_reach_the_store(onto, filled, tmp_path, models):
    target = filled("sqlite-v2")
    (tmp_path / "onto.toml").write_text('lock_timeout_ms = 1\nsync_files = false\nruntime_id = "operator"\n')
    onto("export", *target.flags, "-o", "data")
    onto("import", "-c", "onto.toml", "--db", "new.db", "-i", "data", "--apply")
    assert onto("commits", "--db", "new.db", "--json").json["commits"][0]["runtime_id"] == "operator"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("db = ", "not TOML"),
        ("\x00", "not TOML"),
        ("colour = 'red'", "unknown setting colour"),
        ("db = 3", "db must be text"),
        ("max_batch_size = 'many'", "max_batch_size must be int"),
        ("max_batch_size = 0", "must be positive"),
        ("max_batch_size = true", "max_batch_size must be int"),
        ("sync_files = 1", "sync_files must be bool"),
        ("models = 3", "models must be"),
        ("log_level = 'LOUD'", "LOUD"),
        ("db = 'a.db'\nstorage_uri = 's3://bucket/prefix'", "different targets"),
    ],
)
def test_a_bad_config_file_is_a_usage_error(onto, tmp_path, content, word):
    (tmp_path / "onto.toml").write_text(content)
    onto("info", "--config", "onto.toml").failed(2, word)


def test_a_config_file_that_cannot_be_read_is_a_usage_error(onto, tmp_path):
    onto("info", "--config", "missing.toml").failed(2, "missing.toml", "cannot be read")
    onto("info", "--config", tmp_path).failed(2, "cannot be read")


def test_an_unknown_log_level_is_a_usage_error(onto, monkeypatch):
    monkeypatch.setenv("ONTOLOGIA_LOG_LEVEL", "shout")
    onto("info").failed(2, "SHOUT", "DEBUG")


# --- reads never write ---


@pytest.mark.parametrize(
    "arguments",
    [
        ("info",),
        ("verify", "--models", "myapp.models"),
        ("schema", "export"),
        ("schema", "history"),
        ("schema", "drop", "Customer"),
        ("migrate", "--models", "myapp.models"),
        ("query", "entities", "Customer"),
        ("commits",),
        ("commits", "examine", "--id", "1"),
        ("export", "--output", "data"),
    ],
    ids=" ".join,
)
def test_a_read_of_a_missing_file_fails_and_makes_none(onto, tmp_path, arguments):
    onto(*arguments, "--db", "missing.db").failed(5, "no ontology here yet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("info",),
        ("query", "entities", "Customer"),
        ("migrate", "--models", "myapp.models"),
        ("import", "--input", "data", "--apply"),
        ("export", "--output", "out"),
        ("commits",),
        ("index", "verify"),
        ("index", "repair"),
        ("compact",),
        ("vacuum",),
    ],
    ids=" ".join,
)
def test_a_prefix_that_is_not_initialized_fails_fast(onto, place, tmp_path, arguments):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.jsonl").write_text("")
    onto(*arguments, *place("s3-v2").flags).failed(5, "onto init")
    assert not (tmp_path / "store").exists() or not list((tmp_path / "store").rglob("*.json"))


def test_a_file_that_is_no_store_is_a_storage_error(onto, tmp_path):
    (tmp_path / "text.db").write_text("this is not a database, however long it may be" * 100)
    onto("info", "--db", "text.db").failed(5)


def test_a_folder_is_no_sqlite_store(onto, tmp_path):
    onto("info", "--db", tmp_path).failed(5, "folder")


# --- classes from modules and files ---


def test_classes_load_from_a_file(onto, filled, tmp_path):
    (tmp_path / "shop.py").write_text("from myapp.models import Customer, Product, Subscription\n")
    assert onto("verify", *filled("sqlite-v2").flags, "--models", "./shop.py").code == 0


def test_classes_load_from_a_package_folder_with_relative_imports(onto, filled, tmp_path):
    package = tmp_path / "shops"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import Customer\n")
    (package / "inner.py").write_text("from myapp.models import Customer\n")
    assert onto("verify", *filled("sqlite-v2").flags, "--models", "./shops").code == 0


def test_classes_load_from_a_module_in_the_working_directory(onto_command, filled, tmp_path):
    (tmp_path / "local_shop.py").write_text("from myapp.models import Customer\n")
    assert onto_command("verify", *filled("sqlite-v2").flags, "--models", "local_shop").code == 0


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("no.such.module", None, ("there is no module", "'no'")),
        ("./missing.py", None, ("there is no file",)),
        ("./broken.py", "def (", ("SyntaxError", "broken.py:1")),
        ("./failing.py", "x = 1\nraise RuntimeError('no luck')", ("RuntimeError: no luck", "failing.py:2")),
        ("./importing.py", "import nothing_of_that_name", ("nothing_of_that_name",)),
        ("./plain.py", "x = 1", ("no Entity or Relation class",)),
        ("./wrong.py", "from ontologia import Entity\nclass A(Entity): ...", ("exactly one primary key", "wrong.py:2")),
    ],
)
def test_models_that_cannot_be_loaded_are_a_usage_error(onto, filled, tmp_path, name, content, words):
    target = filled("sqlite-v2")
    if content is not None:
        (tmp_path / name).write_text(content)
    onto("verify", *target.flags, "--models", name).failed(2, name, *words)


def test_a_command_that_needs_classes_says_so(onto, filled):
    onto("verify", *filled("sqlite-v2").flags).failed(2, "--models")


def test_a_store_in_memory_answers(onto):
    assert onto("--storage-uri", "sqlite:///:memory:", "info").code == 0


def test_options_without_a_command_show_the_help(onto):
    answer = onto("--storage-uri", "s3://bucket/x")
    assert (answer.code, "Usage:" in answer.out) == (0, True)
