"""`Session`: a unit of work. `ensure` says what should be, `commit` makes it so."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Self

from ontologia.config import OntologiaConfig
from ontologia.engines.base import user_metadata
from ontologia.engines.rowwise import RowwiseRepository
from ontologia.model import Declaration, Declared, Entity, Relation, TypeRef
from ontologia.runtime.commit import Wanted, commit_state
from ontologia.runtime.rows import WantedRows
from ontologia.runtime.store import Store, declared, open_target


class Session(Store):
    """Collects wanted state and commits it. As a context manager it commits on a clean exit and discards otherwise.

    >>> with Session("onto.db", entity_types=[Customer]) as session:          # doctest: +SKIP
    ...     session.ensure(Customer(id="c1", name="Alice"))
    """

    def __init__(
        self,
        datastore_uri: str | os.PathLike[str],
        namespace: str | None = None,
        *,
        entity_types: Iterable[type[Entity]] | None = None,
        relation_types: Iterable[type[Relation[Any, Any]]] | None = None,
        instance_metadata: Mapping[str, str] | None = None,
        config: OntologiaConfig | None = None,
    ) -> None:
        super().__init__(open_target(datastore_uri, config), declared(entity_types, relation_types))
        self._start(namespace, instance_metadata, owns_repository=True)

    @classmethod
    def over(cls, repository: RowwiseRepository, declarations: Mapping[TypeRef, Declaration]) -> Session:
        """A session on a repository that somebody else opened, and will close."""
        session = cls.__new__(cls)
        Store.__init__(session, repository, declarations)
        session._start(None, None, owns_repository=False)
        return session

    def _start(
        self, namespace: str | None, instance_metadata: Mapping[str, str] | None, *, owns_repository: bool
    ) -> None:
        self.namespace = namespace or self.config.default_namespace
        self.instance_metadata = user_metadata(instance_metadata)
        self._owns_repository = owns_repository
        self._metadata: dict[str, str] = {}
        self._wanted: dict[TypeRef, WantedRows] = {}
        self._rows_of: dict[type[Declared], WantedRows] = {}

    def ensure(self, objects: Declared | Iterable[Declared]) -> None:
        """Declare state: one entity or relation, or any number of them. The last word on an identity wins."""
        if isinstance(objects, Declared):
            self._want(objects)
            return
        if isinstance(objects, (str, bytes, Mapping)) or not isinstance(objects, Iterable):
            raise TypeError(f"ensure() takes entities and relations, not {objects!r}")
        for obj in objects:
            self._want(obj)

    def _want(self, obj: Declared) -> None:
        rows = self._rows_of.get(type(obj))
        if rows is None:
            rows = self._rows_of[type(obj)] = self._admitted(obj)
        rows.add(obj)

    def _admitted(self, obj: Declared) -> WantedRows:
        """Where the rows of an object's class are collected; what does not belong here is refused."""
        if not isinstance(obj, Declared):
            raise TypeError(f"ensure() takes entities and relations, not {obj!r}")
        declaration = obj.__declaration__
        known = self._declarations.setdefault(declaration.ref, declaration)
        if known is not declaration and known.schema.fingerprint != declaration.schema.fingerprint:
            raise TypeError(f"two different classes are stored as {declaration.ref}: give one another name=")
        return self._wanted.setdefault(declaration.ref, WantedRows(known))

    def add_commit_meta(self, key: str, value: str) -> None:
        """Put a note on the next commit."""
        self._metadata |= user_metadata({key: value})

    def commit(self, *, meta: Mapping[str, str] | None = None) -> int | None:
        """Write what differs from the store, as one commit. Returns its id, or None when nothing differs.

        When it fails, what was ensured stays pending, so that it can be tried again.
        """
        metadata = self.instance_metadata | self._metadata | user_metadata(meta)
        if not self._wanted:
            return None
        wanted = {ref: Wanted(rows.declaration.schema, rows.table()) for ref, rows in self._wanted.items()}
        commit_id = commit_state(self.repository, wanted, self.schemas, metadata)
        self.discard()
        return commit_id

    def discard(self) -> None:
        """Forget what was ensured and not committed."""
        self._wanted.clear()
        self._rows_of.clear()
        self._metadata.clear()

    def close(self) -> None:
        if self._owns_repository:
            super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        try:
            if problem[0] is None:
                self.commit()
            else:
                self.discard()
        finally:
            self.close()
