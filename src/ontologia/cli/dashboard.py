"""What `onto info` knows of a store: facts first, then how they are drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ontologia.cli.differences import draw_schema
from ontologia.cli.output import Face, Tone, size
from ontologia.cli.target import Settings
from ontologia.errors import StorageBackendError
from ontologia.model import TypeRef, TypeSchema

if TYPE_CHECKING:
    from ontologia.engines.catalog import TypeLayout
    from ontologia.engines.repository import Repository
    from ontologia.query.plan import Window
    from ontologia.runtime.store import Store

SMALL_FILE = 1 << 20
MANY_FILES = 8


def facts(store: Store, settings: Settings, *, stats: bool, schema: bool) -> dict[str, Any]:
    """Everything the dashboard shows, as data."""
    repository = store.repository
    catalog = store.engine.catalog()
    newest = store.list_commits(limit=1)
    types = [_type(repository, layout, stats=stats, schema=schema) for _, layout in sorted(catalog.layouts.items())]
    index = _index(repository)
    storage = store.storage_info()
    return {
        "target": settings.where,
        "backend": store.engine.backend,
        "engine_version": store.engine.engine_version,
        "head": catalog.head,
        "newest_commit": newest[0] if newest else None,
        "bytes": _total_bytes(settings, types),
        "types": types,
        "dropped": [{"kind": ref.kind, "name": ref.name} for ref in sorted(catalog.dropped)],
        "index": index,
        "storage": storage,
        "advice": _advice(types, index, storage),
    }


def _type(repository: Repository, layout: TypeLayout, *, stats: bool, schema: bool) -> dict[str, Any]:
    from ontologia.query.plan import Window

    ref = layout.ref
    sizes = repository.engine.sizes_of(layout)
    files = sizes if repository.capabilities.object_storage else None
    rows, problem = _count(repository, ref, Window())
    found: dict[str, Any] = {
        "kind": ref.kind,
        "name": ref.name,
        "schema_version_id": layout.schema_version_id,
        "activation_commit_id": layout.activation_commit_id,
        "rows": rows,
        "files": None if files is None else len(files),
        "bytes": None if files is None else sum(files),
        "small_files": None if files is None else sum(each < SMALL_FILE for each in files),
        "problem": problem,
    }
    if stats:
        found["versions"], _ = _count(repository, ref, Window("history"))
        if files is None:
            found["bytes"] = None if sizes is None else sum(sizes)
    if schema:
        found["schema"] = layout.schema.to_json()
        found["fingerprint"] = layout.schema.fingerprint
    return found


def _count(repository: Repository, ref: TypeRef, window: Window) -> tuple[int | None, str | None]:
    """The rows of a type, or why they cannot be read: one damaged type must not hide the others."""
    count = repository.count_entities if ref.kind == "entity" else repository.count_relations
    try:
        return count(ref.name, window=window), None
    except StorageBackendError as problem:
        return None, str(problem)


def _total_bytes(settings: Settings, types: list[dict[str, Any]]) -> int | None:
    if settings.target.backend != "sqlite":
        known = [item["bytes"] for item in types if item["bytes"] is not None]
        return sum(known) if known or not types else None
    parts = (Path(settings.target.location + suffix) for suffix in ("", "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())


def _index(repository: Repository) -> dict[str, Any] | None:
    if not repository.capabilities.object_storage:
        return None
    from ontologia.cli.maintenance import index_facts

    return index_facts(repository.index_verify())


def _advice(types: list[dict[str, Any]], index: dict[str, Any] | None, storage: dict[str, Any]) -> list[dict[str, str]]:
    """One line each: what is not well, and the command that helps."""
    found = []
    if storage.get("read_only"):
        text = "this store is read-only here: move it into a new one with onto export and onto import"
        found.append({"level": "hint", "text": text})
    for item in types:
        if item["problem"] is not None:
            found.append({"level": "warning", "text": f"{item['name']} cannot be read: {item['problem']}"})
    if index is not None and not index["healthy"]:
        names = ", ".join(item["name"] for item in index["types"] if not item["healthy"])
        text = f"indices lag behind the head ({names}): reads stay correct but slow; run onto index repair --apply"
        found.append({"level": "warning", "text": text})
    for item in types:
        if (item["small_files"] or 0) >= MANY_FILES:
            text = (
                f"{item['name']} has {item['small_files']} small files: merge them with "
                f"onto compact --type {item['name']} --apply"
            )
            found.append({"level": "hint", "text": text})
    if not types:
        found.append({"level": "hint", "text": "no types yet: they appear with the first commit or import"})
    return found


# --- drawing ---


def draw(face: Face, found: dict[str, Any]) -> None:
    """The dashboard."""
    newest = found["newest_commit"]
    written_by, begins = found["storage"].get("written_by"), found["storage"].get("history_begins_at")
    engine = f"{found['backend']}/{found['engine_version']}{f' of {written_by}' if written_by else ''}"
    face.line(f"{engine}  {found['target']}", "strong")
    pairs = {
        "head": found["head"] if newest is None else f"{found['head']}  ({newest['created_at']})",
        "written by": None if newest is None else newest["runtime_id"] or None,
        "history": None if begins is None else f"begins at commit {begins}",
        "size": size(found["bytes"]),
        "types": len(found["types"]),
    }
    face.pairs({name: value for name, value in pairs.items() if value is not None})
    if found["types"]:
        _draw_types(face, found["types"])
    for item in found["types"]:
        if "schema" in item:
            draw_schema(face, TypeSchema.from_json(item["schema"]))
    if found["dropped"]:
        face.line(f"dropped: {', '.join(item['name'] for item in found['dropped'])}", "dim")
    if found["index"] is not None:
        healthy = found["index"]["healthy"]
        face.line(f"indices: {'healthy' if healthy else 'unhealthy'}", "good" if healthy else "bad")
    small = [item["small_files"] for item in found["types"] if item["small_files"] is not None]
    if small:
        tone: Tone = "warning" if max(small) >= MANY_FILES else "good"
        face.line(f"small files: {sum(small)} of {sum(item['files'] or 0 for item in found['types'])}", tone)
    for advice in found["advice"]:
        face.line(f"→ {advice['text']}", "warning" if advice["level"] == "warning" else "plain")


def _draw_types(face: Face, types: list[dict[str, Any]]) -> None:
    columns: dict[str, list[Any]] = {
        "type": [item["name"] for item in types],
        "kind": [item["kind"] for item in types],
        "version": [item["schema_version_id"] for item in types],
        "since": [item["activation_commit_id"] for item in types],
        "rows": [item["rows"] for item in types],
        "versions": [item.get("versions") for item in types],
        "files": [item["files"] for item in types],
        "size": [size(item["bytes"]) for item in types],
    }
    known = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    face.table(list(known), list(zip(*known.values(), strict=True)))
