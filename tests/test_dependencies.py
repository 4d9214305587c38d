"""The package asks for ranges; `requirements.lock` has the one version of each that is tested; each has a reason."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
LOCKED = dict(line.split("==") for line in LOCK)


def requirements() -> list[Requirement]:
    """All that pyproject.toml names: for users, for extras, for development, to build."""
    project = PROJECT["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    groups += [*PROJECT["dependency-groups"].values(), PROJECT["build-system"]["requires"]]
    named = [Requirement(text) for group in groups for text in group]
    return [requirement for requirement in named if requirement.name != "ontologia"]


def test_the_package_asks_for_ranges_with_both_ends():
    ends = {str(requirement): {part.operator for part in requirement.specifier} for requirement in requirements()}
    assert {text: operators for text, operators in ends.items() if operators != {">=", "<"}} == {}


def test_the_lock_is_a_sorted_list_of_names_and_exact_versions():
    assert [line for line in LOCK if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.+]*", line)] == []
    assert sorted(LOCKED) == list(LOCKED)


def test_the_lock_has_a_version_within_each_range():
    found = {str(r): LOCKED.get(canonicalize_name(r.name)) for r in requirements()}
    outside = [text for text, locked in found.items() if not locked or locked not in Requirement(text).specifier]
    assert outside == [], "make lock writes the lock anew; RENEW=<name> takes a newer version"


def test_this_environment_has_the_versions_of_the_lock():
    installed = {}
    for name in LOCKED:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:  # another platform, or a newer Python, may need less
            continue
    differing = {name: found for name, found in installed.items() if found != LOCKED[name] and name != "pip"}
    if differing:
        pytest.fail(f"not as locked: {differing}; `touch requirements.lock` makes the next `make` install again")


def test_every_dependency_has_its_reason_in_the_guide_for_contributors():
    guide = (ROOT / "CONTRIBUTING.md").read_text().partition("## Dependencies")[2]
    reasons = [row.split("|")[1] for row in guide.splitlines() if row.startswith("|")]
    named = {canonicalize_name(word) for cell in reasons for word in re.findall(r"[\w.-]+", cell)}
    assert {r.name for r in requirements()} - named == set()
