"""A node that takes tasks: it looks for queries that name it, runs its part and leaves the rows beside the manifest."""

from __future__ import annotations

import logging

import pyarrow as pa

from ontologia.apiary.names import QUERIES
from ontologia.apiary.node import Node
from ontologia.apiary.queries.manifest import QueryManifest, failure_bytes, forget, part_bytes
from ontologia.apiary.queries.tasks import run_task
from ontologia.errors import OntologiaError
from ontologia.objects import ObjectNotFound, Thread, system

LOOK_EVERY_S = 0.5
ABANDONED_AFTER_S = 3600  #: after the end of a query whose coordinator did not clean up
_log = logging.getLogger(__name__)


class Worker:
    """Looks for tasks twice a second. It has a thread of its own: heartbeats must not wait for a query."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._seen: dict[str, QueryManifest | None] = {}
        self._stop = system().event()
        self._thread: Thread | None = None

    def start(self) -> None:
        self._thread = system().start(self._run, "apiary-worker")

    def stop(self) -> None:
        """End after the task it is at."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def look(self) -> None:
        """Do what is there to do for this node. A query that cannot be read does not keep it from the others."""
        listed = [info.key.split("/") for info in self.node.objects.list(f"{QUERIES}/")]
        there = {parts[1] for parts in listed if parts[2:] == ["manifest.json"]}
        self._seen = {query_id: seen for query_id, seen in self._seen.items() if query_id in there}
        for query_id in sorted(there - self._seen.keys()):
            if self._stop.is_set():
                return
            self._seen[query_id] = manifest = self._read(query_id)
            if manifest is not None and manifest.ends_at() > self.node.clock.wall():
                self._deliver(manifest)
        for query_id, manifest in self._seen.items():
            if manifest is not None and self.node.clock.wall() > manifest.ends_at() + ABANDONED_AFTER_S:
                forget(self.node.objects, query_id)

    def _read(self, query_id: str) -> QueryManifest | None:
        try:
            return QueryManifest.read(self.node.objects, query_id)
        except ObjectNotFound:
            return None
        except OntologiaError as problem:
            _log.warning("a query is left out: %s", problem)
            return None

    def _deliver(self, manifest: QueryManifest) -> None:
        node = self.node
        tasks = [task for task in manifest.tasks if task.node_id == node.node_id]
        if not tasks or manifest.coordinator == node.node_id:
            return
        try:
            node.admit_query()
            part = part_bytes(pa.concat_tables(run_task(node, task) for task in tasks))
        except Exception as problem:  # whoever asked does the task himself, and sees what is wrong with it
            _log.warning("a task of the query %s failed: %s", manifest.query_id, problem)
            part = failure_bytes(problem)
        node.objects.put(manifest.part_of(node.node_id), part)
        if not node.objects.exists(manifest.key):  # nobody waits any more, and who asked has cleaned up already
            node.objects.delete(manifest.part_of(node.node_id))

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            try:
                self.look()
            except Exception as problem:  # the next look may succeed
                _log.warning("a look for tasks was missed: %s", problem)
