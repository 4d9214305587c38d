"""Migrations: preview, token, upgraders and their chain, and failures that name what failed and change nothing."""

import sys
from datetime import UTC, datetime
from typing import Annotated

import pyarrow as pa
import pytest
from pydantic import Field as Limits
from pydantic import field_validator

from ontologia import (
    Entity,
    Field,
    MigrationError,
    MigrationTokenError,
    MissingUpgraderError,
    Ontology,
    Relation,
    load_upgraders,
)
from ontologia.engines import upgrading
from ontologia.runtime.fingerprints import code_fingerprint


class V1(Entity, name="Person"):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]


class V2(Entity, name="Person"):
    id: Field[str] = Field(primary_key=True)
    first: Field[str]
    last: Field[str]


class V3(Entity, name="Person"):
    id: Field[str] = Field(primary_key=True)
    full: Field[list[str]]


class Widened(Entity, name="Person"):
    id: Field[str] = Field(primary_key=True)
    name: Field[str | None]
    age: Field[int] = 18
    note: Field[str | None]


class Fewer(Entity, name="Person"):
    id: Field[str] = Field(primary_key=True)


class Rekeyed(Entity, name="Person"):
    name: Field[str] = Field(primary_key=True)


class Edge(Relation[V1, V1]):
    kind: Field[str] = Field(instance_key=True)
    weight: Field[int] = 0


class NewEdge(Relation[V1, V1], name="Edge"):
    kind: Field[str] = Field(instance_key=True)
    heft: Field[float]


def split(row):
    first, last = row["name"].split(" ")
    return {"id": row["id"], "first": first, "last": last}


def join(row):
    return {"id": row["id"], "full": [row["first"], row["last"]]}


CHAIN = {("Person", 1): split, ("Person", 2): join}


@pytest.fixture
def path(path):
    """Two people and an edge, one of the people with an earlier version."""
    with Ontology(path, entity_types=[V1], relation_types=[Edge]) as onto:
        with onto.session() as session:
            session.ensure([V1(id="a", name="Ada B"), V1(id="g", name="Grace H")])
            session.ensure(Edge(left_key="a", right_key="g", kind="k", weight=3))
        with onto.session() as session:
            session.ensure(V1(id="a", name="Ada L"))
    return path


def at(path, *types):
    entities = [cls for cls in types if issubclass(cls, Entity)]
    relations = [cls for cls in types if issubclass(cls, Relation)]
    return Ontology(path, entity_types=entities, relation_types=relations)


def state(path):
    with at(path, V1, Edge) as onto:
        return (
            onto.query().entities(V1).with_history().collect(),
            onto.query().relations(Edge).collect(),
            onto.list_commits(),
            onto.storage_info(),
        )


# --- preview ---


def test_a_preview_of_nothing_has_no_changes(path):
    with at(path, V1) as onto:
        preview = onto.migrate()
    assert (preview.has_changes, preview.diffs, preview.estimated_rows) == (False, [], 0)


def test_a_preview_says_what_would_change(path):
    with at(path, V2) as onto:
        preview = onto.migrate(dry_run=True)
    (diff,) = preview.diffs
    assert (preview.has_changes, diff.type_name, diff.added, diff.removed, preview.estimated_rows) == (
        True,
        "Person",
        ("first", "last"),
        ("name",),
        2,
    )


def test_a_preview_says_which_upgraders_are_missing(path):
    with at(path, V2) as onto:
        preview = onto.migrate()
    assert (preview.types_requiring_upgraders, preview.missing_steps, preview.types_schema_only) == (
        ["Person"],
        [("Person", 1)],
        [],
    )


def test_a_preview_with_the_upgraders_misses_none(path):
    with at(path, V2) as onto:
        assert onto.migrate(upgraders={("Person", 1): split}).missing_upgraders == []


def test_a_preview_says_which_types_need_no_upgrader(path):
    with at(path, Widened) as onto:
        preview = onto.migrate()
    assert (preview.types_schema_only, preview.types_requiring_upgraders) == (["Person"], [])


class Measured(Entity, name="Person"):
    id: Field[str] = Field(primary_key=True)
    name: Field[int]
    tags: Field[list[str]] = Field(default_factory=list)
    born: Field[int]


class Numbered(Relation[V1, V1], name="Edge"):
    number: Field[str] = Field(instance_key=True)
    weight: Field[int] = 0


