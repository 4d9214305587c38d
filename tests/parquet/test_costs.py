"""What must not grow with the number of commits: requests, files opened, rows in statements, bytes of an index.

First where nobody compacts, then where a store keeps itself in shape, as it does by default.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ontologia import Entity, Field, Ontology, initialize_storage
from ontologia.engines import row_files
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.engine import ParquetEngine
from ontologia.engines.parquet.log.records import IndexEntry
from ontologia.engines.parquet.read import lookup
from ontologia.engines.parquet.read.layers import layers
from ontologia.engines.repository import Repository
from ontologia.files.duck import Duck
from ontologia.files.reading import FileReader
from ontologia.objects import open_objects
from ontologia.query import count
from support.parquet_shop import Customer, Shop, commit

pytestmark = pytest.mark.xdist_group("deep stores")  # which are made once

FEW, MANY = 10, 1_000


def deep(commits: int, folder: Path, **settings: Any) -> Shop:
    """A store of so many commits of one row each, never compacted unless the settings say so."""
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/deep"), "v2", folder / "cache", filled=False)
    with shop.using(**{"auto_compact": "never"} | settings) as repository:
        for number in range(commits):
            commit(repository, [Customer(id=f"c{number * 7 % 1009:04d}", name=f"n{number}", age=number)])
    return shop


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shop, Shop]]:
    folder = tmp_path_factory.mktemp("depth")
    shops = deep(FEW, folder / "few"), deep(MANY, folder / "many")
    yield shops
    for shop in shops:
        shop.close()


@dataclass
class Asked:
    """What one operation asked for."""

    requests: list[str]
    opened: int


def asked(shop: Shop, repository: Repository, work: object, monkeypatch: pytest.MonkeyPatch) -> Asked:
    opened = [0]
    original = FileReader.open

    def count_opened(self: FileReader, file: object) -> object:
        opened[0] += 1
        return original(self, file)  # type: ignore[arg-type]

    with monkeypatch.context() as patched, shop.objects.counting() as requests:
        patched.setattr(FileReader, "open", count_opened)
        work()  # type: ignore[operator]
    return Asked([f"{item.operation} {item.key.partition('/')[0]}" for item in requests.log], opened[0])


@pytest.mark.thorough
def test_a_commit_of_a_process_that_starts_costs_at_most_twelve_requests_at_any_depth(
    stores: tuple[Shop, Shop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for number, shop in enumerate(stores):
        cold = Shop(shop.objects, shop.version, tmp_path / str(number))
        repository = cold.repository(auto_compact="never")  # what is merged beside it is not the commit's
        rows = [Customer(id="c0007", name=f"cold {number}")]
        found.append(asked(shop, repository, lambda r=repository, w=rows: commit(r, w), monkeypatch))
        cold.close()

    few, many = found
    for each in found:
        assert len(each.requests) <= 12, each.requests
    assert many.opened <= few.opened + 1  # the one file that has the key


@pytest.mark.thorough
def test_a_question_that_was_asked_before_reads_nothing_but_head_and_index_at_any_depth(
    stores: tuple[Shop, Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for shop in stores:
        repository = shop.repository()
        query = shop.session(Customer, repository=repository).query().entities(Customer)

        def ask(query: object = query) -> None:
            query.count()  # type: ignore[attr-defined]
            query.where(Customer.age == 3).collect()  # type: ignore[attr-defined]
            query.group_by(Customer.tier).agg(rows=count())  # type: ignore[attr-defined]

        ask()
        found.append(asked(shop, repository, ask, monkeypatch))

    few, many = found
    assert few == many
    assert many.opened == 0
    assert set(many.requests) == {"get meta"}


@pytest.mark.thorough
def test_the_first_key_lookup_of_a_process_opens_the_one_file_that_has_the_key_at_any_depth(
    stores: tuple[Shop, Shop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for number, shop in enumerate(stores):
        cold = Shop(shop.objects, shop.version, tmp_path / str(number))
        repository = cold.repository()
        query = cold.session(Customer, repository=repository).query().entities(Customer)
        work = lambda q=query: q.where(Customer.id == "c0014").first().age  # noqa: E731
        found.append(asked(shop, repository, work, monkeypatch))
        cold.close()

    few, many = found
    assert few == many
    assert many.opened == 1
    assert len(many.requests) == 4  # head, catalog, index and that file


@pytest.mark.thorough
def test_the_second_process_of_a_machine_opens_no_file_for_a_filter_at_any_depth(
    stores: tuple[Shop, Shop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, shop = stores
    found = []
    for _ in range(2):
        cold = Shop(shop.objects, shop.version, tmp_path / "cache")
        repository = cold.repository()
        query = cold.session(Customer, repository=repository).query().entities(Customer)
        found.append(asked(shop, repository, lambda q=query: q.where(Customer.age == 3).collect(), monkeypatch))
        cold.close()

    first, second = found
    assert first.opened >= MANY
    assert second.opened == 0
    assert len(second.requests) <= 3  # head, catalog and index


def test_the_first_count_of_a_process_opens_no_file_where_no_key_comes_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/apart"), "v2", tmp_path / "warm", filled=False)
    with shop.using(auto_compact="never") as repository:
        for number in range(30):
            commit(repository, [Customer(id=f"c{number * 7 % 30:02d}", name="x")])
    cold = Shop(shop.objects, shop.version, tmp_path / "cold")
    repository = cold.repository()
    query = cold.session(Customer, repository=repository).query().entities(Customer)
    counts: list[int] = []
    found = asked(shop, repository, lambda: counts.append(query.count()), monkeypatch)
    for used in (cold, shop):
        used.close()

    assert counts == [30]
    assert found.opened == 0
    assert not any("commits" in request for request in found.requests[2:])


def test_a_key_lookup_reads_one_row_group_and_runs_no_statement_beside_any_number_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "LOOKUP_GROUP_ROWS", 100)
    monkeypatch.setattr(lookup, "SMALL_FILE_BYTES", 0)
    read: list[int] = []
    original = pq.ParquetFile.read_row_group
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", lambda *a, **k: read.append(1) or original(*a, **k))
    for rows in (1_000, 20_000):
        shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/rows"), "v2", tmp_path / str(rows), filled=False)
        repository = shop.repository(max_batch_size=rows)
        commit(repository, [Customer(id=f"c{number:06d}", name=f"n{number}") for number in range(rows)])
        query = shop.session(Customer, repository=repository).query().entities(Customer)
        read.clear()
        with monkeypatch.context() as patched:
            patched.setattr(Duck, "cursor", None)
            assert query.where(Customer.id == "c000777").first().name == "n777"
            assert len(read) == 1  # its keys; of the other columns, what comes before the row
            assert query.where(Customer.id == "c000778").first().name == "n778"
            assert len(read) == 3  # who comes again has all of it decoded
            assert query.where(Customer.id == "c000779").first().name == "n779"
            assert len(read) == 3  # and that stays in memory
        shop.close()


@pytest.mark.thorough
def test_explain_names_the_files_that_a_key_lookup_looks_into(stores: tuple[Shop, Shop]) -> None:
    _, shop = stores
    query = shop.session(Customer).query().entities(Customer).where(Customer.id == "c0014")
    statement, files = query.explain().split("\n\n")
    assert "the row in force of entity Customer" in statement
    assert files.startswith("looked up, newest first, in\ncommits/3-")


def test_ten_thousand_commits_of_one_row_are_kept_in_memory_by_their_rows_not_by_their_files() -> None:
    entries = [IndexEntry(n, n, f"commits/{n}", row_count=1, size=4_600) for n in range(1, 10_001)]
    split = layers(entries)
    assert split is not None
    assert len(split.small) == 10_000
    assert layers([*entries, *(replace(entry, size=400_000) for entry in entries[:100])]) is None


@pytest.mark.thorough
def test_an_index_that_did_not_change_is_not_read_again(
    stores: tuple[Shop, Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, shop = stores
    session = shop.session(Customer)
    session.query().entities(Customer).count()
    parsed = []
    original = IndexEntry.read.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(IndexEntry, "read", classmethod(lambda cls, body: parsed.append(1) or original(cls, body)))

    session.query().entities(Customer).count()

    assert not parsed


@pytest.mark.thorough
def test_statements_do_not_name_the_files_of_small_commits(stores: tuple[Shop, Shop]) -> None:
    lengths = [len(shop.session(Customer).query().entities(Customer).explain().split("\n\n")[0]) for shop in stores]
    assert lengths[0] == lengths[1]


@pytest.mark.thorough
def test_a_commit_reads_the_one_file_that_has_its_key_not_the_ends_of_all(
    stores: tuple[Shop, Shop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, shop = stores
    cold = Shop(shop.objects, shop.version, tmp_path / "cache")
    repository = cold.repository(auto_compact="never")
    assert isinstance(repository.engine, ParquetEngine)
    found = asked(shop, repository, lambda: commit(repository, [Customer(id="c0014", name="n2", age=2)]), monkeypatch)
    assert found.opened <= 2
    cold.close()


def test_validators_are_made_when_a_bucket_is_opened_not_by_its_first_commit(tmp_path: Path) -> None:
    class Fresh(Entity):
        id: Field[str] = Field(primary_key=True)

    Ontology(str(tmp_path / "x.db"), entity_types=[Fresh]).close()
    assert Fresh.__declaration__._adapter is None
    uri = (tmp_path / "store").as_uri()
    initialize_storage(storage_uri=uri)
    Ontology(storage_uri=uri, entity_types=[Fresh]).close()
    assert Fresh.__declaration__._adapter is not None


SOME, MERGED_AFTER = 400, 20


@pytest.fixture(scope="module")
def kept_in_shape(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A store of many commits with the settings of everybody, but for a smaller number after which files are merged."""
    shop = deep(SOME, tmp_path_factory.mktemp("kept"), auto_compact="commits", compact_after_commits=MERGED_AFTER)
    yield shop
    shop.close()


