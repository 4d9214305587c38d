"""The import rules of the house: who may know whom. Imports inside functions count as well."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ontologia

SOURCE = Path(ontologia.__file__).parent
HEAVY = ("pyspark", "lance", "duckdb", "polars", "pandas", "pyarrow", "sqlglot", "obstore")

# What each part may import, besides itself. A part that is not listed here has no rule yet, and fails the test.
MAY_IMPORT = {
    "errors": set(),
    "config": set(),
    "model": {"errors"},
    "objects": {"errors", "config"},
    "files": {"errors", "config", "objects"},
    "query": {"errors", "model"},
    "apiary": {"errors", "config", "objects", "files"},
    "omnigraph": {"errors", "config", "objects", "files"},
    "engines": {"errors", "config", "model", "query", "objects", "files", "apiary", "omnigraph"},
    "runtime": {"errors", "config", "model", "query", "engines", "objects", "files", "apiary", "omnigraph"},
    "spark": {"errors", "config", "model", "query", "engines", "runtime", "objects", "files", "apiary", "omnigraph"},
    "cli": {
        "errors",
        "config",
        "model",
        "query",
        "engines",
        "runtime",
        "objects",
        "files",
        "apiary",
        "omnigraph",
        "spark",
    },
}


def modules():
    return sorted(path for path in SOURCE.rglob("*.py"))


def imports_of(path: Path) -> set[str]:
    return imports_in(path.read_text(), ["ontologia", *path.relative_to(SOURCE).parts[:-1]])


def imports_in(program: str, package: list[str]) -> set[str]:
    """Every module of ours that a program imports, in full, at any depth of its code."""
    found = set()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, node.module] if node.module else base)
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.split(".")[0] == "ontologia"}


def type_checking_imports(path: Path) -> set[str]:
    """Imports that only a type checker sees: they make no dependency at run time."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for inner in ast.walk(node):
                if isinstance(inner, ast.ImportFrom) and inner.module:
                    found |= {inner.module, *(f"{inner.module}.{alias.name}" for alias in inner.names)}
    return found


def part_of(module: str) -> str | None:
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 and is_part(pieces[1]) else None


def is_part(name: str) -> bool:
    return (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file()


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_layers_below_it(path):
    relative = path.relative_to(SOURCE)
    part = relative.parts[0].removesuffix(".py")
    if part in ("__init__", "__main__", "testing"):
        return  # the front door and the test kit may know everything
    allowed = MAY_IMPORT[part] | {part}
    known = imports_of(path) - type_checking_imports(path) if part == "errors" else imports_of(path)
    used = {used for used in map(part_of, known) if used is not None}
    assert used <= allowed


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_outside_the_test_kit_imports_it(path):
    if path.relative_to(SOURCE).parts[0] == "testing":
        return
    assert "testing" not in {part_of(name) for name in imports_of(path)}


@pytest.mark.parametrize(("folder", "sibling"), [("sqlite", "parquet"), ("parquet", "sqlite")])
def test_sibling_engines_do_not_know_each_other(folder, sibling):
    files = (SOURCE / "engines" / folder).rglob("*.py")
    known = {name for path in files for name in imports_of(path)}
    assert not {name for name in known if name.startswith(f"ontologia.engines.{sibling}")}


@pytest.mark.parametrize(
    "program",
    [
        "def f():\n    from ontologia.runtime import session",
        "from ..runtime import session",
        "import ontologia.runtime.session",
    ],
)
def test_an_import_is_seen_inside_a_function_and_when_relative(program):
    assert "runtime" in {part_of(name) for name in imports_in(program, ["ontologia", "engines"])}


@pytest.mark.parametrize(
    "program", ["import ontologia", "from ontologia import Entity, Relation, Field, left, right, meta"]
)
def test_importing_the_package_loads_no_heavy_library(program):
    question = f"{program}\nimport sys\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