def test_a_preview_says_which_fields_need_the_upgrader_and_which_do_not(path):
    with at(path, Measured, Numbered) as onto:
        found = onto.migrate().effects
    assert {effect.field: effect.effect for effect in found["Person"]} == {
        "id": "carried",
        "name": "needs_upgrader",
        "tags": "filled",
        "born": "needs_upgrader",
    }
    assert {effect.field: effect.effect for effect in found["Edge"]} == {
        "number": "needs_upgrader",
        "weight": "carried",
    }
    with at(path, Rekeyed) as onto:
        keys = onto.migrate().effects["Person"]
    assert [(effect.field, effect.effect) for effect in keys] == [("name", "needs_upgrader"), ("id", "discarded")]


def test_a_preview_touches_nothing(path):
    before = state(path)
    with at(path, V2) as onto:
        onto.migrate()
    assert state(path) == before


def test_two_previews_of_the_same_thing_have_one_token(path):
    with at(path, V2) as onto:
        assert onto.migrate().token == onto.migrate().token


# --- token ---


def test_a_migration_runs_with_the_token_of_its_preview(path):
    with at(path, V2) as onto:
        token = onto.migrate(upgraders=CHAIN_1).token
        assert onto.migrate(dry_run=False, token=token, upgraders=CHAIN_1).success


CHAIN_1 = {("Person", 1): split}


def test_a_migration_without_token_or_force_is_refused(path):
    with at(path, V2) as onto, pytest.raises(MigrationTokenError, match="force=True"):
        onto.migrate(dry_run=False, upgraders=CHAIN_1)


def test_a_made_up_token_is_refused(path):
    with at(path, V2) as onto, pytest.raises(MigrationTokenError):
        onto.migrate(dry_run=False, token="made up", upgraders=CHAIN_1)


def test_a_token_from_before_another_commit_is_stale(path):
    with at(path, V2) as onto:
        token = onto.migrate(upgraders=CHAIN_1).token
        with at(path, V1) as other, other.session() as session:
            session.ensure(V1(id="x", name="X Y"))
        with pytest.raises(MigrationTokenError, match="preview again"):
            onto.migrate(dry_run=False, token=token, upgraders=CHAIN_1)


def test_a_token_for_another_plan_is_stale(path):
    with at(path, Widened) as onto:
        token = onto.migrate().token
    with at(path, V2) as onto, pytest.raises(MigrationTokenError):
        onto.migrate(dry_run=False, token=token, upgraders=CHAIN_1)


def test_a_refused_token_changes_nothing(path):
    before = state(path)
    with at(path, V2) as onto, pytest.raises(MigrationTokenError):
        onto.migrate(dry_run=False, token="made up", upgraders=CHAIN_1)
    assert state(path) == before


def test_force_needs_no_token(path):
    with at(path, V2) as onto:
        assert onto.migrate(dry_run=False, force=True, upgraders=CHAIN_1).success


# --- apply ---


def test_the_result_says_what_was_done(path):
    with at(path, V2) as onto:
        result = onto.migrate(dry_run=False, force=True, upgraders=CHAIN_1)
    assert (result.success, result.types_migrated, result.rows_migrated, result.new_schema_versions) == (
        True,
        ["Person"],
        2,
        {"Person": 2},
    )


def test_the_rows_are_those_of_the_upgrader(path):
    with at(path, V2) as onto:
        onto.migrate(dry_run=False, force=True, upgraders=CHAIN_1)
        assert onto.query().entities(V2).collect() == [
            V2(id="a", first="Ada", last="L"),
            V2(id="g", first="Grace", last="H"),
        ]


def test_steps_chain_over_several_versions(path):
    with at(path, V3) as onto:
        result = onto.migrate(dry_run=False, force=True, upgraders=CHAIN)
        rows = [person.full for person in onto.query().entities(V3).collect()]
    assert (result.new_schema_versions, rows) == ({"Person": 3}, [["Ada", "L"], ["Grace", "H"]])


def test_steps_one_at_a_time_end_in_the_same_place(path):
    for cls in (V2, V3):
        with at(path, cls) as onto:
            onto.migrate(dry_run=False, force=True, upgraders=CHAIN_1 if cls is V2 else CHAIN)
    with at(path, V3) as onto:
        assert [person.full for person in onto.query().entities(V3).collect()] == [["Ada", "L"], ["Grace", "H"]]


def test_fields_with_defaults_wider_types_and_fewer_fields_need_no_upgrader(path):
    with at(path, Widened) as onto:
        onto.migrate(dry_run=False, force=True)
        assert onto.query().entities(Widened).first() == Widened(id="a", name="Ada L", age=18, note=None)


