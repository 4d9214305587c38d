"""`onto remove`: rows that are no more."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ontologia.cli.exits import UsageError
from ontologia.cli.keys import Keys, parts_of
from ontologia.cli.options import Apply, CommitMeta, KindOption, OnBranch
from ontologia.cli.output import Face, count_noun
from ontologia.cli.run import Run, command, metadata


def register(app: typer.Typer) -> None:
    command(app, "remove", example="onto remove Customer c1 c2 --cascade --apply")(remove)


def remove(
    run: Run,
    type_name: Annotated[str, typer.Argument(metavar="TYPE", help="The type.", show_default=False)],
    keys: Keys,
    kind: KindOption = None,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Also remove the relations that end at these entities.")
    ] = False,
    apply: Apply = False,
    meta: CommitMeta = None,
    branch: OnBranch = None,
) -> None:
    """Take rows out of the state; history keeps them. A preview, unless --apply. Missing keys are ignored."""
    from ontologia.engines.transaction import removals_refused
    from ontologia.model.keys import parse_identity
    from ontologia.runtime.commit import commit_state
    from ontologia.runtime.removals import Removals, rows_to_remove
    from ontologia.runtime.rows import identity_table

    notes = metadata(meta)
    with run.store(branch=branch) as store, run.output.progress("removing"):
        catalog = store.engine.catalog()
        schema = catalog.find_type(type_name, kind).schema
        if not store.engine.capabilities.removals:
            raise removals_refused(str(schema.ref))
        if cascade and schema.ref.kind == "relation":
            raise UsageError(f"--cascade is for entities: nothing ends at a {type_name}")
        entities = [layout.schema for layout in catalog.layouts.values()]
        named = {key: parse_identity(schema, parts_of(schema, key), entities) for key in keys}
        identities = list(dict.fromkeys(named.values()))
        cascading = [parts[0] for parts in identities] if cascade else []
        removals = {schema.ref: Removals(schema, identity_table(schema.ref, identities), cascading)}
        found = rows_to_remove(store.engine, catalog, removals)
        commit_id = None
        if apply:
            run.echo_target()
            commit_id = commit_state(store.engine, {}, notes, removed=removals)
    there = found[schema.ref].select(list(schema.ref.identity)).to_pylist() if schema.ref in found else []
    known = {tuple(row.values()) for row in there}
    facts: dict[str, Any] = {
        "applied": apply,
        "commit_id": commit_id,
        "types": [{"kind": ref.kind, "name": ref.name, "rows": rows.num_rows} for ref, rows in sorted(found.items())],
        "missing": [key for key in keys if named[key] not in known],
    }
    run.output.show(facts, lambda face: _draw(face, facts))
    if found and not apply:
        run.output.say("to do it: the same command with --apply")


def _draw(face: Face, facts: dict[str, Any]) -> None:
    types = facts["types"]
    if types:
        face.table(["type", "kind", "rows"], [[item["name"], item["kind"], item["rows"]] for item in types])
    if facts["missing"]:
        face.line(f"not there: {', '.join(facts['missing'])}", "dim")
    if facts["commit_id"] is not None:
        face.line(f"removed in commit {facts['commit_id']}", "good")
    elif facts["applied"] or not types:
        face.line("nothing to remove", "good")
    else:
        face.line(f"would remove {count_noun(sum(item['rows'] for item in types), 'row')}")
