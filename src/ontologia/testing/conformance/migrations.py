"""Migrations: preview and token, rows carried over, the activation boundary, and nothing half done (RFC 0009 §6)."""

from __future__ import annotations

from typing import Any

import pytest

from ontologia.errors import MigrationError, MigrationTokenError, MissingUpgraderError
from ontologia.model import Entity, Field, Relation, left
from ontologia.runtime.migration import MigrationPreview, MigrationResult
from ontologia.runtime.session import Session
from ontologia.testing.conformance.case import ConformanceSuite, StoreUnderTest, commit

Row = dict[str, Any]


class V1:
    """The types as they were."""

    class User(Entity, name="User"):
        """First version."""

        id: Field[str] = Field(primary_key=True)
        name: Field[str]
        age: Field[int] = Field(default=0)

    class Likes(Relation[User, User], name="Likes"):
        """First version."""

        kind: Field[str] = Field(instance_key=True)
        weight: Field[int] = Field(default=1)


class V2:
    """With a field added that has a default, one that may be null, and one given up."""

    class User(Entity, name="User"):
        """Second version: rows carry over by themselves."""

        id: Field[str] = Field(primary_key=True)
        name: Field[str]
        email: Field[str | None]
        level: Field[int] = Field(default=7)

    class Likes(Relation[User, User], name="Likes"):
        """As it was."""

        kind: Field[str] = Field(instance_key=True)
        weight: Field[int] = Field(default=1)


class V3:
    """With a field that nobody can guess."""

    class User(Entity, name="User"):
        """Third version: needs an upgrader."""

        id: Field[str] = Field(primary_key=True)
        full_name: Field[str]

    class Likes(Relation[User, User], name="Likes"):
        """Second version: a type changed."""

        kind: Field[str] = Field(instance_key=True)
        weight: Field[str]


def full_name(row: Row) -> Row:
    return {"id": row["id"], "full_name": row["name"].upper()}


def migrate(session: Session, **how: Any) -> MigrationResult:
    result = session.migrate(dry_run=False, force=True, allow_discard=True, **how)
    assert isinstance(result, MigrationResult)
    return result


def preview(session: Session, **how: Any) -> MigrationPreview:
    found = session.migrate(**how)
    assert isinstance(found, MigrationPreview)
    return found


