"""The pages hold together: links lead somewhere, every error is explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ontologia import errors

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
ERRORS = [
    error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, errors.OntologiaError)
]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_inside_the_repository_leads_somewhere(page):
    broken = []
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        target, _, anchor = link.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        found = (page.parent / target).resolve() if target else page
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_every_error_is_explained_under_its_code(error):
    page = (ROOT / "docs" / "errors.md").read_text()
    assert f"| `{error.code}` | `{error.__name__}` |" in page


def test_no_error_is_explained_that_does_not_exist():
    page = (ROOT / "docs" / "errors.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == {error.code for error in ERRORS}


def test_error_codes_are_unique():
    assert len({error.code for error in ERRORS}) == len(ERRORS)
