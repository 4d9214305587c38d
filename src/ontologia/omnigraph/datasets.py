"""Lance, and the only door to it (L1): open, create, stage and commit datasets of a graph, exactly.

Lance rebases: a commit made on version 5 may land as version 7, on top of what others wrote meanwhile. A graph pins
exact versions, so every commit here says on which version it builds and is refused unless it lands as the next one.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ontologia.errors import ConcurrentWriteError, OntologiaError, StorageBackendError, ValidationError
from ontologia.extras import need
from ontologia.files.quoting import quote_text
from ontologia.objects import Objects
from ontologia.omnigraph.names import branch_path

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

DATA_FORMAT = "2.2"
OPERATION = "omnigraph:operation_id"  #: in the properties of every Lance transaction that a graph write makes
INDEX_CACHE_BYTES, METADATA_CACHE_BYTES = 256 << 20, 64 << 20  #: Lance's own limits are gigabytes, per graph
_log = logging.getLogger(__name__)


class ForeignCommitError(ConcurrentWriteError):
    """A commit landed on top of somebody else's: the table must be put back before it is published."""


class Datasets:
    """The Lance datasets below one root."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.options = storage_options(objects)
        self._session: Any = None

    def uri(self, path: str) -> str:
        local = self.objects.local_path(path)
        return str(local) if local is not None else self.objects.url(path)

    # --- opening ---

    def open(self, path: str, branch: str | None = None, version: int | None = None) -> LanceDataset:
        """A dataset at a version of a branch, the newest by default; None is the main lineage."""
        found = self.find(path, branch, version)
        if found is None:
            where = self.uri(branch_path(path, branch))
            what = "there is no dataset" if version is None else f"there is no version {version} of the dataset"
            raise StorageBackendError(
                f"{what} at {where}, which the graph refers to: restore it from a backup, or look at who deleted it",
                context={"path": where, "version": version},
            )
        return found

    def find(self, path: str, branch: str | None = None, version: int | None = None) -> LanceDataset | None:
        import lance

        if self._session is None:
            self._session = lance.Session(INDEX_CACHE_BYTES, METADATA_CACHE_BYTES)
        place = self.uri(branch_path(path, branch))
        try:
            found = lance.dataset(place, version=version, storage_options=self.options, session=self._session)
            return found if branch is None else self._at_home(found, path)
        except (ValueError, OSError) as problem:
            if is_missing(problem):
                return None
            raise lance_error("open", place, problem) from problem

    def _at_home(self, dataset: LanceDataset, path: str) -> LanceDataset:
        """A branch names, by absolute paths, the lineages whose files it shares. Where the root was copied or moved
        since, it is opened with the paths it would have now."""
        home = self.uri(path)
        places = {base.path for base in dataset.base_paths().values()}
        if all(place == home or place.startswith(f"{home}/tree/") for place in places):
            return dataset
        manifest = rebase_manifest(dataset._ds.serialized_manifest(), path, home)
        return lance_dataset()(
            dataset.uri,
            dataset.version,
            storage_options=self.options,
            serialized_manifest=manifest,
            session=self._session,
        )

    def create(self, path: str, rows: pa.Table, operation_id: str | None = None) -> LanceDataset:
        """A new dataset with stable row ids, which Lance takes only at creation.

        A create races silently in Lance; an overwrite of version 0 does not.
        """
        transaction = lance_transaction(
            0, lance_operations().Overwrite(rows.schema, self._fragments(rows, self.uri(path)))
        )
        transaction.transaction_properties = {} if operation_id is None else {OPERATION: operation_id}
        with translate_errors("create", self.uri(path)):
            return lance_dataset().commit(
                self.uri(path),
                transaction,
                max_retries=0,
                storage_options=self.options,
                enable_stable_row_ids=True,
                enable_v2_manifest_paths=True,
            )

    def _fragments(self, rows: pa.Table, place: Any) -> Any:
        from lance.fragment import write_fragments

        options = {"schema": rows.schema, "mode": "create", "storage_options": self.options}
        return write_fragments(rows, place, enable_stable_row_ids=True, data_storage_version=DATA_FORMAT, **options)

    # --- staging: bytes are written, nothing is visible ---

    def stage_upsert(self, dataset: LanceDataset, rows: pa.Table, on: str = "id") -> Any:
        """Replace rows by key and add the others. An index on the key would only slow it down."""
        if dataset.count_rows() == 0:
            return self.stage_append(dataset, rows)
        with translate_errors("stage", dataset.uri):
            builder = dataset.merge_insert(on).when_matched_update_all().when_not_matched_insert_all()
            transaction, _ = builder.conflict_retries(0).use_index(False).execute_uncommitted(rows)
        return transaction

    def stage_append(self, dataset: LanceDataset, rows: pa.Table | Iterator[pa.RecordBatch]) -> Any:
        return self._stage(dataset, rows, "append")

    def stage_overwrite(self, dataset: LanceDataset, rows: pa.Table) -> Any:
        """All rows and the schema anew; stable row ids stay on."""
        return self._stage(dataset, rows, "overwrite")

    def _stage(self, dataset: LanceDataset, rows: Any, mode: str) -> Any:
        from lance.fragment import write_fragments

        with translate_errors("stage", dataset.uri):
            return write_fragments(
                rows,
                dataset,
                schema=getattr(rows, "schema", None),
                mode=mode,
                return_transaction=True,
                storage_options=self.options,
                enable_stable_row_ids=True,
                data_storage_version=DATA_FORMAT,
            )

    def stage_delete(self, dataset: LanceDataset, ids: Sequence[str], column: str = "id") -> Any | None:
        """Remove rows by id; None where there is nothing to remove, since even that would be a version."""
        operations = lance_operations()
        updated, removed = [], []
        predicate = is_in(column, ids)
        with translate_errors("stage", dataset.uri):
            found = dataset.scanner(columns=[], filter=predicate, with_row_address=True).to_table()
            touched = {address >> 32 for address in found.column("_rowaddr").to_pylist()}
            for fragment in dataset.get_fragments():
                if fragment.fragment_id in touched:
                    left = fragment.delete(predicate)
                    if left is None:
                        removed.append(fragment.fragment_id)
                    else:
                        updated.append(left)
        if not touched:
            return None
        return lance_transaction(dataset.version, operations.Delete(updated, removed, "id IN (…)"))

    # --- committing, exactly ---

    def commit(self, dataset: LanceDataset, transaction: Any, operation_id: str) -> LanceDataset:
        """Commit what was staged on this very version; refused if it landed on top of another commit."""
        transaction.transaction_properties = {OPERATION: operation_id}
        with translate_errors("commit", dataset.uri):
            committed = lance_dataset().commit(
                dataset, transaction, max_retries=0, storage_options=self.options, enable_stable_row_ids=True
            )
        return require_version(committed, dataset.version + 1)

    def restore(self, path: str, branch: str | None, version: int) -> LanceDataset:
        """Make an old version the newest again, as a new version of the same content."""
        dataset = self.open(path, branch, version)
        with translate_errors("restore", dataset.uri):
            dataset.restore()
        return self.open(path, branch)

    def metadata(self, dataset: LanceDataset, path: str, branch: str | None) -> dict[str, Any]:
        """What a manifest row says of a pinned version file. For readers of the original: we never open by this path,
        which goes stale when a root is moved, but by location and version."""
        file = f"{branch_path(path, branch)}/_versions/{2**64 - 1 - dataset.version:020d}.manifest"
        local = self.objects.local_path(file)
        place = self.objects.url(file).removeprefix(f"{self.objects.backend.root}/") if local is None else str(local)
        return {
            "manifest_path": place.removeprefix("/"),
            "manifest_size": None,
            "e_tag": None,
            "naming_scheme": "V2",
        }

    # --- branches of a dataset ---

    def branches(self, path: str, dataset: LanceDataset | None = None) -> dict[str, Any]:
        """The branches of a dataset. Lance lists, then reads each: one that goes in between makes it fail."""
        dataset = dataset or self.open(path)
        for attempt in range(10):
            try:
                return dict(dataset.branches.list())
            except (ValueError, OSError) as problem:
                if not is_missing(problem) or attempt == 9:
                    raise lance_error("list branches of", dataset.uri, problem) from problem
        raise AssertionError("unreachable")

    def branch_names(self, path: str) -> list[str]:
        """Their names alone: Lance keeps a file per branch, and reads all of them to list them."""
        folder = f"{path}/_refs/branches/"
        found = (info.key.removeprefix(folder) for info in self.objects.list(folder))
        return sorted(unquote(name.removesuffix(".json")) for name in found if name.endswith(".json"))

    def fork(self, path: str, branch: str, source: str | None, version: int) -> LanceDataset:
        """Make a branch from a version, and open it. What a crash left of a branch of that name goes first."""
        self.make_branch(self.open(path), path, branch, source, version)
        return self.open(path, branch)

    def make_branch(self, dataset: LanceDataset, path: str, branch: str, source: str | None, version: int) -> None:
        """The same on a dataset that is open, in as few requests as Lance needs: leftovers are looked for only where
        they are in the way."""
        for attempt in range(2):
            try:
                with translate_errors("branch", dataset.uri):
                    dataset.create_branch(branch, (source, version), storage_options=self.options)
                return
            except StorageBackendError:
                if attempt:
                    raise
                if branch in self.branches(path, dataset):
                    self.drop_branch(path, branch)
                elif self.find(path, branch) is not None:
                    self._remove_tree(path, branch)  # files without a ref: a create or a delete that stopped halfway
                else:
                    raise

    def drop_branch(self, path: str, branch: str) -> None:
        """Delete a branch; one that is gone already is fine, as Lance's own forced delete has it."""
        dataset = self.open(path)
        try:
            dataset.branches.delete(branch)
        except (ValueError, OSError) as problem:
            if branch in self.branch_names(path):
                raise lance_error("delete a branch of", dataset.uri, problem) from problem
        self._remove_tree(path, branch)

    def clear_branch(self, path: str, branch: str) -> None:
        """Remove what a crash left of a branch, so that files can be put where it will be."""
        if self.find(path) is not None and branch in self.branches(path):
            self.drop_branch(path, branch)
        else:
            self._remove_tree(path, branch)

    def _remove_tree(self, path: str, branch: str) -> None:
        tree = f"{path}/tree/{branch}/"
        self.objects.delete_many([info.key for info in self.objects.list(tree)])


