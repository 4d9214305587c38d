"""Statements that several nodes answer together: what they are asked, what they leave, and what happens without them."""

import json
import os
import signal
import subprocess
import sys
import uuid
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from ontologia.apiary.entries import encode
from ontologia.apiary.queries.manifest import QueryManifest, Task, failure_bytes, read_part
from ontologia.apiary.queries.worker import ABANDONED_AFTER_S, Worker
from ontologia.errors import UnknownNameError, ValidationError
from ontologia.objects import open_objects
from ontologia.testing.stores import FaultyObjects
from support.frames import NAME, apiary, readings, sensors

COUNTS = f"SELECT region, count(*) AS n FROM {NAME} GROUP BY region ORDER BY region"
EXPECTED = [{"region": "east", "n": 1}, {"region": "north", "n": 2}, {"region": "south", "n": 1}]


def fill(ap):
    frame = sensors(ap)
    frame.write(readings(("north", 1.0, 1), ("north", None, 2), ("south", 3.0, 3)))
    frame.write(readings(("east", 4.0, 4)))
    return frame


def left_behind(ap):
    return [info.key for info in ap.node.objects.list("_queries/")]


@pytest.fixture
def asking(ap):
    fill(ap)
    return ap


@pytest.fixture
def pretended(asking):
    """Another node that says it takes tasks, and does nothing until the test lets it."""
    return pretend(asking)


def pretend(ap, **more):
    node_id = str(uuid.uuid4())
    body = {
        "node_id": node_id,
        "timestamp": datetime.now(UTC).isoformat(),
        "version": 1,
        "capacity": {},
        "load": {"bees_total": 2, "bees_idle": 2},
        "cache": {"size_bytes": 0, "cached_cells": {}},
        "worker": True,
        **more,
    }
    ap.node.objects.put(f"_heartbeats/node_{node_id}.json", encode(body))
    return node_id


# --- answers -----------------------------------------------------------------------------------------------------

STATEMENTS = [
    "SELECT region, count(*) FROM {f} GROUP BY region ORDER BY region",
    "SELECT count(*), sum(id), avg(temp), min(temp), max(region), sum(temp) + 1, count(temp) FROM {f}",
    "SELECT count(*) AS c, sum(id), avg(id) FROM {f} WHERE id > 1000",
    "SELECT * FROM {f} WHERE id BETWEEN 2 AND 3 ORDER BY id",
    "SELECT f.region r, count(*) c FROM {f} AS F WHERE f.id > 0 GROUP BY 1 HAVING max(f.id) > 2 ORDER BY c DESC, r LIMIT 2",
    "WITH x AS (SELECT region, max(id) m FROM {f} GROUP BY region) SELECT a.id, m FROM {f} a JOIN x USING (region) ORDER BY 1",
    "SELECT region, median(temp), count(DISTINCT id) FROM {f} GROUP BY region ORDER BY 1",
    "SELECT id, row_number() OVER (PARTITION BY region ORDER BY id DESC) AS n FROM {f} ORDER BY id",
    "SELECT count(*) FILTER (WHERE id > 2) FROM {f}",
    "SELECT DISTINCT region FROM {f} ORDER BY 1",
    "SELECT id FROM {f} WHERE region = 'north' UNION ALL SELECT id FROM {f} WHERE region = 'east' ORDER BY 1",
    "SELECT count(*) FROM {f} FOR VERSION AS OF 1",
    "SELECT b.id FROM {f} a LEFT JOIN {f} b ON a.id = b.id AND b.region = 'east' ORDER BY a.id",
    "SELECT region, sum(id) FROM {f} GROUP BY ALL ORDER BY region",
    "SELECT id, random() < 2 AS yes FROM {f} WHERE random() < id ORDER BY id",
]


@pytest.mark.thorough
def test_statements_give_the_same_answer_by_one_node_and_by_several(asking, root, tmp_path, monkeypatch):
    monkeypatch.setattr("ontologia.apiary.queries.worker.LOOK_EVERY_S", 0.01)
    with apiary(root, tmp_path / "c", worker=True):
        for statement in STATEMENTS:
            text = statement.format(f=NAME)
            alone, together = asking.query(text), asking.query(text, engine="colony")
            assert together.schema == alone.schema, text
            assert together.to_pylist() == alone.to_pylist(), text
    assert left_behind(asking) == []


def test_what_is_wrong_with_a_statement_is_said_as_the_local_engine_says_it(asking, root, pretended):
    for text, error in (
        (f"SELECT nope FROM {NAME}", UnknownNameError),
        (f"SELECT region, id FROM {NAME} GROUP BY region", ValidationError),
        (f"SELECT sum(region) FROM {NAME}", ValidationError),
    ):
        said = []
        for engine in ("duckdb", "colony"):
            with pytest.raises(error) as caught:
                asking.query(text, engine=engine)
            said.append(str(caught.value))
        assert said[0] == said[1]
    assert left_behind(asking) == []


