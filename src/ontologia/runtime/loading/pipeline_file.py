"""A pipeline as a TOML file: the target, the models, and one table per load.

[target]
uri = "s3://bucket/onto"          # or db = "onto.db"
models = ["shop.models"]          # modules, or files such as "models.py", relative to this file

[options]                          # optional
on_invalid = "quarantine"

[[load]]
source = "customers.csv"           # relative to this file
into = "Customer"
map = { id = "customer_id", name = "trim(name)" }

[[load]]
source = "orders/*.parquet"
into = "Order"
left = "customer"
right = "product"

[meta]
source = "nightly"
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ontologia.errors import UnreadableFileError, ValidationError
from ontologia.model import Declaration
from ontologia.runtime.intake.loads import CHOICES, check_choices, duplicates_of, load_expressions
from ontologia.runtime.loading.named_sources import are_few_bytes, check_source

_TABLES = {"target": {"uri", "db", "models"}, "options": {"on_invalid", "on_conflict"}, "spark": None, "meta": None}
_IDENTITY = ("key", "left", "right", "instance_key")
_LOAD = {
    "source",
    "into",
    "map",
    "key",
    "left",
    "right",
    "instance_key",
    "format",
    "options",
    "order_by",
    "on_duplicate",
    "on_tie",
    "mode",
    "max_removals",
    "missing",
}


class TakesLoads(Protocol):
    """A pipeline, in process or on Spark."""

    @property
    def load(self) -> Callable[..., Any]: ...


P = TypeVar("P", bound=TakesLoads)


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """What a file says, checked."""

    path: Path
    target: str | None
    models: list[str]
    loads: list[dict[str, Any]]
    options: dict[str, Any] = field(default_factory=dict)
    spark: dict[str, str] = field(default_factory=dict)
    meta: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str | Path) -> PipelineFile:
        place = Path(path)
        try:
            content = tomllib.loads(place.read_text(encoding="utf-8"))
        except OSError as problem:
            raise UnreadableFileError(f"{place} cannot be read: {problem.strerror}") from problem
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
            raise UnreadableFileError(f"{place} is not TOML: {problem}") from problem
        return cls._check(place, content)

    @classmethod
    def _check(cls, place: Path, content: Mapping[str, Any]) -> PipelineFile:
        _check_known(place, "the file", content, {*_TABLES, "load"})
        for name, keys in _TABLES.items():
            if not isinstance(content.get(name, {}), dict):
                raise ValidationError(f"{place}: [{name}] must be a table")
            if keys is not None:
                _check_known(place, f"[{name}]", content.get(name, {}), keys)
        target, options = content.get("target", {}), content.get("options", {})
        loads = content.get("load", [])
        if not isinstance(loads, list) or not loads:
            raise ValidationError(f"{place}: say what to load, in one or more [[load]] tables")
        for number, load in enumerate(loads, 1):
            _check_known(place, f"[[load]] {number}", load, _LOAD)
            for needed in ("source", "into"):
                if not isinstance(load.get(needed), str):
                    raise ValidationError(f"{place}: [[load]] {number} needs {needed}")
            _check_texts(place, number, load)
        for table in (options, *loads):
            check_choices({name: table[name] for name in CHOICES if name in table}, f"{place}: ")
        models = target.get("models", [])
        names = [models] if isinstance(models, str) else list(models)
        texts = {
            table: {key: str(value) for key, value in content.get(table, {}).items()} for table in ("spark", "meta")
        }
        where = target.get("uri") or (None if "db" not in target else _near(place, target["db"]))
        return cls(
            place,
            where,
            [_near(place, name) if name.endswith(".py") or "/" in name else name for name in names],
            loads,
            dict(options),
            texts["spark"],
            texts["meta"],
        )

    @property
    def is_brief(self) -> bool:
        """Whether its loads take less time than Spark to start. A sync reads all that is stored."""
        is_sync = any(load.get("mode") == "sync" for load in self.loads)
        return not is_sync and are_few_bytes(_near(self.path, load["source"]) for load in self.loads)

    def check(self, types: Mapping[str, Declaration]) -> None:
        """All that is wrong with the loads and can be seen without Spark, which takes its time to start."""
        for number, load in enumerate(self.loads, 1):
            try:
                check_source(_near(self.path, load["source"]), load.get("format"), load.get("options"))
                identity = {part: load.get(part) for part in _IDENTITY}
                load_expressions(self._find_declaration(load, types), load.get("map", {}), **identity)
                duplicates_of(load.get("order_by"), load.get("on_duplicate"))
            except ValidationError as problem:
                raise type(problem)(f"{self.path}: [[load]] {number}: {problem}") from problem

    def _find_declaration(self, load: Mapping[str, Any], types: Mapping[str, Declaration]) -> Declaration:
        declaration = types.get(load["into"])
        if declaration is None:
            known = ", ".join(sorted(types)) or "none"
            raise ValidationError(f"no declared type is named {load['into']!r}; the models have {known}")
        return declaration

    def fill(self, pipeline: P, types: Mapping[str, Declaration]) -> P:
        """Add its loads to a pipeline that has its `options`. `types` are the declared ones, by name."""
        self.check(types)
        for load in self.loads:
            rest = {name: value for name, value in load.items() if name not in ("source", "into")}
            pipeline.load(_near(self.path, load["source"]), into=types[load["into"]].cls, **rest)
        return pipeline


def _check_texts(place: Path, number: int, load: Mapping[str, Any]) -> None:
    """What a load says is text, but for a number of rows, and the map and the options, which are tables; a map is of
    texts."""
    for name, value in load.items():
        where = f"{place}: [[load]] {number}: {name}"
        if name in ("map", "options"):
            if not isinstance(value, dict):
                raise ValidationError(f'{where} must be a table, as in {name} = {{ name = "…" }}, not {value!r}')
        elif name == "order_by" and isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            continue
        elif name == "max_removals":
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValidationError(f"{where} must be a number of rows, not {value!r}")
        elif not isinstance(value, str):
            raise ValidationError(f"{where} must be text, not {value!r}")
    for name, value in load.get("map", {}).items():
        if not isinstance(value, str):
            raise ValidationError(f"{place}: [[load]] {number}: map.{name} must be a Spark expression, not {value!r}")


def _near(place: Path, path: str) -> str:
    """A path as the file means it: from the folder that the file is in. An address stays as it is."""
    return path if "://" in path or path.startswith("jdbc:") else str(place.parent / path)


def _check_known(place: Path, what: str, table: Any, keys: set[str]) -> None:
    if not isinstance(table, dict):
        raise ValidationError(f"{place}: {what} must be a table")
    unknown = sorted(set(table) - keys)
    if unknown:
        raise ValidationError(f"{place}: {what} has no {', '.join(unknown)}; it takes {', '.join(sorted(keys))}")