@pytest.mark.thorough
def test_the_first_question_of_a_process_opens_as_many_files_as_are_merged_at_once(
    kept_in_shape: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, ask in enumerate(
        (lambda query: query.count(), lambda query: query.where(Customer.id == "c0007").first())
    ):
        cold = Shop(kept_in_shape.objects, kept_in_shape.version, tmp_path / str(number))
        repository = cold.repository()
        query = cold.session(Customer, repository=repository).query().entities(Customer)
        found = asked(kept_in_shape, repository, lambda q=query, a=ask: a(q), monkeypatch)
        cold.close()

        assert found.opened <= 2 * MERGED_AFTER
        assert len(found.requests) <= 2 * MERGED_AFTER + 5


@pytest.mark.thorough
def test_the_index_that_every_commit_writes_stays_short(kept_in_shape: Shop, stores: tuple[Shop, Shop]) -> None:
    key = paths.index(Customer.__declaration__.ref)
    few, _ = stores
    bytes_each = len(few.objects.get(key).data) / FEW
    assert len(kept_in_shape.objects.get(key).data) < 2 * MERGED_AFTER * bytes_each


def test_a_row_that_is_written_again_and_again_is_found_in_the_newest_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/hot"), "v2", tmp_path / "warm", filled=False)
    with shop.using(auto_compact="never") as repository:
        for number in range(60):
            commit(repository, [Customer(id="hot", name=f"n{number}")])
    cold = Shop(shop.objects, shop.version, tmp_path / "cold")
    repository = cold.repository(auto_compact="never")
    found = asked(shop, repository, lambda: commit(repository, [Customer(id="hot", name="once more")]), monkeypatch)
    for used in (cold, shop):
        used.close()

    assert found.opened <= 8