def test_counts_are_taken_where_cells_are_read(asking, root):
    facts = dict(map(dict.values, asking.query(f"EXPLAIN {COUNTS}", engine="colony").to_pylist()))
    assert "COUNT(*)" in facts["sql_fragment"]
    assert "SUM(" in facts["merge_sql"]
    rows = dict(
        map(dict.values, asking.query(f"EXPLAIN SELECT id FROM {NAME} WHERE id > 2", engine="colony").to_pylist())
    )
    assert rows["sql_fragment"] == 'SELECT "id" FROM "analytics"."sensors"."temperature" WHERE "id" > 2'


# --- the protocol ------------------------------------------------------------------------------------------------


def test_a_manifest_names_the_cells_of_every_node_and_is_gone_after_the_answer(asking, root, pretended):
    seen = []

    def answer():
        (path,) = root.glob("_queries/*/manifest.json")
        seen.append(json.loads(path.read_text()))
        (path.parent / f"partial_{pretended}.arrow").write_bytes(failure_bytes(OSError("no")))

    asking.node.clock = Watched(asking.node.clock, answer)
    assert asking.query(COUNTS, engine="colony", timeout=600).to_pylist() == EXPECTED
    (body,) = seen
    assert list(body)[:6] == ["query_id", "original_sql", "tasks", "merge_sql", "timeout_secs", "created_at"]
    assert body["original_sql"] == COUNTS
    assert {task["node_id"] for task in body["tasks"]} == {asking.node.node_id, pretended}
    cells = [cell for task in body["tasks"] for cell in task["cells"]]
    assert sorted(cells) == sorted(str(path.relative_to(root)) for path in root.rglob("cell_*.parquet"))
    assert (
        QueryManifest.from_json(body).encode() == json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    )
    assert left_behind(asking) == []


class Watched:
    """A clock that calls something before it sleeps."""

    def __init__(self, clock, call):
        self._clock, self._call = clock, call

    def __getattr__(self, name):
        return getattr(self._clock, name)

    def sleep(self, seconds):
        self._call()
        self._clock.sleep(seconds)


def test_a_worker_leaves_its_part_as_an_arrow_file_and_reads_only_its_cells(asking, root, tmp_path):
    with apiary(root, tmp_path / "c") as other:
        node = other.node
        north = next(root.rglob("region=north/cell_*.parquet")).relative_to(root)
        task = Task("t", node.node_id, (str(north),), f"SELECT count(*) AS n FROM {NAME}", 2)
        manifest = QueryManifest.new("…", [task], None, node.clock.wall(), coordinator="somebody")
        node.objects.put(manifest.key, manifest.encode())
        Worker(node).look()
        part = root / manifest.part_of(node.node_id)
        assert pa.ipc.open_file(part).read_all().to_pylist() == [{"n": 2}]
        written = part.stat().st_mtime_ns
        worker = Worker(node)
        worker.look()
        worker.look()
        assert part.stat().st_mtime_ns >= written


@pytest.mark.parametrize(
    ("fragment", "says"),
    [
        ("DROP TABLE x", "DROP"),
        ("SELECT * FROM read_csv('/etc/passwd')", "cannot be read from"),
        (f"SELECT * FROM {NAME} a, {NAME} b", "one frame"),
        ("SHOW HIVES", "SELECT over a frame"),
        (f"SELECT nope FROM {NAME}", "nope"),
    ],
)
def test_a_task_that_cannot_be_run_leaves_a_part_that_says_so(asking, root, tmp_path, fragment, says):
    with apiary(root, tmp_path / "c") as other:
        node = other.node
        manifest = QueryManifest.new(
            "…", [Task("t", node.node_id, (), fragment)], None, node.clock.wall(), coordinator="somebody"
        )
        node.objects.put(manifest.key, manifest.encode())
        Worker(node).look()
        assert says in read_part(node.objects, manifest.part_of(node.node_id))


def test_a_worker_leaves_alone_what_is_not_for_it_and_what_it_cannot_read(asking, root, tmp_path):
    with apiary(root, tmp_path / "c") as other:
        node = other.node
        now = node.clock.wall()
        task = Task("t", node.node_id, (), f"SELECT 1 FROM {NAME}")
        for manifest in (
            QueryManifest.new("…", [Task("t", "another", (), "SELECT 1")], None, now, coordinator="somebody"),
            QueryManifest.new("…", [task], None, now, coordinator=node.node_id),
            QueryManifest.new("…", [task], None, now - 3600, coordinator="somebody"),
        ):
            node.objects.put(manifest.key, manifest.encode())
        node.objects.put("_queries/broken/manifest.json", b"{")
        Worker(node).look()
        assert list(root.rglob("partial_*")) == []


