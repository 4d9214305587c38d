"""What an ontology and a session both offer: questions, the log, migrations, drops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Self

from ontologia.config import OntologiaConfig
from ontologia.engines.catalog import user_metadata
from ontologia.engines.repository import Repository
from ontologia.model import Declaration, Declared, Entity, Relation, TypeRef, TypeSchema
from ontologia.model.upgraders import Upgraders, registered_upgraders
from ontologia.query.builder import QueryRoot
from ontologia.runtime import drop, erasure, forgetting, migration
from ontologia.runtime.drop import DropPreview
from ontologia.runtime.erasure import ErasurePreview, ErasureReport
from ontologia.runtime.forgetting import ForgetPreview, ForgetReport
from ontologia.runtime.migration import MigrationCheck, MigrationPreview, MigrationResult

VALIDATORS_AT_ONCE = 8
"""So many types of a bucket get their validators when it is opened. The first makes Pydantic load, which takes longer
than a commit, and the first commit of a process would wait for it."""


class Store:
    """A repository and the types that are declared for it."""

    def __init__(self, repository: Repository, declarations: Mapping[TypeRef, Declaration]) -> None:
        self.repository = repository
        self.engine = repository.engine
        self._declarations = dict(declarations)
        if self.engine.capabilities.object_storage:
            for declaration in islice(self._declarations.values(), VALIDATORS_AT_ONCE):
                declaration.make_adapter()

    @property
    def config(self) -> OntologiaConfig:
        return self.engine.config

    @property
    def declarations(self) -> dict[TypeRef, Declaration]:
        """The declared types."""
        return dict(self._declarations)

    @property
    def schemas(self) -> dict[TypeRef, TypeSchema]:
        """The schemas of the declared types, as in code."""
        return {ref: declaration.schema for ref, declaration in self._declarations.items()}

    # --- questions ---

    def query(self) -> QueryRoot:
        """Start a query: `store.query().entities(Customer).where(Customer.age > 30).collect()`."""
        return QueryRoot(self.engine)

    def list_commits(self, limit: int | None = 10, since_commit_id: int | None = None) -> list[dict[str, Any]]:
        """Commits newest first: id, created_at, runtime_id, metadata."""
        return self.repository.list_commits(limit, since_commit_id)

    def get_commit(self, commit_id: int) -> dict[str, Any] | None:
        return self.repository.get_commit(commit_id)

    def commit_at(self, moment: datetime) -> int:
        """The last commit made at or before a time, for `as_of` and the like; 0 when there is none."""
        return self.engine.commit_at(moment)

    def list_commit_changes(self, commit_id: int) -> list[dict[str, Any]]:
        """What a commit wrote: kind, type_name, identity, operation."""
        return self.repository.list_commit_changes(commit_id)

    def storage_info(self) -> dict[str, Any]:
        """The backend, the engine version, and the layout of every type."""
        return self.repository.storage_info()

    # --- schema ---

    def validate(self) -> None:
        """Check the declared types against the store; a `SchemaOutdatedError` says how they differ. Writes nothing."""
        self.engine.catalog().check(self.schemas)

    def migrate(
        self,
        dry_run: bool = True,
        *,
        token: str | None = None,
        force: bool = False,
        upgraders: Upgraders | None = None,
        meta: Mapping[str, str] | None = None,
        allow_discard: bool = False,
    ) -> MigrationPreview | MigrationResult:
        """Preview a migration to the declared types, or apply it with the preview's token.

        Without `upgraders`, those registered with `@upgrader` are used. A field that the code gave up, and that has
        values, needs `allow_discard`.
        """
        declarations = list(self._declarations.values())
        steps = registered_upgraders() if upgraders is None else upgraders
        if dry_run:
            return migration.preview(self.engine, declarations, steps)
        return migration.apply(
            self.engine,
            declarations,
            steps,
            token=token,
            force=force,
            metadata=user_metadata(meta),
            allow_discard=allow_discard,
        )

    def check_migration(self, upgraders: Upgraders | None = None) -> MigrationCheck:
        """Run the upgraders over every row without writing anything; each row that fails is reported."""
        steps = registered_upgraders() if upgraders is None else upgraders
        return migration.check(self.engine, list(self._declarations.values()), steps)

    def drop_types(
        self,
        entities: Sequence[str | type[Declared]] = (),
        relations: Sequence[str | type[Declared]] = (),
        *,
        cascade_relations: bool = False,
        purge_history: bool = False,
        dry_run: bool = True,
        token: str | None = None,
    ) -> DropPreview | int:
        """Preview dropping stored types, or drop them with the preview's token; then it gives the commit id.

        A dropped type reads as empty and takes no new rows. Its history stays stored unless `purge_history` is set.
        """
        plan = drop.preview(
            self.repository, entities, relations, cascade_relations=cascade_relations, purge_history=purge_history
        )
        return plan if dry_run else drop.apply(self.repository, plan, token)

    def erase(
        self,
        type_name: str | type[Declared],
        *keys: Any,
        reason: str,
        cascade: bool = False,
        dry_run: bool = True,
        token: str | None = None,
    ) -> ErasurePreview | ErasureReport:
        """Preview erasing identities with all their versions, or erase them with the preview's token.

        A relation's key is a tuple of its ends and, where it has one, its instance key. Relations to an erased entity
        must go as well: `cascade`.
        """
        plan = erasure.preview(self.engine, type_name, keys, reason=reason, cascade=cascade)
        return plan if dry_run else erasure.apply(self.engine, plan, token)

    def forget(
        self, before: int | datetime, *, dry_run: bool = True, token: str | None = None
    ) -> ForgetPreview | ForgetReport:
        """Preview giving up history before a commit, or before the last one at a time; with the token, give it up.

        What was there at that commit stays, as the first state that can be read; versions that it and earlier commits
        superseded go.
        """
        plan = forgetting.preview(self.engine, before)
        return plan if dry_run else forgetting.apply(self.engine, plan, token)

    # --- life ---

    def close(self) -> None:
        self.repository.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def collect_declarations(
    entity_types: Iterable[type[Entity]] | None, relation_types: Iterable[type[Relation[Any, Any]]] | None
) -> dict[TypeRef, Declaration]:
    """The declarations of these classes; two classes under one stored name are an error."""
    found: dict[TypeRef, Declaration] = {}
    for base, classes in ((Entity, entity_types or ()), (Relation, relation_types or ())):
        if isinstance(classes, type):
            raise TypeError(f"{base.__name__.lower()}_types is a list of classes, as in [{classes.__name__}]")
        for cls in classes:
            if not isinstance(cls, type) or not issubclass(cls, base) or cls is base:
                raise TypeError(f"{cls!r} is not a class derived from {base.__name__}")
            declaration = cls.__declaration__
            other = found.setdefault(declaration.ref, declaration)
            if other is not declaration:
                raise TypeError(f"two classes are stored as {declaration.ref}: give one another name=")
    return found
