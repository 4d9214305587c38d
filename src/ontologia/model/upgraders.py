"""Upgraders: functions that carry a row from one schema version of its type to the next."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ontologia.errors import MigrationError

Row = dict[str, Any]
Upgrader = Callable[[Row], Row]
Upgraders = Mapping[tuple[str, int], Upgrader]

_registered: dict[tuple[str, int], Upgrader] = {}
_MARK = "__upgrades__"  # on a function: the steps it was declared for, so that its module can be loaded again


def upgrader(type_name: str, *, from_version: int) -> Callable[[Upgrader], Upgrader]:
    """Register a step: `@upgrader("Customer", from_version=1)` on a function from the old row to the new one."""

    def register(function: Upgrader) -> Upgrader:
        _register({(type_name, from_version): function})
        steps = {*getattr(function, _MARK, ()), (type_name, from_version)}
        setattr(function, _MARK, steps)
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
    return upgraders_of(loaded)


def upgraders_of(module: ModuleType) -> dict[tuple[str, int], Upgrader]:
    """The upgraders that a module holds, registered (again, if it was loaded before)."""
    found = {step: value for value in vars(module).values() for step in getattr(value, _MARK, ())}
    _register(found)
    return found


def _register(found: Upgraders) -> None:
    """Take steps in. A function that was defined again, as a module is that is loaded again, replaces the old one."""
    for (type_name, version), function in found.items():
        known = _registered.get((type_name, version), function)
        if _describe(known) != _describe(function):
            raise MigrationError(
                f"two upgraders for {type_name} from version {version}: {_describe(known)} and {_describe(function)}; "
                "remove one of them"
            )
    _registered.update(found)


def _describe(function: Upgrader) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', repr(function))}"
