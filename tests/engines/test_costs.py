"""What one small commit into a SQLite file may cost, counted: it does not depend on what is stored already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from ontologia import Entity, Field, OntologiaConfig, Ontology, Relation
from ontologia.engines.dispatch import open_repository


class Place(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    size: Field[float] = 0.0


class Near(Relation[Place, Place]):
    distance: Field[float]


class Counted:
    """Statements, and instructions of SQLite's machine: one that reads more rows needs more of them."""

    def __init__(self) -> None:
        self.statements = 0
        self.instructions = 0

    def statement(self, _: str) -> None:
        self.statements += 1

    def instruction(self) -> None:
        self.instructions += 1


@contextmanager
def counted(onto: Ontology) -> Iterator[Counted]:
    found = Counted()
    with onto.engine.connections.use() as connection:  # type: ignore[attr-defined]
        connection.set_trace_callback(found.statement)
        connection.set_progress_handler(found.instruction, 1)
    try:
        yield found
    finally:
        with onto.engine.connections.use() as connection:  # type: ignore[attr-defined]
            connection.set_trace_callback(None)
            connection.set_progress_handler(None, 0)


def filled(path: Path, version: str, rows: int) -> Ontology:
    """A store with so many places and relations, in one commit."""
    open_repository(path, engine_version=version).close()
    config = OntologiaConfig(max_batch_size=10**6)
    onto = Ontology(str(path), config, entity_types=[Place], relation_types=[Near])
    keys = pa.array([f"p{number:07d}" for number in range(rows)])
    zeros = pa.array([0.0] * rows)
    none = pa.array([""] * rows)
    tables = {
        Place: pa.table({"entity_key": keys, "id": keys, "name": keys, "size": zeros}),
        Near: pa.table({"left_key": keys, "right_key": keys, "instance_key": none, "distance": zeros}),
    }
    with onto.engine.write() as transaction:
        for cls, table in tables.items():
            transaction.append(transaction.activate(cls.__declaration__.schema), table)
        transaction.publish({})
    return onto


def commit_one(onto: Ontology, number: int) -> None:
    with onto.session() as session:
        session.ensure(Place(id="p0000500", name=f"again {number}"))
        session.ensure(Place(id=f"new {number}", name="new"))
        session.ensure(Near(left_key="p0000500", right_key="p0000500", distance=float(number)))


def cost_of_one(onto: Ontology) -> Counted:
    commit_one(onto, 1)  # whatever is made ready once is ready now
    with counted(onto) as found:
        commit_one(onto, 2)
    return found


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.thorough
def test_a_commit_of_a_few_rows_reads_as_much_of_100_000_rows_as_of_1_000(version: str, tmp_path: Path) -> None:
    with (
        filled(tmp_path / "small.db", version, 1_000) as small,
        filled(tmp_path / "large.db", version, 100_000) as large,
    ):
        few, many = cost_of_one(small), cost_of_one(large)

    assert many.statements == few.statements <= 12
    assert many.instructions <= few.instructions + 8  # a lookup does not know the depth of its tree


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_commit_to_a_row_of_many_versions_reads_the_last_one(version: str, tmp_path: Path) -> None:
    with filled(tmp_path / "x.db", version, 1_000) as onto:
        commit_one(onto, 0)
        few = cost_of_one(onto)
        for number in range(300):
            commit_one(onto, number + 10)
        many = cost_of_one(onto)

    assert many.instructions <= few.instructions + 8


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_rows_that_are_wanted_by_their_keys_are_looked_up_not_scanned(version: str, tmp_path: Path) -> None:
    with (
        filled(tmp_path / "x.db", version, 1_000) as onto,
        onto.engine.connections.use() as connection,  # type: ignore[attr-defined]
    ):
        seen: list[str] = []
        connection.set_trace_callback(seen.append)
        commit_one(onto, 1)
        connection.set_trace_callback(None)
        asked = [sql for sql in seen if "touched_keys" in sql]
        steps = [row[-1] for sql in asked for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]

    assert len(asked) == 2
    assert not [step for step in steps if step.startswith("SCAN") and step != "SCAN k" and "CONSTANT ROW" not in step]


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 300])
def test_any_number_of_keys_is_compared(version: str, count: int, tmp_path: Path) -> None:
    with filled(tmp_path / "x.db", version, 1_000) as onto:
        wanted = [
            Place(id=f"p{number:07d}", name="another" if number % 2 else f"p{number:07d}") for number in range(count)
        ]
        with onto.session() as session:
            session.ensure(wanted)
            commit_id = session.commit()

        changes = [] if commit_id is None else onto.list_commit_changes(commit_id)
        assert [change["key"] for change in changes] == [place.id for place in wanted[1::2]]
