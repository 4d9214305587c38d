"""Ontologia: typed data with history.

Declare entities and relations as classes, commit state, and query it now, as of any commit, or as history.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ontologia.config import OntologiaConfig
from ontologia.errors import (
    BackpressureError,
    BatchSizeExceededError,
    BranchError,
    CommitOutcomeUnknownError,
    ConcurrentWriteError,
    CopyMismatchError,
    CorruptFrameError,
    CorruptSidecarError,
    DiscardError,
    DropRefusedError,
    EngineVersionError,
    ErasureIncompleteError,
    ErasureRefusedError,
    EventLoopLimitError,
    ExpectedVersionMismatchError,
    ForgetRefusedError,
    FrameSchemaError,
    GraphValidationError,
    HandlerError,
    HeadMismatchError,
    HistoryCutError,
    HistoryForgottenError,
    HistoryGapError,
    ImportConflictError,
    LeaseExpiredError,
    LockContentionError,
    MergeConflictError,
    MetadataUnavailableError,
    MigrationError,
    MigrationLockError,
    MigrationTokenError,
    MissingExtraError,
    MissingUpgraderError,
    OntologiaError,
    PartitionLimitError,
    ReadOnlyStoreError,
    RecoveryPendingError,
    RemovalLimitError,
    RemovalsUnsupportedError,
    SchemaOutdatedError,
    StaleObjectError,
    StaleRow,
    StorageBackendError,
    SumOverflowError,
    TableDriftError,
    TaskAbandonedError,
    UnfinishedCopyError,
    UninitializedStorageError,
    UnknownNameError,
    UnreadableFileError,
    UnsupportedStatementError,
    ValidationError,
)
from ontologia.model import Entity, Field, Meta, Relation, TypeSchemaDiff, build_type_spec, left, meta, right

if TYPE_CHECKING:
    from ontologia.engines.dispatch import open_repository
    from ontologia.engines.initializing import initialize_storage
    from ontologia.engines.targets import parse_storage_target
    from ontologia.model.upgraders import load_upgraders, upgrader
    from ontologia.query.aggregates import avg, count, max, min, sum
    from ontologia.query.results import Path, Result
    from ontologia.runtime.events.feeds import CommitFeed
    from ontologia.runtime.events.handlers import HandlerContext, on_event
    from ontologia.runtime.events.schedules import Schedule
    from ontologia.runtime.events.types import CommitMade, Event, EventDeadLetter
    from ontologia.runtime.migration import MigrationPreview, MigrationResult
    from ontologia.runtime.ontology import Ontology
    from ontologia.runtime.session import Session
    from ontologia.runtime.transfer import copy_history, export_data, import_data

__version__ = "0.4.0"

# What needs the query compiler or a storage engine is imported when it is first asked for.
_LATER = {
    "CommitFeed": "runtime.events.feeds",
    "CommitMade": "runtime.events.types",
    "Event": "runtime.events.types",
    "EventDeadLetter": "runtime.events.types",
    "HandlerContext": "runtime.events.handlers",
    "MigrationPreview": "runtime.migration",
    "MigrationResult": "runtime.migration",
    "Ontology": "runtime.ontology",
    "Path": "query.results",
    "Result": "query.results",
    "Schedule": "runtime.events.schedules",
    "Session": "runtime.session",
    "avg": "query.aggregates",
    "copy_history": "runtime.transfer",
    "count": "query.aggregates",
    "export_data": "runtime.transfer",
    "import_data": "runtime.transfer",
    "initialize_storage": "engines.initializing",
    "load_upgraders": "model.upgraders",
    "max": "query.aggregates",
    "min": "query.aggregates",
    "on_event": "runtime.events.handlers",
    "open_repository": "engines.dispatch",
    "parse_storage_target": "engines.targets",
    "sum": "query.aggregates",
    "upgrader": "model.upgraders",
}

__all__ = [
    "BackpressureError",
    "BatchSizeExceededError",
    "BranchError",
    "CommitFeed",
    "CommitMade",
    "CommitOutcomeUnknownError",
    "ConcurrentWriteError",
    "CopyMismatchError",
    "CorruptFrameError",
    "CorruptSidecarError",
    "DiscardError",
    "DropRefusedError",
    "EngineVersionError",
    "Entity",
    "ErasureIncompleteError",
    "ErasureRefusedError",
    "Event",
    "EventDeadLetter",
    "EventLoopLimitError",
    "ExpectedVersionMismatchError",
    "Field",
    "ForgetRefusedError",
    "FrameSchemaError",
    "GraphValidationError",
    "HandlerContext",
    "HandlerError",
    "HeadMismatchError",
    "HistoryCutError",
    "HistoryForgottenError",
    "HistoryGapError",
    "ImportConflictError",
    "LeaseExpiredError",
    "LockContentionError",
    "MergeConflictError",
    "Meta",
    "MetadataUnavailableError",
    "MigrationError",
    "MigrationLockError",
    "MigrationPreview",
    "MigrationResult",
    "MigrationTokenError",
    "MissingExtraError",
    "MissingUpgraderError",
    "OntologiaConfig",
    "OntologiaError",
    "Ontology",
    "PartitionLimitError",
    "Path",
    "ReadOnlyStoreError",
    "RecoveryPendingError",
    "Relation",
    "RemovalLimitError",
    "RemovalsUnsupportedError",
    "Result",
    "Schedule",
    "SchemaOutdatedError",
    "Session",
    "StaleObjectError",
    "StaleRow",
    "StorageBackendError",
    "SumOverflowError",
    "TableDriftError",
    "TaskAbandonedError",
    "TypeSchemaDiff",
    "UnfinishedCopyError",
    "UninitializedStorageError",
    "UnknownNameError",
    "UnreadableFileError",
    "UnsupportedStatementError",
    "ValidationError",
    "__version__",
    "avg",
    "build_type_spec",
    "copy_history",
    "count",
    "export_data",
    "import_data",
    "initialize_storage",
    "left",
    "load_upgraders",
    "max",
    "meta",
    "min",
    "on_event",
    "open_repository",
    "parse_storage_target",
    "right",
    "sum",
    "upgrader",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'ontologia' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"ontologia.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
