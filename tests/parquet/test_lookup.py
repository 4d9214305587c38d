"""Rows by identity, as a commit looks them up: the same rows that a query finds, out of as few bytes as possible."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from ontologia.engines import row_files as committing
from ontologia.engines.catalog import Catalog
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.care import snapshots
from ontologia.engines.parquet.read import layers, lookup
from ontologia.engines.repository import Repository
from ontologia.errors import StorageBackendError
from ontologia.files import reading as remote
from ontologia.files.footers import Kept
from ontologia.model import Declared, TypeSchema
from ontologia.query.plan import LATEST, Plan, Window
from support.parquet_shop import Customer, Rated, Shop, commit

CUSTOMER, RATED = Customer.__declaration__.schema, Rated.__declaration__.schema


@pytest.fixture(params=["in memory", "by row group", "by range"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How files are read: small ones whole, large ones by row group, and those from the store where they lie."""
    monkeypatch.setattr(snapshots, "LOOKUP_GROUP_ROWS", 4)
    monkeypatch.setattr(committing, "LOOKUP_GROUP_ROWS", 4)
    monkeypatch.setattr(lookup, "ROWS_AT_ONCE", 3)
    if request.param != "in memory":
        monkeypatch.setattr(lookup, "SMALL_FILE_BYTES", 0)
    if request.param == "by range":
        monkeypatch.setattr(remote, "WHOLE_FILE_BYTES", 0)
    return str(request.param)


def changes(chance: random.Random, number: int) -> list[Declared]:
    """Some customers and ratings, several of one customer, of a small world in which most are changed again."""
    customers = chance.sample(range(30), 12)
    ratings = chance.sample([(left, year) for left in range(10) for year in (1, 2, 3)], 12)
    return [
        *(Customer(id=f"c{n:02}", name=f"{number}", tags=[str(number)] * (n % 3)) for n in customers),
        *(Rated(left_key=f"c{n:02}", right_key="p1", year=f"{year}", stars=number) for n, year in ratings),
    ]


def identities(chance: random.Random, schema: TypeSchema) -> pa.Table:
    """Some identities, in no order; some of them nobody has."""
    if schema is CUSTOMER:
        found = [(f"c{n:02}",) for n in chance.sample(range(40), 15)]
    else:
        pairs = chance.sample([(left, year) for left in range(12) for year in (1, 2, 3, 4)], 15)
        found = [(f"c{left:02}", "p1", f"{year}") for left, year in pairs]
    columns = zip(*found, strict=True)
    return pa.table({name: list(column) for name, column in zip(schema.ref.identity, columns, strict=True)})


def check(repository: Repository, catalog: Catalog, chance: random.Random) -> None:
    for schema in (CUSTOMER, RATED):
        keys = identities(chance, schema)
        plan = Plan(schema.ref, {schema.ref: schema}, keyed=True, stored=True)
        order = [(name, "ascending") for name in schema.ref.identity]
        expected = repository.engine.table(plan, keys, catalog).sort_by(order)
        found = repository.engine.current(schema, keys, catalog).sort_by(order)
        assert found.to_pylist() == expected.to_pylist()
        assert found.schema == expected.schema


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.thorough
@pytest.mark.slow_on("v1")
def test_a_lookup_finds_what_a_query_finds_in_commits_snapshots_and_both(memory: Shop, way: str, seed: int) -> None:
    chance = random.Random(seed)
    with memory.using() as writer, memory.using() as reader:
        for number in range(8):
            commit(writer, changes(chance, number))
            if number in (2, 5):
                writer.compact(apply=True)
            check(reader, reader.engine.catalog(), chance)


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.thorough
@pytest.mark.slow_on("v1")
def test_a_lookup_at_a_head_that_others_have_moved_since_sees_the_state_of_its_head(
    memory: Shop, way: str, compacted: bool
) -> None:
    chance = random.Random(1)
    with memory.using() as writer, memory.using() as reader:
        catalogs = []
        for number in range(5):
            commit(writer, changes(chance, number))
            catalogs.append(reader.engine.catalog())
        if compacted:
            writer.compact(apply=True)
        for catalog in catalogs:
            check(reader, catalog, chance)


