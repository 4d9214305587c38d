"""The public surface: every name resolves, every error has its own code, everything says what it is."""

import inspect

import pytest

import ontologia
from ontologia import errors

CONTRACT = [
    "Entity",
    "Relation",
    "Field",
    "Meta",
    "meta",
    "left",
    "right",
    "Ontology",
    "Session",
    "OntologiaConfig",
    "Event",
    "EventDeadLetter",
    "Schedule",
    "HandlerContext",
    "on_event",
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "upgrader",
    "load_upgraders",
    "MigrationPreview",
    "MigrationResult",
    "TypeSchemaDiff",
    "__version__",
]
ERRORS = sorted(
    (item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, errors.OntologiaError)),
    key=lambda item: item.__name__,
)
NAMED_ERRORS = [
    "MetadataUnavailableError",
    "SchemaOutdatedError",
    "MigrationError",
    "MigrationTokenError",
    "MissingUpgraderError",
    "HandlerError",
    "BatchSizeExceededError",
    "EventLoopLimitError",
    "LockContentionError",
    "HeadMismatchError",
    "LeaseExpiredError",
    "UninitializedStorageError",
    "StorageBackendError",
    "ValidationError",
    "ConcurrentWriteError",
    "CommitOutcomeUnknownError",
    "EngineVersionError",
]


@pytest.mark.parametrize("name", ontologia.__all__)
def test_every_public_name_resolves(name):
    assert getattr(ontologia, name) is not None


@pytest.mark.parametrize("name", CONTRACT)
def test_the_names_of_the_contract_are_public(name):
    assert name in ontologia.__all__


@pytest.mark.parametrize("error", ERRORS, ids=lambda item: item.__name__)
def test_every_error_is_public(error):
    assert getattr(ontologia, error.__name__) is error


@pytest.mark.parametrize("name", NAMED_ERRORS)
def test_the_errors_of_the_contract_are_in_the_tree(name):
    assert issubclass(getattr(ontologia, name), ontologia.OntologiaError)


def test_every_error_has_a_code_of_its_own():
    codes = [error.__dict__["code"] for error in ERRORS]
    assert len(codes) == len(set(codes))


def test_the_codes_are_stable():
    assert {error.__name__: error.code for error in ERRORS}.items() >= {
        "OntologiaError": "ontologia",
        "ValidationError": "validation",
        "MetadataUnavailableError": "metadata_unavailable",
        "BatchSizeExceededError": "batch_size_exceeded",
        "DropRefusedError": "drop_refused",
        "HandlerError": "handler",
        "EventLoopLimitError": "event_loop_limit",
        "SchemaOutdatedError": "schema_outdated",
        "MigrationError": "migration",
        "MigrationTokenError": "migration_token",
        "MissingUpgraderError": "missing_upgrader",
        "ConcurrentWriteError": "concurrent_write",
        "LockContentionError": "lock_contention",
        "HeadMismatchError": "head_mismatch",
        "LeaseExpiredError": "lease_expired",
        "CommitOutcomeUnknownError": "commit_outcome_unknown",
        "StorageBackendError": "storage_backend",
        "UninitializedStorageError": "uninitialized_storage",
        "EngineVersionError": "engine_version",
    }.items()


@pytest.mark.parametrize("name", [name for name in ontologia.__all__ if name != "__version__"])
def test_every_public_name_has_a_docstring(name):
    assert inspect.getdoc(getattr(ontologia, name))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = ontologia.no_such_name


def test_dir_lists_the_public_names():
    assert dir(ontologia) == sorted(ontologia.__all__)
