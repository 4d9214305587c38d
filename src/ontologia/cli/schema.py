"""`onto schema export`, `onto schema history`, `onto schema drop`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ontologia.cli.differences import draw_schema, draw_schema_diffs
from ontologia.cli.exits import UsageError
from ontologia.cli.options import Apply, KindOption, Models, OneType, Token, check_token, number
from ontologia.cli.output import Face, count_noun
from ontologia.cli.run import Run, command, group
from ontologia.errors import ValidationError
from ontologia.model import TypeRef, TypeSchema, diff

if TYPE_CHECKING:
    from ontologia.engines.catalog import SchemaVersion
    from ontologia.engines.repository import Repository

VersionOption = Annotated[int | None, number("--version", least=1, help="This schema version.")]


def register(app: typer.Typer) -> None:
    schema = group(app, "schema", "Schemas of types: export them, see their history, drop types.")
    command(schema, "export", example="onto schema export --models myapp.models --format yaml --with-hash")(export)
    command(schema, "history", example="onto schema history --kind entity --type Customer")(history)
    command(schema, "drop", example="onto schema drop Customer --drop-relation Subscription")(drop)


# --- export ---


def export(
    run: Run,
    models: Models = None,
    kind: KindOption = None,
    type_name: OneType = None,
    version: VersionOption = None,
    format: Annotated[Literal["json", "yaml"], typer.Option("--format", help="The output format.")] = "json",
    with_hash: Annotated[bool, typer.Option("--with-hash", help="Add the fingerprint of every schema.")] = False,
) -> None:
    """Print schemas from code (--models) or from the store."""
    if models and (kind or type_name or version):
        raise UsageError(
            "--models exports from code; --kind, --type and --version from the store: give one or the other"
        )
    if version is not None and (type_name is None or kind is None):
        raise UsageError("--version needs --kind and --type: versions are counted by type")
    if run.given.json and format == "yaml":
        raise UsageError("--json and --format yaml contradict each other")
    schemas = _from_code(models) if models else _from_store(run, kind, type_name, version)
    content = {
        "types": [
            {**schema.to_json(), "fingerprint": schema.fingerprint} if with_hash else schema.to_json()
            for schema in schemas
        ]
    }
    if format == "yaml":
        import yaml  # type: ignore[import-untyped]

        run.output.text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True).rstrip())
    else:
        run.output.text(json.dumps(content, indent=2, ensure_ascii=False))


def _from_code(models: list[str]) -> list[TypeSchema]:
    from ontologia.cli.models import load_models

    return [declaration.schema for _, declaration in sorted(load_models(models).items())]


def _from_store(run: Run, kind: Any, type_name: str | None, version: int | None) -> list[TypeSchema]:
    with run.store() as store:
        if version is not None:
            return [_version(store.repository, TypeRef(kind, str(type_name)), version).schema]
        layouts = store.engine.catalog().layouts
    found = [
        layout.schema
        for ref, layout in sorted(layouts.items())
        if kind in (None, ref.kind) and type_name in (None, ref.name)
    ]
    if type_name is not None and not found:
        known = ", ".join(ref.name for ref in sorted(layouts)) or "no types"
        raise ValidationError(f"{type_name} is not in this store; it has {known}")
    return found


def _version(repository: Repository, ref: TypeRef, number: int) -> SchemaVersion:
    found = repository.get_schema_version(ref.kind, ref.name, number)
    if found is None:
        raise ValidationError(f"{ref} has no schema version {number} in this store")
    return found


# --- history ---


def history(run: Run, kind: KindOption = None, type_name: OneType = None, version: VersionOption = None) -> None:
    """List the schema versions that were stored, or show one with what changed in it."""
    if version is not None and (type_name is None or kind is None):
        raise UsageError("--version needs --kind and --type: versions are counted by type")
    with run.store() as store:
        versions = [
            item
            for item in store.engine.schema_versions()
            if kind in (None, item.ref.kind) and type_name in (None, item.ref.name)
        ]
    versions.sort(key=lambda item: (item.ref, item.schema_version_id))
    if type_name is not None and not versions:
        raise ValidationError(f"{type_name} is not in this store")
    if version is None:
        facts = {"versions": [_version_facts(item) for item in versions]}
        run.output.show(facts, lambda face: _draw_list(face, facts["versions"]))
        return
    number = next((index for index, item in enumerate(versions) if item.schema_version_id == version), None)
    if number is None:
        raise ValidationError(f"{type_name} has no schema version {version} in this store")
    _show_version(run, versions[number], versions[number - 1] if number else None)


def _version_facts(item: SchemaVersion) -> dict[str, Any]:
    return {
        "kind": item.ref.kind,
        "name": item.ref.name,
        "schema_version_id": item.schema_version_id,
        "created_at": item.created_at,
        "activation_commit_id": item.activation_commit_id,
        "is_current": item.is_current,
        "fingerprint": item.fingerprint,
    }


def _draw_list(face: Face, versions: list[dict[str, Any]]) -> None:
    rows = [
        [
            item["name"],
            item["kind"],
            item["schema_version_id"],
            item["activation_commit_id"],
            "current" if item["is_current"] else "",
            item["created_at"],
            item["fingerprint"][:12],
        ]
        for item in versions
    ]
    face.table(["type", "kind", "version", "since", "", "created", "fingerprint"], rows)


def _show_version(run: Run, item: SchemaVersion, before: SchemaVersion | None) -> None:
    change = None if before is None else diff(before.schema, item.schema)
    facts = {
        **_version_facts(item),
        "schema": item.schema.to_json(),
        "changes": None if change is None else change.to_json(),
    }

    def draw(face: Face) -> None:
        draw_schema(face, item.schema)
        if before is not None and change:
            face.line(f"changed since version {before.schema_version_id}:")
            draw_schema_diffs(face, [change], {item.ref: before.schema}, {item.ref: item.schema})

    run.output.show(facts, draw)


# --- drop ---


def drop(
    run: Run,
    entities: Annotated[
        list[str] | None, typer.Argument(metavar="[TYPE]...", help="Entity types to drop.", show_default=False)
    ] = None,
    drop_relation: Annotated[
        list[str] | None, typer.Option("--drop-relation", metavar="NAME", help="A relation type to drop.")
    ] = None,
    cascade_relations: Annotated[
        bool, typer.Option("--cascade-relations", help="Also drop every relation that touches a dropped entity.")
    ] = False,
    purge_history: Annotated[
        bool, typer.Option("--purge-history", help="Also delete the stored rows. They cannot be brought back.")
    ] = False,
    apply: Apply = False,
    token: Token = None,
) -> None:
    """Drop types: they read as empty and take no new rows. A preview with a token, unless --apply --token."""
    if not entities and not drop_relation:
        raise UsageError("name a type to drop, or a relation with --drop-relation")
    if cascade_relations and (drop_relation or not entities):
        raise UsageError(
            "--cascade-relations takes every relation of the dropped entities along: name entities alone, or relations "
            "with --drop-relation"
        )
    check_token(apply, token)
    question: dict[str, Any] = {
        "entities": entities or [],
        "relations": drop_relation or [],
        "cascade_relations": cascade_relations,
        "purge_history": purge_history,
    }
    with run.store() as store:
        if apply:
            run.echo_target()
        plan: Any = store.drop_types(**question)
        commit_id = store.drop_types(**question, dry_run=False, token=token) if apply else None
    facts = {
        "applied": apply,
        "types": [{"kind": ref.kind, "name": ref.name, "rows": plan.rows.get(str(ref))} for ref in plan.types],
        "purge_history": plan.purge_history,
        "token": None if apply else plan.token,
        "commit_id": commit_id,
    }

    def draw(face: Face) -> None:
        for ref in plan.types:
            face.change("-", f"{ref}  {count_noun(plan.rows.get(str(ref), 0), 'row')}", indent=0)
        if plan.purge_history:
            face.line("stored rows are deleted for good" if apply else "stored rows would be deleted for good", "bad")
        face.line(f"dropped in commit {commit_id}" if apply else f"token: {plan.token}")

    run.output.show(facts, draw)
    if not apply:
        run.output.say(f"to drop them: the same command with --apply --token {plan.token}")
