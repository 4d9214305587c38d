"""Every Python example of the README and of docs/ runs, page by page, and shows what it says it shows.

The blocks of a page run in order in one module, in an empty folder. An expression with the comment `# → text` must
have that text as its repr.
"""

from __future__ import annotations

import ast
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"#\s*→\s*(.*)$")


def blocks(page: Path) -> Iterator[str]:
    """The examples of a page, each pushed down to its own lines, so that a traceback points into the page."""
    text = page.read_text()
    for found in BLOCK.finditer(text):
        yield "\n" * text.count("\n", 0, found.start(1)) + found[1]


def run(source: str, page: Path, namespace: dict[str, object]) -> None:
    lines = source.splitlines()
    for node in ast.parse(source, str(page)).body:
        claim = SHOWN.search(lines[(node.end_lineno or 0) - 1])
        if isinstance(node, ast.Expr) and claim:
            value = eval(compile(ast.Expression(node.value), str(page), "eval"), namespace)
            assert repr(value) == claim[1], f"{page.name}:{node.lineno}"
        else:
            exec(compile(ast.Module([node], []), str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run_and_show_what_they_say(page, tmp_path, monkeypatch):
    module = types.ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    for source in blocks(page):
        run(source, page, module.__dict__)


def test_there_are_examples_to_run():
    assert sum(len(list(blocks(page))) for page in PAGES) > 20
