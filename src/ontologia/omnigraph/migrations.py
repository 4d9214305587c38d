"""The shape of `__manifest` on disk, and how an older one becomes today's: one stamp, one dispatcher.

A new shape is a new constant, a new step here and a test. No other code looks at the stamp. Steps can be run again
after a crash, and by two processes at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ontologia.errors import EngineVersionError, OntologiaError
from ontologia.omnigraph.datasets import Datasets, cleans_itself, stop_cleaning, translate_errors
from ontologia.omnigraph.manifest import PRIMARY_KEY
from ontologia.omnigraph.names import MANIFEST

if TYPE_CHECKING:
    from lance import LanceDataset

INTERNAL_SCHEMA_VERSION = 3
STAMP = "omnigraph:internal_schema_version"
LEGACY_RUN_PREFIX = "__run__"
LOST_RACES = 5  #: with other processes that open the same old graph


def stamp_of(dataset: LanceDataset) -> int:
    """The stamp; a graph older than stamps counts as 1."""
    text = (dataset.schema.metadata or {}).get(STAMP.encode(), b"").decode()
    return int(text) if text.isdecimal() else 1


def check_stamp(dataset: LanceDataset) -> int:
    """Refuse what a newer release wrote, also for reading: an unknown shape is not a missing stamp."""
    found = stamp_of(dataset)
    if found > INTERNAL_SCHEMA_VERSION:
        raise EngineVersionError(
            f"{dataset.uri}: this graph has internal schema version {found}, and this release knows up to "
            f"{INTERNAL_SCHEMA_VERSION}: upgrade ontologia first",
            context={"path": dataset.uri},
        )
    return found


def check_row_ids(dataset: LanceDataset) -> None:
    """Refuse to write where rows do not know the version that published them: every state would look like the first.
    Lance can add this to no dataset that was made without it."""
    if not dataset.has_stable_row_ids:
        raise EngineVersionError(
            f"{dataset.uri}: this graph was made without stable row ids, which cannot be added later: open it "
            "read-only, export it, and load that into a new graph",
            context={"path": dataset.uri},
        )


def is_outdated(datasets: Datasets) -> bool:
    """Whether main has something to migrate."""
    dataset = datasets.open(MANIFEST)
    check_row_ids(dataset)
    return check_stamp(dataset) < INTERNAL_SCHEMA_VERSION or bool(cleans_itself(dataset))


def migrate(datasets: Datasets, branch: str | None = None) -> LanceDataset:
    """Bring `__manifest` on a branch to this release's shape. When the stamp is right, this is one metadata read."""
    dataset = datasets.open(MANIFEST, branch)
    check_row_ids(dataset)
    found = check_stamp(dataset)
    lost = 0
    while found < INTERNAL_SCHEMA_VERSION or cleans_itself(dataset):
        try:
            if found < INTERNAL_SCHEMA_VERSION:
                _STEPS[found](datasets, dataset, branch)
                stamp(dataset, found + 1)
            else:
                stop_cleaning(dataset)
        except OntologiaError:
            lost += 1
            if lost > LOST_RACES:
                raise
        dataset = datasets.open(MANIFEST, branch)  # another process may have done the step, or more of them
        found = check_stamp(dataset)
    return dataset


def stamp(dataset: LanceDataset, version: int) -> None:
    with translate_errors("stamp", dataset.uri):
        dataset.update_schema_metadata({STAMP: str(version)})


def _key_object_ids(datasets: Datasets, dataset: LanceDataset, branch: str | None) -> None:
    """1 → 2: `object_id` becomes the key that concurrent publishes are told apart by."""
    field = dataset.schema.field("object_id")
    if PRIMARY_KEY.encode() not in (field.metadata or {}):  # Lance refuses to set it twice
        with translate_errors("annotate", dataset.uri):
            dataset.update_field_metadata({"object_id": {PRIMARY_KEY: "true"}})


def _sweep_run_branches(datasets: Datasets, dataset: LanceDataset, branch: str | None) -> None:
    """2 → 3: staging branches of the Run state machine, which no release has had since, go. They go with main, once
    for the graph: when another branch gets here, a branch with such a name is somebody's own."""
    if branch is not None:
        return
    for name in sorted(datasets.branches(MANIFEST), key=len, reverse=True):
        if name.lstrip("/").startswith(LEGACY_RUN_PREFIX):
            datasets.drop_branch(MANIFEST, name)


_STEPS: dict[int, Callable[[Datasets, LanceDataset, str | None], None]] = {1: _key_object_ids, 2: _sweep_run_branches}
