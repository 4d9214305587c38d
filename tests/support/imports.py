"""What the modules of the package know of each other, read from their source: imports at any depth, also those that only
a type checker sees and those by a string, and private names that are taken or reached into."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import ontologia

SOURCE = Path(ontologia.__file__).parent
OF_NAMED_TUPLES = {"_fields", "_asdict", "_replace", "_make"}  # public, for all their underscores
MODULE_NAME = re.compile(r"(ontologia(?:\.\w+)+)(?::[\w.]+)?")


@dataclass(frozen=True, eq=False)
class Module:
    """One file of the package."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def part(self) -> str:
        return part_of(self.name)

    @property
    def room(self) -> str:
        return room_of(self.name)

    @property
    def package(self) -> list[str]:
        """What a relative import starts from."""
        return self.name.split(".") if self.path.name == "__init__.py" else self.name.split(".")[:-1]


@cache
def modules() -> tuple[Module, ...]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ["ontologia", *path.relative_to(SOURCE).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, path, ast.parse(path.read_text())))
    return tuple(found)


@cache
def module_names() -> frozenset[str]:
    return frozenset(module.name for module in modules())


def part_of(name: str) -> str:
    """The layer that a module belongs to: the first name below the package, "" for the package itself."""
    return [*name.split("."), ""][1]


def room_of(name: str) -> str:
    """Where private names are at home: the part, and for an engine its own folder."""
    pieces = name.split(".")
    is_engine = len(pieces) > 2 and pieces[1] == "engines" and (SOURCE / "engines" / pieces[2]).is_dir()
    return f"engines.{pieces[2]}" if is_engine else part_of(name)


# --- imports ---


@cache
def imports_of(module: Module) -> frozenset[str]:
    """Every module of ours that a module imports, in full, however it does."""
    return frozenset(imports_in(module.tree, module.package))


def imports_in(tree: ast.AST, package: list[str]) -> set[str]:
    stated = {_existing(name) for node in ast.walk(tree) for name in _by_statement(node, package)}
    told = {_existing(name) for node in ast.walk(tree) for name in _by_string(node, tree)} - {"ontologia"}
    return {name for name in stated | told if name}


def _by_statement(node: ast.AST, package: list[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        names = [alias.name for alias in node.names if alias.name != "__version__"]
        yield from (f"{_origin(node, package)}.{name}" for name in names)


def _origin(node: ast.ImportFrom, package: list[str]) -> str:
    base = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*base, node.module] if node.module else base)


def _by_string(node: ast.AST, tree: ast.AST) -> Iterator[str]:
    """A text that names a module of ours counts as an import: `import_module("ontologia.spark.queries")`, and tables of
    names that are loaded later, `import_module(f"ontologia.{TABLE[name]}")`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and (named := MODULE_NAME.fullmatch(node.value)):
        yield named[1]
    elif isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.Constant):
        prefix = str(node.values[0].value)
        if prefix.startswith("ontologia.") and len(node.values) > 1:
            yield prefix.rstrip(".")
            yield from (prefix + text for text in _table_of(node.values[1], tree))


def _table_of(value: ast.expr, tree: ast.AST) -> Iterator[str]:
    """The texts of the table that an f-string looks a name up in."""
    if isinstance(value, ast.FormattedValue) and isinstance(value.value, ast.Subscript):
        name = ast.unparse(value.value.value)
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Assign)
                and name in map(ast.unparse, node.targets)
                and isinstance(node.value, ast.Dict)
            ):
                yield from (
                    v.value for v in node.value.values if isinstance(v, ast.Constant) and isinstance(v.value, str)
                )


def _existing(name: str) -> str:
    """The module that a dotted name leads to: itself, or the one that has it; "" if none of ours."""
    while name and name not in module_names():
        name = name.rpartition(".")[0]
    return name


def unreadable_imports(tree: ast.AST) -> list[str]:
    """Imports by a string that only a run could tell."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    loads = [call for call in calls if ast.unparse(call.func).split(".")[-1] in ("import_module", "__import__")]
    return [ast.unparse(call) for call in loads if isinstance(call.args[0], ast.Name | ast.Attribute | ast.Subscript)]


# --- private names ---


def private_imports(module: Module) -> set[str]:
    """Private names, and names from private modules, that a module imports from another room."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom):
            origin = _origin(node, module.package)
            if part_of(origin) and room_of(origin) != module.room:
                found |= {f"{origin}.{alias.name}" for alias in node.names if is_private(f"{origin}.{alias.name}")}
    return found


def is_private(name: str) -> bool:
    return any(piece.startswith("_") and not piece.startswith("__") for piece in name.split("."))


@cache
def private_definitions() -> dict[str, frozenset[str]]:
    """The rooms that define each private name, as a function, a class, a variable or a member of `self`."""
    homes: dict[str, set[str]] = {}
    for module in modules():
        for name in _definitions(module.tree):
            if is_private(name):
                homes.setdefault(name, set()).add(module.room)
    return {name: frozenset(rooms) for name, rooms in homes.items()}


def _definitions(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node):
            yield node.attr


def reached_into(module: Module) -> set[str]:
    """Private members of something else, as in `repository._entries`, whose names only other rooms define."""
    taken = {n.attr for n in ast.walk(module.tree) if isinstance(n, ast.Attribute) and not _is_own(n)}
    homes = private_definitions()
    return {name for name in taken - OF_NAMED_TUPLES if name in homes and module.room not in homes[name]}


def _is_own(node: ast.Attribute) -> bool:
    return ast.unparse(node.value) in ("self", "cls", "super()")
