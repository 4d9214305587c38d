"""The import rules of the house: who may know whom, and what stays out of sight.

Imports count wherever they stand: inside functions, for the type checker alone, or by a string.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from support.imports import (
    SOURCE,
    Module,
    imports_in,
    imports_of,
    modules,
    part_of,
    private_imports,
    reached_into,
    room_of,
    unreadable_imports,
)

pytestmark = pytest.mark.xdist_group("layers")  # all sources are read once

# What each part may import besides itself. A part that is not listed here has no rule yet, and fails the test.
BOTTOM = {"errors", "extras", "config"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "extras": {"errors"},
    "config": {"errors"},
    "objects": BOTTOM,
    "files": BOTTOM | {"objects"},
    "apiary": BOTTOM | {"objects", "files"},
    "omnigraph": BOTTOM | {"objects", "files"},
    "model": {"errors"},
    "query": {"errors", "extras", "files", "model"},
    "engines": BOTTOM | {"objects", "files", "apiary", "omnigraph", "model", "query"},
    "runtime": BOTTOM | {"objects", "files", "apiary", "omnigraph", "model", "query", "engines"},
    "spark": BOTTOM | {"objects", "files", "apiary", "omnigraph", "model", "query", "engines", "runtime"},
    "cli": BOTTOM | {"objects", "files", "apiary", "omnigraph", "model", "query", "engines", "runtime", "spark"},
}
KNOW_EVERYTHING = ("", "testing")  # the front door and the test kit

# Libraries that take long to load: nothing that is loaded at once may load them.
HEAVY = ("pyspark", "lance", "duckdb", "polars", "pandas", "pyarrow", "sqlglot", "obstore", "deltalake", "numpy")
# Those that one part keeps to itself, so that everyone else stays free of them; types may be named elsewhere.
AT_HOME = {"pyspark": "spark", "lance": "omnigraph", "obstore": "objects"}

# Modules that load what a user names, not what we wrote.
LOAD_FOR_USERS = {
    "ontologia.spark.reading.across",
    "ontologia.cli.models",
    "ontologia.model.upgraders",
}

# Where a rule is broken today: who, and whom it knows or reaches into. To be emptied, not to be added to.
EXCEPTIONS = {
    ("ontologia.errors", "ontologia.model.diff"),  # the type of an attribute
    ("ontologia.query.query", "ontologia.spark.reading.queries"),  # to_spark() is a method of a query
    ("ontologia.engines.ontologia_03", "ontologia.engines.sqlite.connections"),  # opens the same kind of file
    ("ontologia.runtime.events.sqlite_store", "ontologia.engines.sqlite"),  # the queue is in the file
    ("ontologia.omnigraph", "ontologia.runtime.graphs"),  # the public class of graphs stands above the engines
    ("ontologia.runtime.graphs", "ontologia.engines.omnigraph"),  # and is about this one engine
}


def without_exceptions(module: Module, found: set[str]) -> set[str]:
    excused = {target for who, target in EXCEPTIONS if module.name == who or module.name.startswith(f"{who}.")}
    return {name for name in found if not any(name == e or name.startswith(f"{e}.") for e in excused)}


def broken(rule) -> dict[str, list[str]]:
    """What breaks a rule, by the module that does; a rule gives what is wrong with one."""
    checked = [module for module in modules() if module.part not in KNOW_EVERYTHING]
    found = {module.name: without_exceptions(module, rule(module)) for module in checked}
    return {name: sorted(wrong) for name, wrong in found.items() if wrong}


def test_a_module_imports_only_from_layers_below_it():
    def upward(module):
        allowed = MAY_IMPORT[module.part] | {module.part}
        return {name for name in imports_of(module) if part_of(name) not in allowed}

    assert broken(upward) == {}


def test_frames_and_graphs_do_not_know_each_other():
    assert "omnigraph" not in MAY_IMPORT["apiary"]
    assert "apiary" not in MAY_IMPORT["omnigraph"]


def test_engines_do_not_know_each_other():
    def siblings(module):
        rooms = {name: room_of(name) for name in imports_of(module)}
        return {name for name, room in rooms.items() if room.startswith("engines.") and room != module.room}

    assert broken(lambda module: siblings(module) if module.room.startswith("engines.") else set()) == {}


def test_what_stands_above_the_engines_knows_none_of_them_by_name():
    def by_name(module):
        return {name for name in imports_of(module) if room_of(name).startswith("engines.")}

    assert broken(lambda module: by_name(module) if module.part != "engines" else set()) == {}


def test_nothing_outside_the_test_kit_imports_it():
    assert broken(lambda module: {name for name in imports_of(module) if part_of(name) == "testing"}) == {}


def test_imports_by_a_name_that_only_a_run_can_tell_are_for_what_users_name():
    found = {module.name for module in modules() if module.part != "testing" and unreadable_imports(module.tree)}
    assert found <= LOAD_FOR_USERS


def test_private_names_stay_in_their_room():
    assert broken(private_imports) == {}


def test_nothing_reaches_into_private_members_of_another_room():
    assert broken(reached_into) == {}


# --- heavy libraries ---


@pytest.mark.parametrize("library", AT_HOME)
def test_a_library_with_a_home_is_loaded_there_alone(library):
    def elsewhere(module):
        loaded = {name.split(".")[0] for name in libraries_in(module.tree)}
        return {library} & loaded if module.part != AT_HOME[library] else set()

    assert broken(elsewhere) == {}


def libraries_in(tree: ast.Module) -> set[str]:
    """What a module imports at run time; what stands under TYPE_CHECKING is never loaded."""
    never = {id(inner) for node in ast.walk(tree) if is_for_type_checkers(node) for inner in ast.walk(node)}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and id(node) not in never:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and id(node) not in never:
            found.add(node.module)
    return found


def is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def heavy_after(program: str) -> str:
    question = f"{program}\nimport sys\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def test_importing_the_package_and_its_public_names_loads_no_heavy_library():
    assert heavy_after("from ontologia import Entity, Relation, Field, left, right, meta") == "[]"


def test_importing_a_part_loads_no_heavy_library():
    """What a part does is in its modules, which load their libraries at the top; its `__init__` loads none of them."""
    parts = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py") if path.parent.name != "testing")
    assert heavy_after("\n".join(f"import ontologia.{part}" for part in parts)) == "[]"


# --- the rules see what they should ---


@pytest.mark.parametrize(
    "program",
    [
        "import ontologia.runtime.session",
        "from ..runtime import session",
        "def f():\n    from ontologia.runtime import session",
        "if TYPE_CHECKING:\n    from ontologia.runtime.session import Session",
        "import_module('ontologia.runtime.session')",
        "NAME = 'ontologia.runtime.session'\n__import__(NAME)",
        "HOME = 'ontologia.runtime.session:Session'",
        "import_module(f'ontologia.runtime.{name}')",
        "LATER = {'Session': 'runtime.session'}\ndef __getattr__(name):\n    return import_module(f'ontologia.{LATER[name]}')",
    ],
)
def test_an_import_is_seen_however_it_is_written(program):
    assert "runtime" in {part_of(name) for name in imports_in(ast.parse(program), ["ontologia", "engines"])}


@pytest.mark.parametrize(
    "program", ["from ontologia.errors import ValidationError", "'ontologia is a package'", "'ontologia.given'"]
)
def test_a_text_that_names_no_module_is_no_import(program):
    assert "runtime" not in {part_of(name) for name in imports_in(ast.parse(program), ["ontologia", "engines"])}


def module(name: str, program: str) -> Module:
    return Module(name, SOURCE / "made_up.py", ast.parse(program))


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("from ontologia.objects.store import _send", {"ontologia.objects.store._send"}),
        ("from ontologia.objects._inner import send", {"ontologia.objects._inner.send"}),
        ("from ontologia.spark.pipeline import _own", set()),
        ("from ontologia.objects import Objects", set()),
    ],
)
def test_private_imports_are_seen_across_rooms_alone(program, found):
    assert private_imports(module("ontologia.spark.made_up", program)) == found


def test_reaching_into_another_rooms_object_is_seen_and_into_its_own_is_not():
    program = "import x\nx._send()\nself._send()\nx._asdict()"
    assert reached_into(module("ontologia.spark.made_up", program)) != set()
    assert reached_into(module("ontologia.objects.made_up", program)) == set()


def test_an_import_by_a_variable_is_seen():
    assert unreadable_imports(ast.parse("importlib.import_module(name)")) == ["importlib.import_module(name)"]


def test_no_test_edits_the_path_that_modules_are_found_on():
    """`pythonpath` in pyproject.toml says it once; what tests share is in `support`."""
    edits = ("sys.path.insert", "sys.path.append")
    files = [path for path in Path(__file__).parent.rglob("*.py") if path != Path(__file__)]
    assert [str(path) for path in files if any(edit in path.read_text() for edit in edits)] == []