def test_a_removed_field_needs_no_upgrader(path):
    with at(path, Fewer) as onto:
        onto.migrate(dry_run=False, force=True, allow_discard=True)
        assert onto.query().entities(Fewer).count() == 2


def test_relations_are_migrated_with_their_identity(path):
    def heavier(row):
        assert row == {"left_key": "a", "right_key": "g", "kind": "k", "weight": 3}
        return {"left_key": "a", "right_key": "g", "kind": "k", "heft": row["weight"] * 1.5}

    with at(path, V1, NewEdge) as onto:
        onto.migrate(dry_run=False, force=True, upgraders={("Edge", 1): heavier})
        (edge,) = onto.query().relations(NewEdge).collect()
    assert (edge.left_key, edge.instance_key, edge.heft) == ("a", "k", 4.5)


def test_migrating_again_does_nothing(path):
    with at(path, V2) as onto:
        onto.migrate(dry_run=False, force=True, upgraders=CHAIN_1)
        result = onto.migrate(dry_run=False, force=True, upgraders=CHAIN_1)
        assert (result.success, result.types_migrated, onto.repository.get_head_commit_id()) == (True, [], 3)


def test_a_migration_carries_its_metadata(path):
    with at(path, V2) as onto:
        onto.migrate(dry_run=False, force=True, upgraders=CHAIN_1, meta={"ticket": "7"})
        metadata = onto.get_commit(3)["metadata"]
    assert (metadata["ticket"], metadata["kind"]) == ("7", "migration")


def test_commits_go_on_after_a_migration(path):
    with at(path, V2) as onto:
        onto.migrate(dry_run=False, force=True, upgraders=CHAIN_1)
        with onto.session() as session:
            session.ensure(V2(id="n", first="N", last="M"))
        assert (onto.query().entities(V2).count(), onto.repository.get_head_commit_id()) == (3, 4)


# --- failures ---


def test_a_missing_upgrader_is_listed(path):
    with at(path, V2) as onto, pytest.raises(MissingUpgraderError) as caught:
        onto.migrate(dry_run=False, force=True)
    assert caught.value.missing == {"Person": [1]}


def test_a_new_required_list_needs_an_upgrader_although_its_column_may_be_null(path):
    with at(path, V3) as onto:
        assert onto.migrate().missing_upgraders == ["Person"]


def test_a_missing_step_of_a_chain_is_listed(path):
    with at(path, V3) as onto, pytest.raises(MissingUpgraderError) as caught:
        onto.migrate(dry_run=False, force=True, upgraders={("Person", 2): join})
    assert caught.value.missing == {"Person": [1]}


FAILURES = {
    "raises": lambda row: {}["nothing"],
    "gives an invalid row": lambda row: {"id": row["id"], "first": 5, "last": []},
    "gives an incomplete row": lambda row: {"id": row["id"]},
    "gives an unknown field": lambda row: {**split(row), "extra": 1},
    "gives no dict": lambda row: None,
    "changes the key": lambda row: {**split(row), "id": "other"},
}


@pytest.mark.parametrize("function", FAILURES.values(), ids=list(FAILURES))
def test_an_upgrader_that_fails_is_named_with_type_identity_and_row(path, function):
    with at(path, V2) as onto, pytest.raises(MigrationError) as caught:
        onto.migrate(dry_run=False, force=True, upgraders={("Person", 1): function})
    message = str(caught.value)
    assert ("Person" in message, "'a'" in message, "{'id': 'a', 'name': 'Ada L'}" in message) == (True, True, True)


@pytest.mark.parametrize("function", FAILURES.values(), ids=list(FAILURES))
def test_an_upgrader_that_fails_changes_nothing(path, function):
    before = state(path)
    with at(path, V2) as onto, pytest.raises(MigrationError):
        onto.migrate(dry_run=False, force=True, upgraders={("Person", 1): function})
    assert state(path) == before


def test_an_upgrader_that_fails_late_changes_nothing(path):
    def late(row):
        return split(row) if row["id"] == "a" else {}["nothing"]

    before = state(path)
    with at(path, V2) as onto, pytest.raises(MigrationError, match="'g'"):
        onto.migrate(dry_run=False, force=True, upgraders={("Person", 1): late})
    assert state(path) == before


def test_an_upgrader_that_changes_the_row_it_was_given_does_not_hide_the_old_one(path):
    def destructive(row):
        row.clear()
        raise RuntimeError("gone")

    with at(path, V2) as onto, pytest.raises(MigrationError, match="Ada L"):
        onto.migrate(dry_run=False, force=True, upgraders={("Person", 1): destructive})


