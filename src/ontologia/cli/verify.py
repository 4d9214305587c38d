"""`onto verify`: the classes in code against the schemas in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontologia.cli import exits
from ontologia.cli.differences import draw_schema_diffs
from ontologia.cli.options import Models
from ontologia.cli.output import Face
from ontologia.cli.run import Run, command

if TYPE_CHECKING:
    from ontologia.runtime.store import Store

SAYS = {
    "same": "the same in code and store",
    "changed": "differs",
    "not_stored": "in code, not stored yet",
    "not_in_code": "stored, not in code",
}


def register(app: typer.Typer) -> None:
    command(app, "verify", example="onto verify --models myapp.models --diff")(verify)


def verify(
    run: Run,
    models: Models = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show the differences field by field.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also count types that only one side knows as a mismatch.")
    ] = False,
) -> None:
    """Compare classes with the stored schemas. Exits with 3 when they differ."""
    with run.store(run.model_names(models, needed=True)) as store:
        catalog = store.engine.catalog()
        facts = _facts(store, strict=strict)
        diffs = catalog.outdated(store.schemas)
        stored = {ref: layout.schema for ref, layout in catalog.layouts.items()}

    def draw(face: Face) -> None:
        face.table(
            ["type", "kind", "state"],
            [[item["name"], item["kind"], SAYS[item["state"]]] for item in facts["types"]],
        )
        if diff:
            draw_schema_diffs(face, diffs, stored, store.schemas)
        if facts["matches"]:
            face.line("code and store agree", "good")
        else:
            face.line("code and store disagree: preview a migration with onto migrate", "bad")

    run.output.show(facts, draw)
    if not facts["matches"]:
        run.output.warn("; ".join(map(str, diffs)) or "types are known to one side only")
        raise typer.Exit(exits.MISMATCH)


def _facts(store: Store, *, strict: bool) -> dict[str, Any]:
    catalog, code = store.engine.catalog(), store.schemas
    diffs = {diff.ref: diff for diff in catalog.outdated(code)}
    types = []
    for ref in sorted({*code, *catalog.layouts}):
        if ref in diffs:
            state = "changed"
        elif ref not in catalog.layouts:
            state = "not_stored"
        else:
            state = "same" if ref in code else "not_in_code"
        found = diffs[ref].to_json() if ref in diffs else None
        types.append({"kind": ref.kind, "name": ref.name, "state": state, "diff": found})
    bad = {"changed", "not_stored", "not_in_code"} if strict else {"changed"}
    return {"matches": not any(item["state"] in bad for item in types), "strict": strict, "types": types}
