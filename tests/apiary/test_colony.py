"""The colony: bees and their chambers, temperature, backpressure, heartbeats, and the cell cache."""

import json
import threading
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from ontologia.apiary.colony.bees import Bees
from ontologia.apiary.colony.capacity import Capacity, Gauge
from ontologia.apiary.colony.caretaker import Caretaker
from ontologia.apiary.colony.heartbeats import Heartbeat, all_heartbeats, assignment, others_alive
from ontologia.apiary.colony.temperature import Load, regulation
from ontologia.errors import (
    BackpressureError,
    CorruptFrameError,
    StorageBackendError,
    TaskAbandonedError,
    ValidationError,
)
from ontologia.objects import open_objects
from ontologia.testing.stores import ManualClock
from support.frames import apiary, ids, readings, sensors

# --- temperature -------------------------------------------------------------------------------------------------


def test_temperature_weighs_bees_memory_and_queue():
    assert Load(4, 2, 4, 0.5).temperature == pytest.approx(0.4 * 0.5 + 0.4 * 0.5 + 0.2 * 0.5)
    assert Load(2, 2, 100, 1.0).temperature == 1.0
    assert Load(2, 0, 0, 0.0).temperature == 0.0


@pytest.mark.parametrize(
    ("temperature", "word"),
    [
        (0.0, "cold"),
        (0.29, "cold"),
        (0.3, "ideal"),
        (0.7, "ideal"),
        (0.71, "warm"),
        (0.85, "warm"),
        (0.86, "hot"),
        (0.95, "hot"),
        (0.96, "critical"),
    ],
)
def test_a_temperature_has_a_word(temperature, word):
    assert regulation(temperature) == word


def test_an_apiary_says_what_it_is(ap, root):
    assert repr(ap).startswith(f"Apiary('test', '{ap.node.objects.uri}'), a node with 2 bees, ")
    frame = sensors(ap)
    ap.shutdown()
    assert repr(ap).endswith("not started")
    assert "is not started" in frame._repr_html_()


def test_memory_is_measured_and_not_made_up(ap):
    total = psutil.virtual_memory().total
    measured = Capacity.measure()
    assert 0 < measured.memory_bytes <= total
    usage = Gauge(measured).read()
    assert usage.process_bytes == pytest.approx(psutil.Process().memory_info().rss, rel=0.5)
    assert 0 < usage.memory_pressure < 1
    before = Gauge(measured).read().process_bytes
    ballast = bytearray(64 << 20)
    assert Gauge(measured).read().process_bytes - before > 32 << 20, len(ballast)


# --- backpressure ------------------------------------------------------------------------------------------------

HOT = Load(2, 2, 4, 0.75)


def test_a_write_waits_until_the_colony_has_cooled_down(ap, frame, monkeypatch):
    loads = iter([HOT, HOT, Load(2, 0, 0, 0.1)])
    ap.node.clock = ManualClock()
    monkeypatch.setattr(ap.node, "load", lambda: next(loads))
    result = frame.write(readings(("north", 1.0, 1)))
    assert result.version == 1
    assert result.duration > 0
    assert result.temperature < 0.85


def test_a_write_to_a_colony_that_stays_hot_fails_after_its_timeout(ap, frame, monkeypatch):
    ap.node.clock = clock = ManualClock()
    monkeypatch.setattr(ap.node, "load", lambda: HOT)
    with pytest.raises(BackpressureError, match="stayed so for 30 s"):
        frame.write(readings(("north", 1.0, 1)))
    assert clock.slept == pytest.approx(30, abs=1)
    assert frame.version == 0


def test_a_write_may_fail_at_once_or_go_on_regardless(ap, frame, monkeypatch):
    monkeypatch.setattr(ap.node, "load", lambda: HOT)
    with pytest.raises(BackpressureError, match="Nothing was written"):
        frame.write(readings(("north", 1.0, 1)), backpressure="error")
    assert frame.write(readings(("north", 1.0, 1)), backpressure="ignore").temperature == HOT.temperature
    with pytest.raises(ValidationError, match="block, error, ignore"):
        frame.write(readings(("north", 1.0, 1)), backpressure="maybe")


# --- bees --------------------------------------------------------------------------------------------------------


@pytest.fixture
def bees():
    found = Bees(2, 1000, "node")
    yield found
    found.close()


def test_there_is_a_bee_per_core_with_its_share_of_memory(ap):
    status = ap.bee_status()
    assert [bee["bee_id"] for bee in status] == ["bee-0", "bee-1"]
    assert {(bee["state"], bee["memory_budget"], bee["memory_used"], bee["utilisation"]) for bee in status} == {
        ("idle", 1 << 30, 0, 0.0)
    }


