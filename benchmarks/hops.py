"""Two hops from a thousand entities, on both engines, beside the same question in SQL by hand.

The statement by hand does the same: the row in force of each identity, all columns of all steps, in order. Ours also
makes objects and paths of them.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb

from benchmarks.report import Case
from ontologia import Entity, Field, OntologiaConfig, Ontology, Relation
from ontologia.engines.initializing import initialize_storage

ACQUAINTANCES, TEAMS = 3, 20
GOAL = 2.0


class Person(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    team: Field[int] = Field(index=True)


class Knows(Relation[Person, Person]):
    since: Field[int] = 0


STEPS = {"s": "person", "k1": "knows", "m": "person", "k2": "knows", "e": "person"}
COLUMNS = {
    "person": ("entity_key", "commit_id", "id", "name", "team"),
    "knows": ("left_key", "right_key", "instance_key", "commit_id", "since"),
}
IDENTITY = {"person": ("entity_key",), "knows": ("left_key", "right_key", "instance_key")}


def filled(onto: Ontology, people: int) -> Ontology:
    chance = random.Random(1)
    pairs = {(chance.randrange(people), chance.randrange(people)) for _ in range(ACQUAINTANCES * people)}
    with onto.session() as session:
        session.ensure(Person(id=_key(n), name=f"Person {n}", team=n % TEAMS) for n in range(people))
        session.ensure(Knows(left_key=_key(a), right_key=_key(b), since=a % 50) for a, b in sorted(pairs))
    return onto


def _key(number: int) -> str:
    return f"p{number:06d}"


def traversals(folder: Path, people: int) -> Iterator[Case]:
    """Paths of two hops from many entities, and their ends, as objects, beside SQL by hand."""
    config = OntologiaConfig(max_batch_size=10**9, cache_directory=str(folder / "cache"))
    types = {"entity_types": [Person], "relation_types": [Knows]}
    database, store = folder / "people.db", folder / "people"
    initialize_storage(storage_uri=store.as_uri(), config=config)
    with (
        filled(Ontology(str(database), config, **types), people) as embedded,  # type: ignore[arg-type]
        filled(Ontology(storage_uri=store.as_uri(), config=config, **types), people) as files,  # type: ignore[arg-type]
    ):
        by_hand = sqlite3.connect(database)
        tables = {"person": "entity_Person_v1", "knows": "relation_Knows_v1"}
        newest = {name: _newest(table, IDENTITY[name]) for name, table in tables.items()}
        yield from _asked(
            embedded, f"{people // TEAMS:,}, SQLite", "sqlite3", newest, lambda sql: by_hand.execute(sql).fetchall()
        )
        duck = duckdb.connect(config={"memory_limit": config.s3_duckdb_memory_limit})
        placed = {
            "person": f"read_parquet('{next(store.glob('commits/*/entities/Person/*.parquet'))}')",
            "knows": f"read_parquet('{next(store.glob('commits/*/relations/Knows/*.parquet'))}')",
        }
        yield from _asked(
            files, f"{people // TEAMS:,}, files", "DuckDB", placed, lambda sql: duck.execute(sql).fetchall()
        )


def _newest(table: str, identity: tuple[str, ...]) -> str:
    same = " AND ".join(f"n.{name} = t.{name}" for name in identity)
    newer = f"SELECT 1 FROM {table} n WHERE {same} AND n.commit_id > t.commit_id"
    return f"(SELECT * FROM {table} t WHERE NOT EXISTS ({newer}))"


def _asked(
    onto: Ontology, where: str, peer: str, tables: dict[str, str], by_hand: Callable[[str], list[object]]
) -> Iterator[Case]:
    query = onto.query().entities(Person).where(Person.team == 7).via(Knows).via(Knows)
    ends = query.without_relations()
    everything = ", ".join(f"{step}.{name}" for step, table in STEPS.items() for name in COLUMNS[table])
    order = ", ".join(f"{step}.{name}" for step, table in STEPS.items() for name in IDENTITY[table])
    joined = (
        f"{tables['person']} s JOIN {tables['knows']} k1 ON k1.left_key = s.entity_key "
        f"JOIN {tables['person']} m ON m.entity_key = k1.right_key "
        f"JOIN {tables['knows']} k2 ON k2.left_key = m.entity_key "
        f"JOIN {tables['person']} e ON e.entity_key = k2.right_key WHERE s.team = 7"
    )
    paths_sql = f"SELECT {everything} FROM {joined} ORDER BY {order}"
    ends_sql = f"SELECT DISTINCT e.entity_key, e.commit_id, e.id, e.name, e.team FROM {joined} ORDER BY 1"
    if len(query.collect()) != len(by_hand(paths_sql)) or len(ends.collect()) != len(by_hand(ends_sql)):
        raise RuntimeError("the two do not answer the same question")
    name = f"two hops from {where}"
    yield Case(f"{name}: paths", "collect()", peer, GOAL, query.collect, lambda: by_hand(paths_sql), runs=7)
    yield Case(f"{name}: ends", "collect()", peer, GOAL, ends.collect, lambda: by_hand(ends_sql), runs=7)
