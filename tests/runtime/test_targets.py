"""Where an ontology lives: `db_path`, `storage_uri`, both, or neither (RFC 0004 §1.1)."""

import os
from dataclasses import fields

import pytest

from ontologia import Entity, Field, OntologiaConfig, Ontology, Session, ValidationError, parse_storage_target


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(**target):
    """The first commit makes the file."""
    with Ontology(**target, entity_types=[Thing]) as onto, onto.session() as session:
        session.ensure(Thing(id="a"))


def test_the_first_argument_is_a_path(folder):
    written(db_path="mine.db")
    assert (folder / "mine.db").exists()


def test_neither_means_onto_db_in_the_working_directory(folder):
    written()
    assert (folder / "onto.db").exists()


def test_a_uri_with_three_slashes_is_relative(folder):
    written(storage_uri="sqlite:///mine.db")
    assert (folder / "mine.db").exists()


def test_a_uri_with_four_slashes_is_absolute(folder):
    written(storage_uri=f"sqlite:///{folder}/mine.db")
    assert (folder / "mine.db").exists()


def test_a_uri_may_escape_characters(folder):
    written(storage_uri="sqlite:///my%20data.db")
    assert (folder / "my data.db").exists()


def test_both_may_mean_the_same_file(folder):
    written(db_path="mine.db", storage_uri=f"sqlite:///{folder}/mine.db")
    assert (folder / "mine.db").exists()


def test_both_with_different_files_are_refused_and_nothing_is_made(folder):
    with pytest.raises(ValidationError, match=r"one\.db.*other\.db"):
        Ontology("one.db", storage_uri="sqlite:///other.db")
    assert os.listdir(folder) == []


def test_a_path_and_a_bucket_are_refused(folder):
    with pytest.raises(ValidationError, match="different targets"):
        Ontology("one.db", storage_uri="s3://bucket/prefix")


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite:///", "sqlite:x.db", "sqlite://x.db", "ftp://x/y", "mine.db", ""])
def test_a_uri_that_names_nothing_is_refused(folder, uri):
    with pytest.raises(ValidationError):
        Ontology(storage_uri=uri)


def test_an_empty_path_is_refused(folder):
    with pytest.raises(ValidationError, match="empty"):
        Ontology("")


def test_a_path_like_is_a_path(tmp_path):
    with Ontology(tmp_path / "mine.db") as onto:
        assert onto.storage_info()["db_path"] == str(tmp_path / "mine.db")


def test_storage_uri_is_keyword_only():
    with pytest.raises(TypeError):
        Ontology(None, None, "sqlite:///x.db")


@pytest.mark.parametrize("target", ["mine.db", "sqlite:///mine.db"])
def test_a_session_takes_a_path_or_a_uri(folder, target):
    with Session(target, entity_types=[Thing]) as session:
        session.ensure(Thing(id="1"))
    assert (folder / "mine.db").exists()


def test_a_target_knows_its_uri():
    assert parse_storage_target("x.db").uri == "sqlite:///x.db"


@pytest.mark.parametrize("setting", ["max_batch_size", "lock_timeout_ms", "s3_lease_ttl_ms"])
def test_a_setting_must_be_positive(setting):
    with pytest.raises(ValueError, match=setting):
        OntologiaConfig(**{setting: 0})


def test_a_setting_of_another_type_is_refused_and_named():
    for item in fields(OntologiaConfig):
        with pytest.raises((TypeError, ValueError), match=rf"OntologiaConfig\.{item.name} (must be|is) .*, not \["):
            OntologiaConfig(**{item.name: ["7"]})
    for setting, value in (
        ("compact_after_commits", "7"),
        ("lock_timeout_ms", 1.5),
        ("cache_max_bytes", True),
        ("event_max_attempts", None),
        ("sync_files", 1),
        ("s3_region", 3),
    ):
        with pytest.raises(TypeError, match=f"{setting} must be .*, not {value!r}"):
            OntologiaConfig(**{setting: value})
    with pytest.raises(ValueError, match="must be positive, not nan"):
        OntologiaConfig(s3_request_timeout_s=float("nan"))


def test_a_cache_directory_may_be_a_path(tmp_path):
    assert OntologiaConfig(cache_directory=tmp_path).cache_directory == str(tmp_path)


def test_credentials_are_no_settings():
    with pytest.raises(TypeError):
        OntologiaConfig(s3_secret_access_key="x")


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("max_batch_size", 10_000),
        ("runtime_id", None),
        ("s3_region", None),
        ("s3_endpoint_url", None),
        ("s3_lock_timeout_ms", 5_000),
        ("s3_lease_ttl_ms", 30_000),
        ("s3_request_timeout_s", 10.0),
        ("s3_duckdb_memory_limit", "256MB"),
        ("sync_files", True),
        ("default_namespace", "default"),
    ],
)
def test_the_settings_have_the_defaults_of_the_contract(name, default):
    assert getattr(OntologiaConfig(), name) == default