def test_a_bee_at_work_shows_its_task_and_its_memory(bees):
    seen = []

    def task(chamber):
        with chamber.holding(400):
            seen.extend(bee for bee in bees.status() if bee["state"] != "idle")
            seen.append(bees.load(0.0))

    bees.run("work", [task])
    (bee, load) = seen
    assert bee["state"].startswith("busy(node_")
    assert (bee["memory_used"], bee["utilisation"], load.bees_busy) == (400, 0.4, 1)
    assert bees.load(0.0).bees_busy == 0


def test_tasks_wait_for_an_idle_bee_and_are_counted(bees):
    started, go, waiting = threading.Barrier(3), threading.Event(), []

    def task(chamber):
        started.wait()
        go.wait()

    threads = [threading.Thread(target=bees.run, args=("work", [task])) for _ in range(2)]
    for thread in threads:
        thread.start()
    started.wait()
    third = threading.Thread(target=bees.run, args=("work", [lambda chamber: None]))
    third.start()
    while bees.load(0.0).queue_depth == 0:
        threading.Event().wait(0.001)
    waiting.append(bees.load(0.0).temperature)
    go.set()
    for thread in (*threads, third):
        thread.join()
    assert waiting == [pytest.approx(0.4 + 0.2 * 0.25)]


def test_a_task_that_fails_is_tried_three_times_and_then_abandoned(bees):
    attempts = []

    def fail(chamber):
        attempts.append(1)
        raise RuntimeError(f"no luck {len(attempts)}")

    with pytest.raises(
        TaskAbandonedError,
        match=r"work was given up after 3 attempts \(attempt 1: no luck 1; attempt 2: no luck 2; attempt 3",
    ):
        bees.run("work", [fail])
    assert bees.abandoned == 1


def test_a_task_that_succeeds_the_second_time_is_not_abandoned(bees):
    attempts = []

    def shaky(chamber):
        attempts.append(1)
        if len(attempts) < 3:
            raise StorageBackendError("timeout", context={"kind": "timeout"})
        return "done"

    assert bees.run("work", [shaky]) == ["done"]
    assert bees.abandoned == 0


@pytest.mark.parametrize(
    "error", [CorruptFrameError("bad"), StorageBackendError("full", context={"kind": "disk_full"})]
)
def test_what_will_not_pass_is_not_tried_again(bees, error):
    attempts = []

    def fail(chamber):
        attempts.append(1)
        raise error

    with pytest.raises(type(error)):
        bees.run("work", [fail])
    assert len(attempts) == 1


def test_a_task_that_outgrows_its_chamber_is_told_what_to_do(bees):
    def greedy(chamber):
        with chamber.holding(2000):
            pass

    with pytest.raises(TaskAbandonedError, match=r"needs 2,000 bytes, and a bee's budget is 1,000.*engine='spark'"):
        bees.run("work", [greedy])


def test_a_scratch_directory_is_a_tasks_own_and_gone_after_it(bees):
    seen = []

    def task(chamber):
        (chamber.scratch / "file").write_text("x")
        seen.append(chamber.scratch)

    bees.run("work", [task, task])
    assert len(set(seen)) == 2
    assert not any(path.exists() for path in seen)


def test_tasks_that_need_no_scratch_directory_make_none(bees):
    bees.run("work", [lambda chamber: chamber.seconds_left] * 2)
    assert bees._root is None


# --- heartbeats --------------------------------------------------------------------------------------------------


def test_a_heartbeat_has_the_capacity_the_load_and_the_cache(ap, root):
    (path,) = (root / "_heartbeats").iterdir()
    body = json.loads(path.read_text())
    assert list(body) == ["node_id", "timestamp", "version", "capacity", "load", "cache"]
    assert set(body["capacity"]) == {"cores", "memory_total_bytes", "memory_per_bee", "target_cell_size"}
    assert set(body["load"]) == {
        "bees_total",
        "bees_busy",
        "bees_idle",
        "memory_pressure",
        "queue_depth",
        "colony_temperature",
    }
    assert set(body["cache"]) == {"size_bytes", "cached_cells"}


def test_a_node_that_shuts_down_takes_its_heartbeat_away(root, tmp_path):
    with apiary(root, tmp_path / "c") as one, apiary(root, tmp_path / "c"):
        assert one.swarm_status()["alive"] == 2
    assert list(root.glob("_heartbeats/*")) == []


def beat(node_id, age_s=0.0, idle=2, cached=()):
    now = datetime.now(UTC)
    return Heartbeat(
        node_id,
        now - timedelta(seconds=age_s),
        1,
        {},
        {"bees_total": 2, "bees_idle": idle},
        {"cached_cells": dict.fromkeys(cached, 1)},
    )


@pytest.mark.parametrize(
    ("age", "state"), [(0, "alive"), (14, "alive"), (20, "suspect"), (29, "suspect"), (31, "dead"), (-3600, "alive")]
)
def test_a_node_is_alive_suspect_or_dead_by_the_age_of_its_heartbeat(age, state):
    assert beat("n", age).state(datetime.now(UTC).timestamp()) == state


