"""The pieces of output: plain values, sizes, control characters; and exit codes of every error."""

import sqlite3

import pytest

from ontologia import ImportConflictError, errors
from ontologia.cli import exits
from ontologia.cli.output import cell, count_noun, escape, plain, size

CODES = {
    "OntologiaError": 1,
    "ValidationError": 1,
    "MetadataUnavailableError": 1,
    "BatchSizeExceededError": 1,
    "DropRefusedError": 7,
    "SchemaOutdatedError": 3,
    "MigrationError": 4,
    "MigrationTokenError": 4,
    "MissingUpgraderError": 4,
    "ConcurrentWriteError": 4,
    "LockContentionError": 4,
    "HeadMismatchError": 4,
    "LeaseExpiredError": 4,
    "CommitOutcomeUnknownError": 5,
    "StorageBackendError": 5,
    "UninitializedStorageError": 5,
    "EngineVersionError": 5,
}


def raised(cls):
    return cls.__new__(cls)


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_every_error_ends_in_the_code_of_the_contract(name, code):
    assert exits.code_of(raised(getattr(errors, name))) == code


def test_every_error_of_the_tree_has_a_code():
    tree = [
        item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, errors.OntologiaError)
    ]
    assert all(0 < exits.code_of(raised(cls)) < 8 for cls in tree)


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (ImportConflictError("x"), 6),
        (exits.UsageError("x"), 2),
        (sqlite3.OperationalError("locked"), 5),
        (PermissionError(13, "no"), 5),
        (RuntimeError("surprise"), 1),
    ],
)
def test_other_failures(problem, code):
    assert exits.code_of(problem) == code


def test_a_message_of_many_lines_becomes_one():
    assert exits.one_line(errors.ValidationError("first\n  second")) == "first second"


def test_a_surprise_names_its_type():
    assert exits.one_line(RuntimeError("surprise")) == "RuntimeError: surprise"


def test_cells_are_one_line():
    assert cell("a\nb\tc") == r"a\nb\tc"
    assert cell(None) == "null"
    assert cell(True) == "true"
    assert cell({"a": [1, None]}) == '{"a": [1, null]}'
    assert escape("\x1b[31m") == r"\x1b[31m"
    assert escape("Näme ✓") == "Näme ✓"


def test_values_json_cannot_say_are_text():
    assert plain([float("nan"), float("-inf"), b"\x00"]) == ["NaN", "-Infinity", "00"]


def test_sizes_and_counts_read_well():
    assert [size(0), size(1023), size(1024), size(5 << 30)] == ["0 B", "1023 B", "1.0 KiB", "5.0 GiB"]
    assert [count_noun(1, "row"), count_noun(2000, "row")] == ["1 row", "2,000 rows"]


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ("raise max_removals. Nothing", "raise --max-removals. Nothing"),
        ("say so with max_removals=12.", "say so with --max-removals 12."),
        ("keep them with on_tie='greatest'", "keep them with --on-tie greatest"),
        ("it needs force=True", "it needs --force"),
        ('with map={"tier": "`Tier`", "a": "b"}, or', "with --map 'tier=`Tier`' --map 'a=b', or"),
        ("with allow_discard=True (--allow-discard)", "with --allow-discard"),
        ("a force of nature, Customer.on_tie and 'on_tie'", "a force of nature, Customer.on_tie and 'on_tie'"),
        ("engine='spark' is no option here", "engine='spark' is no option here"),
    ],
)
def test_errors_speak_of_options_and_not_of_arguments(said, typed):
    options = {
        "max_removals": "--max-removals",
        "on_tie": "--on-tie",
        "force": "--force",
        "map": "--map",
        "allow_discard": "--allow-discard",
    }
    assert exits.in_options(said, options) == typed