def test_a_query_whose_coordinator_died_is_cleaned_up_after_a_while(asking, root, tmp_path):
    long_ago = datetime.now(UTC).timestamp() - ABANDONED_AFTER_S - 100
    manifest = QueryManifest.new("…", [], None, long_ago, coordinator="somebody")
    asking.node.objects.put(manifest.key, manifest.encode())
    asking.node.objects.put(manifest.part_of("another"), b"late")
    Worker(asking.node).look()
    assert left_behind(asking) == []


def test_a_part_that_comes_after_the_end_is_taken_back(asking, root, tmp_path):
    faulty = FaultyObjects(open_objects(root.as_uri()))
    with apiary(root, tmp_path / "c", objects=faulty) as other:
        node = other.node
        task = Task("t", node.node_id, (), f"SELECT count(*) FROM {NAME}")
        manifest = QueryManifest.new("…", [task], None, node.clock.wall(), coordinator="somebody")
        asking.node.objects.put(manifest.key, manifest.encode())
        faulty.call(lambda request: asking.node.objects.delete(manifest.key), operation="put", key="*partial_*")
        Worker(node).look()
    assert left_behind(asking) == []


# --- without the others ------------------------------------------------------------------------------------------


def test_a_node_that_delivers_nothing_in_time_is_done_without(asking, root, pretended, caplog):
    assert asking.query(COUNTS, engine="colony", timeout=0.1).to_pylist() == EXPECTED
    assert f"a task of node {pretended} is done here" in caplog.text
    assert left_behind(asking) == []


def test_a_node_that_dies_is_done_without_before_the_time_is_up(asking, root, pretended, monkeypatch, caplog):
    """Its heartbeat goes while its part is waited for; who asked looks at heartbeats now and then."""
    monkeypatch.setattr("ontologia.apiary.queries.coordinator.INTERVAL_S", 0.0)
    gone = lambda: asking.node.objects.delete(f"_heartbeats/node_{pretended}.json")  # noqa: E731
    asking.node.clock = Watched(asking.node.clock, gone)
    assert asking.query(COUNTS, engine="colony", timeout=600).to_pylist() == EXPECTED
    assert "no longer alive" in caplog.text


def test_a_task_that_failed_elsewhere_is_done_here(asking, root, tmp_path, monkeypatch, caplog):
    with apiary(root, tmp_path / "c", worker=True) as other:
        monkeypatch.setattr(other.node, "admit_query", broken)
        assert asking.query(COUNTS, engine="colony", timeout=600).to_pylist() == EXPECTED
    assert "the disk is full" in caplog.text


def broken():
    raise OSError("the disk is full")


def test_nodes_that_do_not_take_tasks_and_dead_ones_get_none(asking, root, tmp_path):
    pretend(asking, worker=False)
    pretend(asking, timestamp="2026-01-01T00:00:00Z")
    with apiary(root, tmp_path / "c"):
        facts = asking.query(f"EXPLAIN {COUNTS}", engine="colony").to_pylist()
    assigned = [fact["property"] for fact in facts if fact["property"].startswith("assigned_to_")]
    assert assigned == [f"assigned_to_{asking.node.node_id}"]


def test_an_apiary_that_only_reads_cannot_ask_others(asking, root, tmp_path):
    with apiary(root, tmp_path / "c", read_only=True) as reading, pytest.raises(ValidationError, match="'duckdb'"):
        reading.query(COUNTS, engine="colony")
    with (
        pytest.raises(ValidationError, match="cannot be read_only"),
        apiary(root, tmp_path, read_only=True, worker=True),
    ):
        pass


@pytest.mark.parametrize("timeout", [0, -1, True, "1"])
def test_a_timeout_is_a_number_of_seconds(asking, root, timeout):
    with pytest.raises(ValidationError, match="number of seconds"):
        asking.query(COUNTS, engine="colony", timeout=timeout)


# --- real processes ----------------------------------------------------------------------------------------------


def node_process(uri, cache):
    """`apiary start` in a process of its own; its id when it is at work."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ontologia.cli", "apiary", "start", "--storage", uri],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )
    said = []
    for line in process.stderr:
        said.append(line)
        if "is running" in line:
            return process, line.split()[1]
    raise AssertionError("".join(said))


@pytest.mark.thorough
def test_a_node_in_another_process_reads_its_share_and_is_done_without_when_it_is_killed(uri, tmp_path):
    faulty = FaultyObjects(open_objects(uri))
    with apiary(uri, tmp_path / "c", objects=faulty) as ap:
        fill(ap)
        process, node_id = node_process(uri, tmp_path / "other")
        try:
            with faulty.recording() as steps:
                assert ap.query(COUNTS, engine="colony", timeout=600).to_pylist() == EXPECTED
            read = [step.request.key for step in steps if step.request.operation == "get"]
            assert [key for key in read if key.endswith(f"partial_{node_id}.arrow")]
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert ap.query(COUNTS, engine="colony", timeout=0.5).to_pylist() == EXPECTED
        finally:
            process.kill()
            process.wait()
        assert left_behind(ap) == []
