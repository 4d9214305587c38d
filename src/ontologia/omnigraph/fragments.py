"""Fragments that others wrote: files of a dataset that no version has yet, until a commit takes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ontologia.errors import StorageBackendError
from ontologia.omnigraph.datasets import DATA_FORMAT, Datasets, lance_operations, lance_transaction, translate_errors
from ontologia.omnigraph.names import branch_path

if TYPE_CHECKING:
    from lance import LanceDataset

FILE_BATCH_ROWS = 65_536


@dataclass(frozen=True)
class StagedFragments:
    """Fragments that are written and not committed: where their dataset lies, its columns, what Lance says of them."""

    place: str
    schema: pa.Schema
    fragments: Sequence[str]

    @property
    def keys(self) -> list[str]:
        """The objects they consist of."""
        return [f"{self.place}/data/{file['path']}" for text in self.fragments for file in json.loads(text)["files"]]


def stage_fragments(datasets: Datasets, path: str, branch: str | None, rows: pa.Table) -> list[str]:
    """Write rows into files of a dataset, which may not be there yet, and describe them as Lance does.

    Our datasets number their columns from 0 in the order of the schema, so fragments fit the one they are meant for
    whether it exists, will be created, or will be written anew.
    """
    from lance.fragment import write_fragments

    found = datasets.find(path, branch)
    known = found is not None and found.schema.names == rows.schema.names
    mode = "create" if found is None else ("append" if known else "overwrite")
    place = datasets.uri(branch_path(path, branch))
    with translate_errors("stage", place):
        written = write_fragments(
            rows,
            place,
            schema=rows.schema,
            mode=mode,
            storage_options=datasets.options,
            enable_stable_row_ids=True,
            data_storage_version=DATA_FORMAT,
        )
    return [json.dumps(fragment.to_json()) for fragment in written]


def commit_of_files(datasets: Datasets, dataset: LanceDataset, files: StagedFragments, *, replace_all: bool) -> Any:
    """A commit of fragments that lie there already: beside the others, or in place of all."""
    from lance.fragment import FragmentMetadata

    missing = [key for key in files.keys if not datasets.objects.exists(key)]
    if missing:
        raise StorageBackendError(
            f"{len(missing)} staged files of {dataset.uri} are gone, as {datasets.objects.url(missing[0])}: stage the "
            "rows again",
            context={"path": dataset.uri},
        )
    fragments = [FragmentMetadata.from_json(text) for text in files.fragments]
    operations = lance_operations()
    operation = operations.Overwrite(files.schema, fragments) if replace_all else operations.Append(fragments)
    return lance_transaction(dataset.version, operation)


def rows_of_files(
    datasets: Datasets, files: StagedFragments, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of staged fragments, a batch at a time."""
    from lance.file import LanceFileReader

    for key in files.keys:
        place = datasets.uri(key)
        with translate_errors("read", place):
            reader = LanceFileReader(place, datasets.options, None if columns is None else list(columns))
            for batch in reader.read_all(batch_size=FILE_BATCH_ROWS).to_batches():
                yield pa.Table.from_batches([batch])