def test_a_new_primary_key_needs_an_upgrader(path):
    with at(path, Rekeyed) as onto, pytest.raises(MissingUpgraderError):
        onto.migrate(dry_run=False, force=True)


def test_an_upgrader_cannot_write_to_the_store_it_upgrades(path):
    def sneaky(row):
        with onto.session() as session:
            session.ensure(V2(id="z", first="", last=""))
        return split(row)

    before = state(path)
    with at(path, V2) as onto, pytest.raises(MigrationError):
        onto.migrate(dry_run=False, force=True, upgraders={("Person", 1): sneaky})
    assert state(path) == before


# --- modules of upgraders ---


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_upgraders.py").write_text(
        "from ontologia import upgrader\n\n"
        "@upgrader('Person', from_version=1)\n"
        "def split(row):\n"
        "    first, last = row['name'].split(' ')\n"
        "    return {'id': row['id'], 'first': first, 'last': last}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "my_upgraders"
    sys.modules.pop("my_upgraders", None)
    from ontologia.model import upgraders

    upgraders._registered.pop(("Person", 1), None)


def test_load_upgraders_gives_those_of_a_module(module):
    assert list(load_upgraders(module)) == [("Person", 1)]


def test_loaded_upgraders_are_used_when_none_are_given(path, module):
    load_upgraders(module)
    with at(path, V2) as onto:
        onto.migrate(dry_run=False, force=True)
        assert onto.query().entities(V2).first().first == "Ada"


def test_a_module_that_does_not_exist_is_a_migration_error():
    with pytest.raises(MigrationError, match="no_such_module"):
        load_upgraders("no_such_module")


def test_an_upgrader_sees_instants_in_utc_whatever_zone_they_were_read_in():
    class Visit(Entity):
        id: Field[str] = Field(primary_key=True)
        at: Field[datetime]

    late = datetime(2026, 1, 1, 23, 30, tzinfo=UTC)
    table = pa.table({"entity_key": ["v"], "id": ["v"], "at": pa.array([late], pa.timestamp("us", "Europe/Berlin"))})
    ((_, row),) = upgrading._rows(Visit.__declaration__.schema, table)
    assert row["at"].isoformat() == "2026-01-01T23:30:00+00:00"


def noted(**field):
    class Noted(Entity):
        id: Field[str] = Field(primary_key=True)
        note: Field[str] = Field(**field)

    return Noted


def validated(suffix):
    class Noted(Entity):
        id: Field[str] = Field(primary_key=True)
        note: Field[str] = "a"

        @field_validator("note")
        @classmethod
        def extend(cls, value: str) -> str:
            return value + suffix

    return Noted


def annotated(limit):
    class Noted(Entity):
        id: Field[str] = Field(primary_key=True)
        note: Field[Annotated[str, Limits(max_length=limit)]] = "a"

    return Noted


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (noted(default="a"), noted(default="b")),
        (noted(default_factory=lambda: "a"), noted(default_factory=lambda: "b")),
        (noted(default="a"), noted(default="a", max_length=9)),
        (validated("x"), validated("y")),
        (annotated(5), annotated(6)),
    ],
    ids=["default", "factory", "limit", "validator", "annotation"],
)
def test_a_token_is_bound_to_all_of_the_class(tmp_path, before, after):
    class Noted(Entity):
        id: Field[str] = Field(primary_key=True)

    path = str(tmp_path / "a.db")
    with Ontology(path, entity_types=[Noted]) as onto, onto.session() as session:
        session.ensure(Noted(id="1"))
    with Ontology(path, entity_types=[before]) as onto:
        token = onto.migrate().token
    with Ontology(path, entity_types=[after]) as onto, pytest.raises(MigrationTokenError):
        onto.migrate(dry_run=False, token=token)


def test_a_token_is_not_bound_to_descriptions(tmp_path):
    class Noted(Entity):
        id: Field[str] = Field(primary_key=True)

    path = str(tmp_path / "a.db")
    with Ontology(path, entity_types=[Noted]) as onto, onto.session() as session:
        session.ensure(Noted(id="1"))
    with Ontology(path, entity_types=[noted(default="a", description="One.")]) as onto:
        token = onto.migrate().token
    with Ontology(path, entity_types=[noted(default="a", description="Another.")]) as onto:
        assert onto.migrate(dry_run=False, token=token).success


def test_a_constant_of_time_is_part_of_what_an_upgrader_does():
    def upgrade_to(moment):
        return lambda row: {**row, "since": moment}

    assert code_fingerprint(upgrade_to(datetime(2024, 1, 1))) != code_fingerprint(upgrade_to(datetime(2025, 1, 1)))
