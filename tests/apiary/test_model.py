"""A frame against a model table: random sequences of everything, with crashes and reopening in between."""

import contextlib
import random
import shutil
import tempfile
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ontologia.objects import open_objects
from ontologia.testing.differential.checking import Disagreement
from ontologia.testing.differential.frames import check_one_process, check_processes
from ontologia.testing.stores import FaultyObjects, SimulatedCrash
from support.frames import NAME, apiary, readings, sensors

REGIONS = st.sampled_from(["north", "south", "a/b", ""])
TEMPS = st.one_of(st.none(), st.sampled_from([0.0, -1.5, 38.5, float("inf")]))
IDS = st.integers(0, 12)
ROWS = st.lists(st.tuples(REGIONS, TEMPS, IDS), max_size=5)
LIMITS = st.integers(-1, 13)


def as_rows(table):
    return sorted(((r["region"], r["temp"], r["id"]) for r in table.to_pylist()), key=repr)


class FrameMachine(RuleBasedStateMachine):
    """The model is a list of rows per version."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="frame-model-"))
        self.uri = self.new_root()
        self.open_one = None

    def new_root(self):
        return (self.folder / "root").as_uri()

    @initialize()
    def start(self):
        self.open()
        sensors(self.ap)
        self.rows = []
        self.versions = {0: []}
        self.retained = 0

    def open(self):
        self.objects = FaultyObjects(open_objects(self.uri), serial=False)
        self.open_one = apiary(self.uri, self.folder / "cache", objects=self.objects)
        self.ap = self.open_one.__enter__()

    @property
    def frame(self):
        return self.ap.frame(NAME)

    def committed(self, rows, version):
        self.rows = sorted(rows, key=repr)
        self.versions[version] = self.rows

    @rule(rows=ROWS)
    def write(self, rows):
        self.committed(self.rows + rows, self.frame.write(readings(*rows)).version)

    @rule(rows=ROWS)
    def overwrite(self, rows):
        self.committed(rows, self.frame.overwrite(readings(*rows)).version)

    @rule(limit=LIMITS)
    def delete(self, limit):
        self.committed([r for r in self.rows if not r[2] < limit], self.frame.delete([("id", "<", limit)]).version)

    @rule(region=REGIONS, limit=LIMITS)
    def update(self, region, limit):
        changed = [(region, t, i) if i >= limit else (r, t, i) for r, t, i in self.rows]
        self.committed(changed, self.frame.update([("id", ">=", limit)], {"region": region}).version)

    @rule(rows=ROWS)
    def merge(self, rows):
        given = {row[2]: row for row in rows}
        kept = [given.get(row[2], row) for row in self.rows]
        new = [row for key, row in given.items() if key not in {old[2] for old in self.rows}]
        self.committed(kept + new, self.frame.merge(readings(*given.values()), on=["id"]).version)

    @rule()
    def compact(self):
        self.committed(self.rows, self.frame.compact(force=True).version)

    @rule(keep=st.integers(1, 4))
    def vacuum(self, keep):
        kept = self.frame.vacuum(older_than=0, keep_versions=keep).kept_versions
        self.retained = max(self.retained, kept.start)

    @rule()
    def reopen(self):
        self.open_one.__exit__(None, None, None)
        self.open()

    @rule(rows=ROWS, at=st.integers(1, 6), when=st.sampled_from(["before", "after"]))
    def crash(self, rows, at, when):
        before = self.frame.version
        self.objects.heal()
        self.objects.crash(at=at, when=when)
        with contextlib.suppress(SimulatedCrash):
            self.frame.write(readings(*rows))
        self.objects.heal()
        self.reopen()
        version = self.frame.version
        if version > before:  # it died after its entry was there: then all of it is
            self.committed(self.rows + rows, version)

    @invariant()
    def the_frame_is_as_the_model_says(self):
        if self.open_one is not None and hasattr(self, "rows"):
            assert as_rows(self.frame.read()) == self.rows

    @rule(data=st.data())
    def any_retained_version_reads_back(self, data):
        version = data.draw(st.sampled_from([v for v in self.versions if v >= self.retained]))
        assert as_rows(self.frame.read(version=version)) == self.versions[version]

    @rule(limit=LIMITS, region=REGIONS)
    def filters_agree_with_the_model(self, limit, region):
        found = self.frame.read(filter=[("id", ">=", limit), ("region", "=", region)])
        assert as_rows(found) == [r for r in self.rows if r[2] >= limit and r[0] == region]

    def teardown(self):
        if self.open_one is not None:
            self.open_one.__exit__(None, None, None)
        shutil.rmtree(self.folder, ignore_errors=True)


TestFrames = FrameMachine.TestCase
TestFrames.settings = settings(
    max_examples=12, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_a_frame_in_a_bucket_is_as_the_model_says(s3):
    class InABucket(FrameMachine):
        def new_root(self):
            return s3.uri(f"frames-tests/{uuid.uuid4().hex}")

    run_state_machine_as_test(InABucket, settings=TestFrames.settings)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_calls_inside_each_other_and_deaths_leave_what_the_model_says(tmp_path, seed):
    assert check_one_process(tmp_path, random.Random(seed)) > 0


@pytest.mark.slow
def test_processes_that_write_care_and_are_killed_leave_what_the_model_says(tmp_path):
    assert check_processes(tmp_path / "several", seed=1) > 0


@pytest.mark.slow
def test_the_model_sees_a_vacuum_that_forgets_what_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("ontologia.apiary.vacuum._paths_since", lambda ledger, first, newest: set())

    def check_some():
        for seed in range(20):
            check_one_process(tmp_path / str(seed), random.Random(seed))

    with pytest.raises(Disagreement, match="has lost"):
        check_some()