def test_heartbeats_that_cannot_be_read_are_left_out_and_dead_ones_do_not_count(root, ap):
    from ontologia.apiary.entries import encode

    objects = open_objects(root.as_uri())
    objects.put("_heartbeats/node_dead.json", encode(beat("dead", 60).to_json()))
    objects.put("_heartbeats/node_suspect.json", encode(beat("suspect", 20).to_json()))
    objects.put("_heartbeats/node_broken.json", b"{")
    now = datetime.now(UTC).timestamp()
    assert {found.node_id for found in all_heartbeats(objects)} == {"dead", "suspect", ap.node.node_id}
    assert others_alive(objects, ap.node.node_id, now) == ["suspect"]
    status = ap.swarm_status()
    assert (status["alive"], status["total_bees"]) == (1, 4)


def test_a_node_that_starts_forgets_those_dead_for_an_hour(root, tmp_path):
    from ontologia.apiary.entries import encode

    objects = open_objects(root.as_uri())
    objects.put("_heartbeats/node_old.json", encode(beat("old", 4000).to_json()))
    objects.put("_heartbeats/node_dead.json", encode(beat("dead", 60).to_json()))
    with apiary(root, tmp_path / "c"):
        assert not objects.exists("_heartbeats/node_old.json")
        assert objects.exists("_heartbeats/node_dead.json")


def test_cells_go_to_nodes_that_have_them_cached_and_else_to_idle_ones():
    nodes = [beat("a", idle=1, cached=["x", "y"]), beat("b", idle=3)]
    assert assignment(["x", "y", "p", "q", "r"], nodes) == {"a": ["x", "y"], "b": ["p", "q", "r"]}
    assert assignment(["x"], []) == {}


def test_colony_status_counts_what_was_abandoned(ap):
    assert set(ap.colony_status()) == {"temperature", "regulation", "setpoint", "abandoned_tasks"}
    with pytest.raises(TaskAbandonedError):
        ap.node.bees.run("work", [lambda chamber: 1 / 0])
    assert (ap.colony_status()["abandoned_tasks"], ap.colony_status()["setpoint"]) == (1, 0.5)


def test_a_cold_node_with_maintenance_compacts_frames_that_others_wrote(uri, tmp_path):
    with apiary(uri, tmp_path / "c") as other, apiary(uri, tmp_path / "c", maintenance=True) as ap:
        frame = sensors(other)
        for number in range(12):
            frame.write(readings(("north", 1.0, number)))
        ap._care.go_round()
        assert (frame.stats()["cells"], ids(frame.read())) == (1, list(range(12)))


def test_a_node_without_maintenance_leaves_frames_alone(ap, frame):
    assert ap._care is None


def caretaker(frames, versions, care, *, is_cold=lambda: True, clock=None):
    return Caretaker(lambda: frames, lambda name: versions[name], care, is_cold, clock or ManualClock())


def test_the_caretaker_looks_again_at_what_changed_and_at_the_rest_after_a_while():
    clock, versions, cared = ManualClock(), {"a": 1, "b": 1}, []
    care = caretaker(["a", "b"], versions, cared.append, clock=clock)
    care.go_round()
    versions["b"] = 2
    care.go_round()
    clock.sleep(601)
    care.go_round()
    assert cared == ["a", "b", "b", "a", "b"]


def test_a_frame_that_cannot_be_cared_for_does_not_keep_the_others_from_it():
    cared = []

    def care(name):
        if name == "broken":
            raise CorruptFrameError("it is broken")
        cared.append(name)

    caretaker(["broken", "whole"], {"broken": 1, "whole": 1}, care).go_round()
    assert cared == ["whole"]


def test_a_round_ends_when_the_colony_is_no_longer_cold():
    cared, cold = [], [True, False]
    caretaker(["a", "b"], {"a": 1, "b": 1}, cared.append, is_cold=lambda: cold.pop(0)).go_round()
    assert cared == ["a"]


def test_an_apiary_that_only_reads_writes_nothing(root, tmp_path):
    with apiary(root, tmp_path / "c", read_only=True) as ap:
        assert ap.list_hives() == []
        with pytest.raises(ValidationError, match="read only"):
            ap.create_hive("h")
    assert not root.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"node_id": "a/../b"},
        {"node_id": "another"},
        {"load": {"bees_total": "x"}},
        {"load": []},
        {"capacity": {"cores": None}},
        {"cache": "none"},
        {"version": 10**30},
    ],
    ids=str,
)
def test_an_odd_heartbeat_is_left_out_and_stops_nobody(root, ap, tmp_path, change):
    body = {"node_id": "x", "timestamp": "2020-01-01T00:00:00Z", "version": 1, "capacity": {}, "load": {}, "cache": {}}
    odd = root / "_heartbeats/node_x.json"
    odd.write_text(json.dumps({**body, **change}))
    with apiary(root.as_uri(), tmp_path / "c") as other:
        assert {node["node_id"] for node in other.swarm_status()["nodes"]} == {ap.node.node_id, other.node.node_id}