# --- Lance's cleanup of its own accord, which knows nothing of what a graph pins ---

_AUTO_CLEANUP = "lance.auto_cleanup."


def cleans_itself(dataset: LanceDataset) -> list[str]:
    """The settings by which commits to a dataset delete old versions of it; older releases of the original set them."""
    return sorted(key for key in dataset.config() if key.startswith(_AUTO_CLEANUP))


def stop_cleaning(dataset: LanceDataset) -> None:
    """Take these settings away, for good, in a version of its own."""
    with translate_errors("configure", dataset.uri):
        dataset.delete_config_keys(cleans_itself(dataset))


def stage_stop_cleaning(dataset: LanceDataset) -> Any:
    operations = lance_operations()
    updates = operations.UpdateMap(dict.fromkeys(cleans_itself(dataset)), replace=False)
    return lance_transaction(dataset.version, operations.UpdateConfig(config_updates=updates))


# --- Lance's own manifest, as far as it has absolute paths ---

_BASE_PATHS, _PATH = 18, 4  #: in Lance's protobuf: the bases of a manifest, and the path of a base


def rebase_manifest(manifest: bytes, path: str, home: str) -> bytes:
    """A manifest of Lance whose bases, lineages of the dataset at `path`, lie below `home`."""

    def moved(place: bytes) -> bytes:
        text = place.decode()
        _, inside, branch = text.rpartition(f"/{path}/tree/")
        return (f"{home}/tree/{branch}" if inside else home if text.endswith(f"/{path}") else text).encode()

    parts = []
    for number, raw, content in _protobuf_fields(manifest):
        if number == _BASE_PATHS and content is not None:
            base = [
                _protobuf_bytes(_PATH, moved(inner)) if name == _PATH and inner is not None else part
                for name, part, inner in _protobuf_fields(content)
            ]
            raw = _protobuf_bytes(_BASE_PATHS, b"".join(base))
        parts.append(raw)
    return b"".join(parts)


