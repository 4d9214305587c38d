"""Random classes and upgraders under names by which Spark's workers can import them: the name says what they are.

A module that is asked for a name it does not have may make it up. So the name is a recipe: what the class was declared
with, or what the upgrader does, pickled and written in hex.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ontologia.model import Field
from ontologia.testing.strategies.migrations import IDENTITY, Steps
from ontologia.testing.strategies.models import RandomModel, RandomType, declare_entity, declare_relation

PREFIX = "pickled_"


@dataclass(frozen=True)
class ClassRecipe:
    """What a random class was declared with; a relation has the recipes of its ends."""

    name: str
    key: str | None
    annotations: Mapping[str, Any]
    options: Mapping[str, Mapping[str, Any]]
    renamed_from: str | None
    key_renamed_from: str | None
    ends: tuple[ClassRecipe, ...] = ()

    @classmethod
    def of(cls, item: RandomType, model: RandomModel) -> ClassRecipe:
        declaration = item.cls.__declaration__
        key = declaration.primary_key or declaration.instance_key
        given = {
            name: {"renamed_from": options.renamed_from, **({} if options.required else {"default": options.default})}
            for name, options in declaration.options.items()
            if name != key and name not in IDENTITY
        }
        by_class = {entity.cls: entity for entity in model.entities}
        return cls(
            declaration.ref.name,
            key,
            {name: kind.annotation for name, kind in item.kinds.items() if name not in IDENTITY},
            given,
            declaration.schema.earlier.type,
            None if key is None else declaration.schema.earlier.fields.get(key),
            tuple(cls.of(by_class[end], model) for end in declaration.endpoints or ()),
        )

    def make(self) -> type[Any]:
        how: dict[str, Any] = {
            "options": {name: Field(**options) for name, options in self.options.items()},
            "renamed_from": self.renamed_from,
            "key_renamed_from": self.key_renamed_from,
        }
        if not self.ends:
            return declare_entity(self.name, self.key or "", self.annotations, **how)
        left, right = (_made(_text(end)) for end in self.ends)
        return declare_relation(self.name, left, right, self.annotations, instance_key=self.key, **how)


def name_classes(model: RandomModel) -> None:
    """Give the classes of a model names that workers can import."""
    for item in model.types:
        _name(item.cls, _text(ClassRecipe.of(item, model)))


def named_steps(steps: Steps) -> Steps:
    """Upgraders that workers can import."""
    found: Steps = {}
    for key, step in steps.items():
        found[key] = _function(step)
        _name(found[key], _text(step))
    return found


def _function(step: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def upgrade(row: dict[str, Any]) -> dict[str, Any]:
        return dict(step(row))

    return upgrade


def _text(recipe: Any) -> str:
    return f"{PREFIX}{pickle.dumps(recipe).hex()}"


def _name(item: Any, name: str) -> None:
    item.__module__, item.__qualname__ = __name__, name
    globals()[name] = item  # who looks the name up must find the very same


def __getattr__(name: str) -> Any:
    if not name.startswith(PREFIX):
        raise AttributeError(name)
    return _made(name)


def _made(name: str) -> Any:
    if name not in globals():
        recipe = pickle.loads(bytes.fromhex(name.removeprefix(PREFIX)))
        _name(recipe.make() if isinstance(recipe, ClassRecipe) else _function(recipe), name)
    return globals()[name]
