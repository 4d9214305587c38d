"""Reading across schema versions on executors: classes and upgraders go there by name, and are imported there."""

from __future__ import annotations

import importlib
import json
import os
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from ontologia.engines.base import Engine
from ontologia.engines.catalog import Catalog
from ontologia.engines.versions import read_in, versions_of
from ontologia.errors import ValidationError
from ontologia.model import Declaration, TypeSchema
from ontologia.model.upgraders import load_upgraders
from ontologia.query.plan import Across, Window

ACROSS, MODELS, UPGRADERS = "acrossVersions", "models", "upgraders"


def across_options(
    engine: Engine, catalog: Catalog, schema: TypeSchema, window: Window, across: Across | None
) -> dict[str, str]:
    """What makes the data source read across versions; nothing where the version in force has all rows of a window."""
    if across is None or schema.ref not in catalog.layouts:
        return {}
    versions = versions_of(engine, schema, catalog)
    if all(version.until is None for version in read_in(versions, window)):
        return {}
    names = {version.layout.ref.name for version in versions}
    functions = {key: function for key, function in across.upgraders.items() if key[0] in names}
    found = {ACROSS: "true"}
    declaration = across.declarations.get(schema.ref)
    if declaration is not None and (functions or _is_importable(declaration.cls)):
        found[MODELS] = _name_of(declaration.cls)
    if functions:
        found[UPGRADERS] = json.dumps([[*key, _name_of(function)] for key, function in functions.items()])
    return found


def across_from(options: Mapping[str, str]) -> Across:
    """The classes and upgraders that the options of a read name.

    `models` is one class, such as "app.models:Customer"; `upgraders` are modules, such as "app.migrations", separated
    by commas, or the functions themselves, as `across_options` writes them.
    """
    across = Across()
    if MODELS in options:
        across = across.knowing(declaration_named(options[MODELS]))
    text = options.get(UPGRADERS, "")
    if text.startswith("["):
        named_steps = json.loads(text)
        return Across(across.declarations, {(name, at): _import(UPGRADERS, place) for name, at, place in named_steps})
    modules = [name.strip() for name in text.split(",") if name.strip()]
    steps = {key: function for module in modules for key, function in load_upgraders(module).items()}
    return Across(across.declarations, steps)


def declaration_named(named: str) -> Declaration:
    """What the class that the option `models` names declares."""
    declaration = getattr(_import(MODELS, named), "__declaration__", None)
    if not isinstance(declaration, Declaration):
        raise ValidationError(f'models={named!r} names no entity or relation class: write it "app.models:Customer"')
    return declaration


def _is_importable(item: Any) -> bool:
    return item.__module__ != "__main__" and "<" not in item.__qualname__


def _name_of(item: Any) -> str:
    if not _is_importable(item):
        raise ValidationError(
            f"executors cannot import {item.__qualname__} from {item.__module__}: put it into a module of its own"
        )
    return f"{item.__module__}:{item.__qualname__}"


def _import(option: str, named: str) -> Any:
    module, _, place = named.partition(":")
    try:
        found: Any = _import_module(module)
        for name in filter(None, place.split(".")):
            found = getattr(found, name)
    except ImportError as problem:
        raise ValidationError(
            f"{option}={named!r} cannot be imported by the processes that Spark starts: {problem}. Ship the module "
            "with --py-files or spark.sparkContext.addPyFile(…), or install it where Spark runs"
        ) from None
    except AttributeError as problem:
        raise ValidationError(f"{option}={named!r} is not there: {problem}") from None
    return found


def _import_module(name: str) -> ModuleType:
    """A module that is installed, or in an archive of `--py-files` or `addPyFile`.

    Spark tells functions of the user which archives there are, but not a source that it found by itself. What comes
    from an archive goes on to tasks by value, because they are not told either.
    """
    try:
        found = importlib.import_module(name)
    except ModuleNotFoundError:
        unknown = [path for path in _shipped_archives() if path not in sys.path]
        if not unknown:
            raise
        sys.path += unknown
        importlib.invalidate_caches()
        found = importlib.import_module(name)
    archives = tuple(f"{path}{os.sep}" for path in _shipped_archives())
    for module in list(sys.modules.values()):
        if str(getattr(module, "__file__", None)).startswith(archives):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return found


def _shipped_archives() -> list[str]:
    """The archives among the files that Spark has brought along, in a process that it started."""
    from pyspark import SparkFiles

    if not SparkFiles._is_running_on_worker:  # the driver imports from them as Spark arranged it
        return []
    return [str(path) for path in sorted(Path(SparkFiles.getRootDirectory()).iterdir()) if zipfile.is_zipfile(path)]