def _protobuf_fields(data: bytes) -> Iterator[tuple[int, bytes, bytes | None]]:
    """The fields of a message: number, all of its bytes, and what it holds where that is bytes."""
    place = 0
    while place < len(data):
        start, content = place, None
        tag, place = _varint(data, place)
        kind = tag & 7
        if kind == 0:
            _, place = _varint(data, place)
        elif kind == 2:
            size, place = _varint(data, place)
            content = data[place : place + size]
            place += size
        else:
            place += 8 if kind == 1 else 4
        yield tag >> 3, data[start:place], content


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place


def _protobuf_bytes(number: int, content: bytes) -> bytes:
    return _as_varint(number << 3 | 2) + _as_varint(len(content)) + content


def _as_varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def require_version(dataset: LanceDataset, expected: int) -> LanceDataset:
    if dataset.version != expected:
        raise ForeignCommitError(
            f"{dataset.uri}: a commit meant as version {expected} is {dataset.version}, on top of another writer's"
        )
    return dataset


def operation_of(dataset: LanceDataset, version: int) -> tuple[str, str | None]:
    """What a version did: the kind of Lance operation, and the graph operation it belongs to."""
    try:
        transaction = dataset.read_transaction(version)
    except (ValueError, OSError):
        return "Unreadable", None
    except TypeError as problem:  # pylance cannot build the Python face of a rewrite that also moved indexes
        return ("Rewrite" if "RewrittenIndex" in str(problem) else "Unreadable"), None
    if transaction is None:
        return "Unreadable", None
    properties: Mapping[str, str] = transaction.transaction_properties or {}
    return type(transaction.operation).__name__, properties.get(OPERATION)


