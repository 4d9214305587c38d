"""Upgraders: functions that carry a row from one schema version of its type to the next."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from ontologia.errors import MigrationError

Row = dict[str, Any]
Upgrader = Callable[[Row], Row]
Upgraders = Mapping[tuple[str, int], Upgrader]

_registered: dict[tuple[str, int], Upgrader] = {}


def upgrader(type_name: str, *, from_version: int) -> Callable[[Upgrader], Upgrader]:
    """Register a step: `@upgrader("Customer", from_version=1)` on a function from the old row to the new one."""

    def register(function: Upgrader) -> Upgrader:
        _registered[type_name, from_version] = function
        return function

    return register


def registered_upgraders() -> dict[tuple[str, int], Upgrader]:
    """Every upgrader registered so far in this process."""
    return dict(_registered)


def load_upgraders(module: str) -> dict[tuple[str, int], Upgrader]:
    """Import a module and give the upgraders it defines."""
    try:
        loaded = importlib.import_module(module)
    except ImportError as problem:
        raise MigrationError(f"the upgraders module {module!r} cannot be imported: {problem}") from problem
    members = {id(value) for value in vars(loaded).values()}
    return {step: function for step, function in _registered.items() if id(function) in members}
