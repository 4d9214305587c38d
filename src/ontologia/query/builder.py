"""Where a query begins: the entities or the relations of one type."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from ontologia.model import (
    Entity,
    Relation,
)
from ontologia.query.aggregating import AggregatingQuery
from ontologia.query.paths import PathQuery
from ontologia.query.query import QuerySource, declaration_of
from ontologia.query.results import Hydrator, Result, attach_endpoints

E = TypeVar("E", bound=Entity)
R = TypeVar("R", bound=Relation[Any, Any])


class QueryRoot:
    """`session.query()`: choose what to ask about."""

    __slots__ = ("_source",)

    def __init__(self, source: QuerySource) -> None:
        self._source = source

    def entities(self, cls: type[E]) -> EntityQuery[E]:
        return EntityQuery(self._source, declaration_of(cls, "entity"))

    def relations(self, cls: type[R]) -> RelationQuery[R]:
        return RelationQuery(self._source, declaration_of(cls, "relation"))


class EntityQuery(AggregatingQuery[E]):
    """Entities of one type."""

    __slots__ = ()

    def collect(self) -> Result[E]:
        hydrator: Hydrator[E] = Hydrator.of(cast("type[E]", self._declaration.cls))
        made = hydrator.all_of(self._source, self._plan)
        return Result(made.found, made.diagnostics)

    def via(self, relation: type[Relation[Any, Any]], *, reverse: bool = False) -> PathQuery:
        """Follow a relation to the entities at its other end.

        The direction is clear from the types; where a relation joins a type with itself, it is left to right unless
        `reverse` is set.
        """
        return PathQuery(self._source, self._declaration, self._plan).via(relation, reverse=reverse)


class RelationQuery(AggregatingQuery[R]):
    """Relations of one type; collected ones carry their endpoints."""

    __slots__ = ()

    def collect(self) -> Result[R]:
        with self._source.snapshot():  # endpoints of the same state as their relations
            hydrator: Hydrator[R] = Hydrator.of(cast("type[R]", self._declaration.cls))
            made = hydrator.all_of(self._source, self._plan)
            said = attach_endpoints(self._source, self._declaration, made.found, self._plan)
        known = list(made.diagnostics)
        return Result(made.found, known + [item for item in said if item not in known])