def is_in(column: str, values: Sequence[str]) -> str:
    """A filter in Lance's SQL. An empty list matches nothing."""
    return f"`{column}` IN ({', '.join(map(quote_text, values))})" if values else "false"


def is_missing(problem: Exception) -> bool:
    text = str(problem)
    return "was not found" in text or "Not found" in text


def is_contention(problem: Exception) -> bool:
    """Lance has no type for a lost race."""
    text = str(problem)
    return "Too many concurrent writers" in text or "Retryable commit conflict" in text or "commit conflict" in text


def lance_error(operation: str, place: str, problem: Exception) -> StorageBackendError:
    first = str(problem).partition(", /home")[0].partition("\n")[0]
    return StorageBackendError(
        f"could not {operation} {place}: {first}", context={"operation": operation, "path": place}
    )


@contextmanager
def translate_errors(operation: str, place: str) -> Iterator[None]:
    try:
        yield
    except OntologiaError:
        raise
    except (OSError, ValueError, RuntimeError) as problem:
        if is_contention(problem):
            raise ForeignCommitError(f"could not {operation} {place}: another writer was there first") from problem
        raise lance_error(operation, place, problem) from problem


def storage_options(objects: Objects) -> dict[str, str] | None:
    """How Lance reaches the store that these objects are in; an error where there is no Lance, or it cannot."""
    need("lance", "a graph")
    scheme = objects.backend.root.partition("://")[0]
    if scheme == "file":
        return None
    if scheme != "s3":
        raise ValidationError(f"a graph lives in a directory or on s3://, not on {scheme}://: {objects.uri}")
    connector: Any = objects.backend.connect  # type: ignore[attr-defined]
    # Under the names of the environment: what stands there would win over an option that is called otherwise.
    options = {
        "aws_region": connector.chosen_region,
        "aws_virtual_hosted_style_request": str(not connector.path_style).lower(),
        "aws_allow_http": str(connector.allow_http).lower(),
        "timeout": f"{connector.request_timeout_s:g}s",
    }
    if connector.endpoint is not None:
        options |= dict.fromkeys(("aws_endpoint", "aws_endpoint_url", "aws_endpoint_url_s3"), connector.endpoint)
    keys = connector.plain_credentials() or {}
    options |= {f"aws_{name}": value for name, value in keys.items()}
    if connector.has_other_token(keys):
        options["aws_session_token"] = ""
    return options


def lance_dataset() -> Any:
    import lance

    return lance.LanceDataset


def lance_operations() -> Any:
    return _module().LanceOperation


def lance_transaction(read_version: int, operation: Any) -> Any:
    return _module().Transaction(read_version, operation)


def _module() -> Any:
    import lance  # noqa: F401 — which loads its parts

    return sys.modules["lance.dataset"]  # `lance.dataset` itself is the function that opens one


Commit = Callable[["LanceDataset", Any], "LanceDataset"]
