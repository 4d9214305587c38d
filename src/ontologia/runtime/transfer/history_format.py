"""What an export says of a history beside its rows: the log, in a file of its own; in the header the schema versions
with their files, and the types that were dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ontologia.engines.base import Engine
from ontologia.engines.catalog import Commit, SchemaVersion
from ontologia.engines.features import FORGOTTEN, REMOVALS
from ontologia.engines.history import Past
from ontologia.errors import UnreadableFileError, ValidationError
from ontologia.model import TypeRef, TypeSchema

HEADER = "export.json"
HISTORY = "history"
COMMITS = "commits.ndjson"


@dataclass(frozen=True, slots=True)
class ExportedHistory:
    """The history in an export: all of it, up to a head. `files` has where the rows of a version are, below the folder;
    a folder of parts, if Spark wrote them."""

    past: Past
    files: Mapping[tuple[TypeRef, int], str] = field(default_factory=dict)
    has_removals: bool = False

    def body(self) -> dict[str, Any]:
        """What the header of an export says, under `history`."""
        return {
            "commits": COMMITS,
            "removals": self.has_removals,
            "versions": [
                {
                    "kind": version.ref.kind,
                    "type": version.ref.name,
                    "schema_version_id": version.schema_version_id,
                    "created_at": version.created_at,
                    "activation_commit_id": version.activation_commit_id,
                    "file": self.files.get((version.ref, version.schema_version_id)),
                    "schema": version.schema.to_json(),
                }
                for version in self.past.versions
            ],
            "dropped": [
                {"kind": ref.kind, "type": ref.name, "commit_id": commit_id, "purged": ref in self.past.purged}
                for ref, commit_id in sorted(self.past.dropped.items())
            ],
        }

    @classmethod
    def read(cls, header: Mapping[str, Any]) -> Self:
        body = header[HISTORY]
        versions, files = [], {}
        for item in body["versions"]:
            ref, number = TypeRef(item["kind"], item["type"]), item["schema_version_id"]
            schema = TypeSchema.from_json(item["schema"])
            versions.append(SchemaVersion(ref, number, schema, item["created_at"], item["activation_commit_id"]))
            if item["file"] is not None:
                files[ref, number] = item["file"]
        dropped = {TypeRef(item["kind"], item["type"]): item for item in body["dropped"]}
        purged = frozenset(ref for ref, item in dropped.items() if item["purged"])
        past = Past(header["head"], versions, {ref: item["commit_id"] for ref, item in dropped.items()}, purged)
        return cls(past, files, body["removals"])


def read_header(folder: Path) -> dict[str, Any] | None:
    """The header of an export; None where a folder has none, such as those that 0.3 wrote."""
    place = folder / HEADER
    if not place.is_file():
        return None
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except OSError as problem:
        raise UnreadableFileError(f"{place} cannot be read: {problem.strerror or problem}") from problem
    except ValueError as problem:
        raise ValidationError(f"{place} is malformed: {problem!r}") from problem
    if not isinstance(found, dict):
        raise ValidationError(f"{place} is malformed: a header is a JSON object")
    return found


def read_history(folder: Path, header: Mapping[str, Any]) -> ExportedHistory | None:
    """The history that an export has; None where it is of a state, or of a part of a history."""
    if HISTORY not in header:
        return None
    try:
        return ExportedHistory.read(header)
    except (KeyError, TypeError, ValueError) as problem:
        raise ValidationError(f"{folder / HEADER} is malformed: {problem!r}") from problem


def check_has_one_version(folder: Path) -> None:
    """Refuse an export of a history that has rows under several schemas: as one commit they make no sense."""
    header = read_header(folder) if folder.is_dir() else None
    exported = None if header is None else read_history(folder, header)
    if exported is not None and len({ref for ref, _ in exported.files}) < len(exported.files):
        raise ValidationError(
            f"{folder} has a history with several schema versions, which cannot be imported as one commit: import "
            "every commit of it into an empty place, with --with-history (onto copy does the same)"
        )


def history_section(engine: Engine, head: int, files: Mapping[TypeRef, str], folder: Path) -> dict[str, Any]:
    """What the header of an export of all versions says besides, if those are the whole history: of a store in which
    nothing was migrated, dropped or forgotten. The log is written beside it."""
    capabilities = engine.capabilities
    if capabilities.read_only or not capabilities.past_versions or FORGOTTEN in engine.features():
        return {}
    history = engine.history()
    past = history.past().at(head)
    in_force = [version for version in past.versions if version.activation_commit_id is not None]
    if past.dropped or len({version.ref for version in in_force}) < len(in_force):
        return {}
    write_log(folder, history.commits(0, head))
    of_version = {(version.ref, version.schema_version_id): files[version.ref] for version in in_force}
    return {HISTORY: ExportedHistory(past, of_version, REMOVALS in engine.features()).body()}


def write_log(folder: Path, commits: Iterator[Commit]) -> None:
    with (folder / COMMITS).open("w", encoding="utf-8", newline="\n") as file:
        for commit in commits:
            file.write(f"{json.dumps(commit.to_dict(), ensure_ascii=False)}\n")


def read_log(folder: Path) -> Iterator[Commit]:
    place = folder / COMMITS
    try:
        with place.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                yield _commit(place, number, line)
    except OSError as problem:
        raise UnreadableFileError(f"{place} cannot be read: {problem.strerror or problem}") from problem


def _commit(place: Path, number: int, line: str) -> Commit:
    try:
        body = json.loads(line)
        return Commit(body["id"], body["created_at"], body["runtime_id"], body["metadata"])
    except (KeyError, TypeError, ValueError) as problem:
        raise ValidationError(f"{place}:{number}: no commit: {problem!r}") from None


def parts_of(folder: Path, file: str) -> Sequence[Path]:
    """The files that have the rows of a version."""
    place = folder / file
    return sorted(place.iterdir()) if place.is_dir() else [place]
