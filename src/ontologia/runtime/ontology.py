"""`Ontology`: a store and its declared types, from which sessions are opened."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ontologia.config import OntologiaConfig
from ontologia.engines.dispatch import open_repository
from ontologia.model import Entity, Relation
from ontologia.runtime.session import OnStale, Session
from ontologia.runtime.store import Store, collect_declarations


class Ontology(Store):
    """Binds types to a storage target.

    `db_path` is a SQLite file; `storage_uri` selects any engine. Given both, they must mean the same file; given
    neither, it is `onto.db` in the working directory. A file that is not there is made by the first write. A graph is
    bound to one of its branches, `main` by default.
    """

    def __init__(
        self,
        db_path: str | None = None,
        config: OntologiaConfig | None = None,
        *,
        storage_uri: str | None = None,
        branch: str | None = None,
        entity_types: Iterable[type[Entity]] | None = None,
        relation_types: Iterable[type[Relation[Any, Any]]] | None = None,
    ) -> None:
        declarations = collect_declarations(entity_types, relation_types)
        repository = open_repository(db_path, storage_uri=storage_uri, config=config, branch=branch, make_file=False)
        super().__init__(repository, declarations)

    def session(self, *, on_stale: OnStale = "error") -> Session:
        """A unit of work on this store; `on_stale="overwrite"` lets objects replace what changed since they were
        read."""
        return Session.over(self.repository, self._declarations, on_stale=on_stale)
