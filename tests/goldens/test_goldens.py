"""Stores that each release left behind are read, written and maintained by this one, wherever they are moved to."""

import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from goldens.shop import KINDS, TYPED, Customer, Order, Product, answers, open_typed
from ontologia import __version__
from ontologia.apiary import Apiary
from ontologia.omnigraph import Omnigraph

FOLDER = Path(__file__).parent
RELEASES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir() and path.name[0].isdigit())


@pytest.fixture(params=RELEASES)
def release(request):
    return FOLDER / request.param


@pytest.fixture
def expected(release, kind):
    return json.loads((release / f"{kind}.json").read_text())


@pytest.fixture
def store(release, kind, tmp_path):
    """The store, in another place than the one it was written in."""
    with zipfile.ZipFile(release / f"{kind}.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path / kind


def test_this_release_left_a_store_of_every_kind():
    kept = {path.name for path in (FOLDER / __version__).iterdir()}
    assert kept == {f"{kind}.{ending}" for kind in KINDS for ending in ("zip", "json")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_answers_as_it_did(kind, store, expected):
    assert answers(kind, store) == expected


@pytest.mark.parametrize("kind", TYPED)
def test_a_typed_store_takes_commits_and_keeps_its_past(kind, store, expected):
    with open_typed(kind, store) as onto, onto.session() as session:
        session.ensure(Customer(id="c9", full_name="Katherine"))

    found = answers(kind, store)
    assert found["head"] == expected["head"] + 1
    assert len(found["states"][str(found["head"])]["Customer"]) == 4
    assert {commit: found["states"][commit] for commit in expected["states"]} == expected["states"]


@pytest.mark.parametrize("kind", [kind for kind in TYPED if kind.startswith("s3")])
def test_maintenance_of_a_bucket_changes_no_answer(kind, store, expected):
    with open_typed(kind, store) as onto:
        onto.repository.compact(apply=True)
        onto.repository.vacuum(0, apply=True, compacted=True)
        onto.repository.index_repair(apply=True)

    assert answers(kind, store) == expected


@pytest.mark.parametrize("kind", ["graph"])
def test_a_graph_merges_and_is_maintained(kind, store, expected):
    with Omnigraph.open(str(store), types=[Customer, Product, Order]) as graph:
        graph.merge("open")
        graph.optimize()
        graph.cleanup(keep=1, older_than="0s", dry_run=False)

    states = answers(kind, store)["states"]
    assert len(states["main"]["Customer"]) == 2
    assert (states["v1"], states["open"]) == (expected["states"]["v1"], expected["states"]["open"])


@pytest.mark.parametrize("kind", ["frames"])
def test_frames_take_rows_and_are_maintained(kind, store, expected):
    with Apiary("golden", storage=str(store)) as apiary:
        frame = apiary.frame("shop.sales.days")
        frame.write(pa.table({"region": ["west"], "day": [None], "amount": [1.0], "pieces": [1]}, schema=frame.schema))
        frame.compact(force=True)
        frame.vacuum("0s", keep_versions=10, apply=True)
        assert frame.read().num_rows == 5

    assert answers(kind, store) == expected
