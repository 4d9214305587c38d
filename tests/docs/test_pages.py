"""The pages hold together: links lead somewhere, every error is explained, the architecture is that of the tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ontologia import errors

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "ontologia"
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PATHS = re.compile(r"`([\w/]+(?:\.py|/))`")
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


def test_the_index_lists_every_page():
    listed = {link.partition("#")[0] for link in LINK.findall((ROOT / "docs" / "index.md").read_text())}
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")} - {"index.md"}
    assert pages - listed == set()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_every_error_is_explained_under_its_code(error):
    page = (ROOT / "docs" / "errors.md").read_text()
    assert f"| `{error.code}` | `{error.__name__}` |" in page


def test_no_error_is_explained_that_does_not_exist():
    page = (ROOT / "docs" / "errors.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == {error.code for error in ERRORS}


def test_error_codes_are_unique():
    assert len({error.code for error in ERRORS}) == len(ERRORS)


def files_at(path):
    """The sources that the page means by a path; of the Parquet engine it says what is below its folder."""
    found = [place for place in (SOURCES / path, SOURCES / "engines" / "parquet" / path) if place.exists()]
    return [file for place in found for file in ([place] if place.is_file() else place.rglob("*.py"))]


def test_every_file_that_the_architecture_names_exists():
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert [path for path in PATHS.findall(page) if not files_at(path)] == []


def test_every_type_of_the_architecture_is_declared_where_it_says():
    page = (ROOT / "docs" / "architecture.md").read_text()
    missing = []
    for types, _, places in re.findall(r"^\| (`.+?) \| (.+?) \| (.+?) \|$", page, re.MULTILINE):
        sources = "".join(file.read_text() for path in PATHS.findall(places) for file in files_at(path))
        missing += [name for name in re.findall(r"`(\w+)`", types) if f"\nclass {name}" not in sources]
    assert missing == []


def test_every_rule_that_a_comment_cites_is_told():
    """`RFC 0004 §2.3, §4.1` cites two sections of one document."""
    page = (ROOT / "docs" / "design" / "0000-rules-by-section.md").read_text()
    told = {
        (part[:4], section) for part in page.split("\n## RFC ")[1:] for section in re.findall(r"§(\d+(?:\.\d+)?)", part)
    }
    cited = {
        (number, section)
        for file in SOURCES.rglob("*.py")
        for number, sections in re.findall(r"RFC (\d{4})((?:[\s,–]|and|§[\d.]+)+)", file.read_text())
        for section in re.findall(r"§(\d+(?:\.\d+)?)", sections)
    }
    chapters = {(number, section.partition(".")[0]) for number, section in told}
    assert len(cited) > 30
    assert cited - told - chapters == set()


def test_every_test_that_the_walk_through_the_rfcs_names_is_there():
    text = (ROOT / "docs/design/0079-rfc-walk.md").read_text(encoding="utf-8")
    missing, file = [], ""
    for name in re.findall(r"`([\w/]+/test_\w+\.py)`|`(test_\w+)`", text):
        file = name[0] or file
        if name[1] and f"def {name[1]}(" not in (ROOT / "tests" / file).read_text(encoding="utf-8"):
            missing.append((file, name[1]))
    assert missing == []