def test_a_lookup_of_few_keys_reads_few_bytes_of_a_large_file(memory: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "SMALL_FILE_BYTES", 0)
    monkeypatch.setattr(remote, "WHOLE_FILE_BYTES", 0)
    monkeypatch.setattr(snapshots, "LOOKUP_GROUP_ROWS", 500)
    with memory.using() as writer:
        commit(writer, [Customer(id=f"k{n:06}", name=random.Random(n).randbytes(40).hex()) for n in range(10_000)])
        writer.compact("Customer", apply=True)
        (snapshot,) = memory.objects.list(paths.SNAPSHOTS)
    with memory.using() as repository:
        read = 0
        get_range = memory.objects.backend.get_range

        def counted(path: str, start: int, length: int) -> bytes:
            nonlocal read
            read += length
            return get_range(path, start, length)

        monkeypatch.setattr(memory.objects.backend, "get_range", counted)
        keys = pa.table({"entity_key": ["k000007", "k007777", "nobody"]})
        assert repository.engine.current(CUSTOMER, keys, repository.engine.catalog()).num_rows == 2
        assert 0 < read < snapshot.size / 4


def test_files_in_memory_stay_within_their_bound(memory: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "HELD_BYTES", 3_500)
    with memory.using() as repository:
        for number in range(6):
            commit(repository, [Customer(id=f"k{number}", name="x" * 1000)])
        keys = pa.table({"entity_key": [f"k{number}" for number in range(6)]})
        for _ in range(2):
            assert repository.engine.current(CUSTOMER, keys, repository.engine.catalog()).num_rows == 6
            assert 1_000 < repository.engine.lookup._held.size <= 3_500


def test_what_is_kept_stays_within_its_size_and_what_was_used_last_stays_longest() -> None:
    kept: Kept[str, str] = Kept(10)
    for name in ("a", "b", "c"):
        kept.put(name, name.upper(), 3)
    assert kept.get("a") == "A"
    kept.put("d", "D", 3)
    kept.put("d", "D", 4)
    assert [kept.get(name) for name in "abcd"] == ["A", None, "C", "D"]
    assert kept.size == 10


@pytest.mark.parametrize("body", [b"", b"PAR1 no longer PAR1", None])
def test_a_commit_over_a_damaged_or_missing_file_names_the_object(memory: Shop, way: str, body: bytes | None) -> None:
    with memory.using() as repository:
        entry = repository.engine.log.index(CUSTOMER.ref).index.entries[-1]
    if body is None:
        memory.objects.delete(entry.path)
    else:
        memory.objects.put(entry.path, body)
    fresh = Shop(memory.objects, memory.version, memory.cache / "fresh")
    with fresh.using() as repository, pytest.raises(StorageBackendError, match=entry.path):
        commit(repository, [Customer(id="c1", name="Anew")])


@pytest.mark.parametrize("dense", [True, False])
def test_a_task_holds_what_it_finds_though_large_loads_supersede_each_other(
    memory: Shop, monkeypatch: pytest.MonkeyPatch, dense: bool
) -> None:
    """No window over all rows, for which DuckDB would need memory for all of them."""
    monkeypatch.setattr(layers, "LARGE_ROWS", 10)
    with memory.using() as repository:
        for number in range(6):
            commit(repository, [Customer(id=f"k{n:02}", name=f"{number}") for n in range(number, 40)])
        engine = repository.engine
        wanted = pa.table({"entity_key": [f"k{n:02}" for n in (0, 3, 9, 39, 77)], "name": ["x"] * 5})
        expected = {("k00", "0"), ("k03", "3"), ("k09", "5"), ("k39", "5")}

        monkeypatch.setattr(engine.duck, "table", _must_not_be_asked)
        for window in (LATEST, Window("as_of", engine.catalog().head)):
            found = engine.rows_of(CUSTOMER, wanted, window, dense=dense)
            assert {(row["entity_key"], row["name"]) for row in found.to_pylist()} == expected
            assert found.column_names == ["commit_id", "entity_key", "name"]


def _must_not_be_asked(*_: object, **__: object) -> None:
    raise AssertionError("DuckDB was asked")