class MigrationConformance(ConformanceSuite):
    """Schema changes."""

    @pytest.fixture
    def users(self, store: StoreUnderTest) -> StoreUnderTest:
        """Two users at schema version 1, one of them with two versions; head is 2."""
        session = store.session(V1.User)
        commit(session, V1.User(id="a", name="Ann", age=1), V1.User(id="b", name="Ben", age=2))
        commit(session, V1.User(id="a", name="Anna", age=1))
        return store

    # --- preview ---

    def test_a_preview_of_no_change_has_none(self, users: StoreUnderTest) -> None:
        assert not preview(users.session(V1.User)).has_changes

    def test_a_preview_says_what_differs_and_how_many_rows(self, users: StoreUnderTest) -> None:
        found = preview(users.session(V2.User))
        (diff,) = found.diffs
        assert (diff.added, diff.removed, found.estimated_rows) == (("email", "level"), ("age",), 2)

    def test_a_preview_says_which_upgraders_are_missing(self, users: StoreUnderTest) -> None:
        found = preview(users.session(V3.User), upgraders={})
        assert (found.types_requiring_upgraders, found.missing_steps) == (["User"], [("User", 1)])

    def test_a_preview_changes_nothing(self, users: StoreUnderTest) -> None:
        preview(users.session(V2.User))
        assert [user.name for user in users.session(V1.User).query().entities(V1.User).collect()] == ["Anna", "Ben"]

    # --- token ---

    def test_the_token_of_a_preview_applies_it(self, users: StoreUnderTest) -> None:
        session = users.session(V2.User)
        result = session.migrate(dry_run=False, token=preview(session).token, allow_discard=True)
        assert isinstance(result, MigrationResult)
        assert (result.success, result.types_migrated, result.rows_migrated) == (True, ["User"], 2)

    def test_a_migration_without_a_token_is_refused(self, users: StoreUnderTest) -> None:
        with pytest.raises(MigrationTokenError):
            users.session(V2.User).migrate(dry_run=False)

    def test_a_token_is_stale_after_another_commit(self, users: StoreUnderTest) -> None:
        session = users.session(V2.User)
        token = preview(session).token
        commit(users.session(V1.User), V1.User(id="c", name="Cyd"))
        with pytest.raises(MigrationTokenError):
            session.migrate(dry_run=False, token=token)

    def test_a_token_is_for_the_classes_it_was_made_with(self, users: StoreUnderTest) -> None:
        token = preview(users.session(V2.User)).token
        with pytest.raises(MigrationTokenError):
            users.session(V3.User).migrate(dry_run=False, token=token, upgraders={("User", 1): full_name})

    # --- rows ---

    def test_fields_added_with_defaults_are_filled_and_removed_ones_go(self, users: StoreUnderTest) -> None:
        session = users.session(V2.User)
        migrate(session)
        found = session.query().entities(V2.User).collect()
        assert found == [V2.User(id="a", name="Anna", email=None), V2.User(id="b", name="Ben", email=None)]

    def test_an_upgrader_carries_rows_over(self, users: StoreUnderTest) -> None:
        session = users.session(V3.User)
        migrate(session, upgraders={("User", 1): full_name})
        assert [user.full_name for user in session.query().entities(V3.User).collect()] == ["ANNA", "BEN"]

    def test_upgraders_chain(self, users: StoreUnderTest) -> None:
        session = users.session(V3.User)
        steps = {("User", 1): lambda row: row | {"name": row["name"] + "!"}, ("User", 2): full_name}
        result = migrate(session, upgraders=steps)
        names = [user.full_name for user in session.query().entities(V3.User).collect()]
        assert (names, result.new_schema_versions) == (["ANNA!", "BEN!"], {"User": 3})

    def test_a_relation_is_carried_over_with_its_identity(self, store: StoreUnderTest) -> None:
        commit(
            store.session(V1.User, V1.Likes),
            V1.User(id="a", name="Ann"),
            V1.Likes(left_key="a", right_key="b", kind="k1", weight=2),
            V1.Likes(left_key="a", right_key="b", kind="k2", weight=3),
        )
        session = store.session(V3.User, V3.Likes)
        heavier = {("User", 1): full_name, ("Likes", 1): lambda row: row | {"weight": f"{row['weight']} kg"}}
        migrate(session, upgraders=heavier)
        found = session.query().relations(V3.Likes).collect()
        assert [(like.kind, like.weight, like.left and like.left.full_name) for like in found] == [
            ("k1", "2 kg", "ANN"),
            ("k2", "3 kg", "ANN"),
        ]

    def test_several_types_migrate_in_one_commit(self, store: StoreUnderTest) -> None:
        commit(
            store.session(V1.User, V1.Likes), V1.User(id="a", name="A"), V1.Likes(left_key="a", right_key="a", kind="k")
        )
        session = store.session(V3.User, V3.Likes)
        steps = {("User", 1): full_name, ("Likes", 1): lambda row: row | {"weight": "1"}}
        result = migrate(session, upgraders=steps)
        assert (result.types_migrated, len(session.list_commits())) == (["User", "Likes"], 2)

    def test_a_type_without_rows_migrates_without_an_upgrader(self, store: StoreUnderTest) -> None:
        with store.session(V1.User).engine as engine, engine.write() as transaction:
            transaction.activate(V1.User.__declaration__.schema)
            transaction.publish({})
        session = store.session(V3.User)
        result = migrate(session, upgraders={})
        commit(session, V3.User(id="a", full_name="A"))
        assert (result.rows_migrated, session.query().entities(V3.User).count()) == (0, 1)

    def test_writing_goes_on_after_a_migration(self, users: StoreUnderTest) -> None:
        session = users.session(V2.User)
        migrate(session)
        assert commit(session, V2.User(id="a", name="Anna", email=None), V2.User(id="c", name="Cyd", email="c@d")) == 4

    def test_unchanged_rows_write_nothing_after_a_migration(self, users: StoreUnderTest) -> None:
        session = users.session(V2.User)
        migrate(session)
        assert commit(session, V2.User(id="a", name="Anna", email=None)) is None

    def test_a_migration_survives_reopening(self, users: StoreUnderTest) -> None:
        migrate(users.session(V2.User))
        users.close()
        assert [user.level for user in users.session(V2.User).query().entities(V2.User).collect()] == [7, 7]

    # --- the log ---

    def test_a_migration_is_a_commit_that_says_so(self, users: StoreUnderTest) -> None:
        session = users.session(V2.User)
        migrate(session, meta={"ticket": "x"})
        entry = session.get_commit(3)
        assert entry is not None
        assert entry["metadata"] == {
            "ticket": "x",
            "kind": "migration",
            "migrated_types": [
                {
                    "type_kind": "entity",
                    "type_name": "User",
                    "from_schema_version_id": 1,
                    "to_schema_version_id": 2,
                    "rows_rewritten": 2,
                    "change": "strengthening",
                    "renamed_fields": {},
                    "filled": {"email": None, "level": 7},
                }
            ],
        }

    def test_rows_that_were_carried_over_are_updates(self, users: StoreUnderTest) -> None:
        session = users.session(V2.User)
        migrate(session)
        assert [change["operation"] for change in session.list_commit_changes(3)] == ["update_version"] * 2

    # --- the boundary (RFC 0009 §2) ---

    def test_history_begins_at_the_activation(self, users: StoreUnderTest) -> None:
        session = users.session(V2.User)
        migrate(session)
        found = session.query().entities(V2.User).with_history().collect()
        assert [(user.meta().commit_id, user.id) for user in found] == [(3, "a"), (3, "b")]

    def test_history_since_an_older_commit_begins_at_the_activation(self, users: StoreUnderTest) -> None:
        session = users.session(V2.User)
        migrate(session)
        assert session.query().entities(V2.User).history_since(1).count() == 2

    def test_as_of_before_the_activation_is_empty_and_says_why(self, users: StoreUnderTest) -> None:
        session = users.session(V2.User)
        migrate(session)
        found = session.query().entities(V2.User).as_of(2).collect()
        assert (found, found.diagnostics) == ([], [{"reason": "commit_before_activation", "activation_commit_id": 3}])

    def test_as_of_the_activation_is_complete_and_has_nothing_to_say(self, users: StoreUnderTest) -> None:
        session = users.session(V2.User)
        migrate(session)
        found = session.query().entities(V2.User).as_of(3).collect()
        assert (len(found), found.diagnostics) == (2, [])

    def test_the_last_query_can_be_asked_for_its_diagnostics(self, users: StoreUnderTest) -> None:
        session = users.session(V2.User)
        migrate(session)
        session.query().entities(V2.User).as_of(2).count()
        assert session.repository.get_last_query_diagnostics()[0]["reason"] == "commit_before_activation"

    def test_every_type_a_question_touches_is_spoken_for(self, store: StoreUnderTest) -> None:
        commit(
            store.session(V1.User, V1.Likes), V1.User(id="a", name="A"), V1.Likes(left_key="a", right_key="a", kind="k")
        )
        session = store.session(V2.User, V2.Likes)
        migrate(session)
        query = session.query()
        said = {"reason": "commit_before_activation", "type": "entity User", "activation_commit_id": 2}
        collected = query.relations(V2.Likes).as_of(1).collect()
        filtered = query.relations(V2.Likes).as_of(1).where(left(V2.Likes).name == "A").collect()
        traversed = query.entities(V2.User).via(V2.Likes).as_of(1).collect()
        unnamed = {"reason": "commit_before_activation", "activation_commit_id": 2}
        assert [(len(found), found.diagnostics) for found in (collected, filtered, traversed)] == [
            (1, [said]),
            (0, [said]),
            (0, [unnamed]),
        ]

    # --- nothing half done ---

    def test_a_missing_upgrader_stops_it(self, users: StoreUnderTest) -> None:
        with pytest.raises(MissingUpgraderError) as caught:
            migrate(users.session(V3.User), upgraders={("User", 2): full_name})
        assert caught.value.missing == {"User": [1]}

    @pytest.mark.parametrize(
        "step",
        [
            lambda row: {}[row["id"]],
            lambda row: {"id": row["id"]},
            lambda row: None,
            lambda row: {"id": "other", "full_name": "x"},
            lambda row: {"id": row["id"], "full_name": 1},
        ],
        ids=["raises", "leaves out a field", "returns nothing", "changes the key", "gives a wrong type"],
    )
    def test_a_failing_upgrader_names_the_row_and_changes_nothing(self, users: StoreUnderTest, step: Any) -> None:
        session = users.session(V3.User)
        with pytest.raises(MigrationError, match=r"User.*'a'.*Anna"):
            migrate(session, upgraders={("User", 1): step})
        old = users.session(V1.User)
        assert (len(old.list_commits()), old.query().entities(V1.User).with_history().count()) == (2, 3)

    def test_the_other_types_stay_as_they_are_when_one_fails(self, store: StoreUnderTest) -> None:
        types = (V1.User, V1.Likes)
        commit(store.session(*types), V1.User(id="a", name="A"), V1.Likes(left_key="a", right_key="a", kind="k"))
        steps: dict[tuple[str, int], Any] = {("User", 1): full_name, ("Likes", 1): lambda row: None}
        with pytest.raises(MigrationError):
            migrate(store.session(V3.User, V3.Likes), upgraders=steps)
        assert store.session(*types).query().entities(V1.User).count() == 1

    def test_an_old_session_is_refused_after_a_migration(self, users: StoreUnderTest) -> None:
        old = users.session(V1.User)
        old.query().entities(V1.User).collect()
        migrate(users.session(V2.User))
        with pytest.raises(Exception, match="disagree"):
            commit(old, V1.User(id="z", name="Zed"))
