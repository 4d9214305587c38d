"""Many small files are opened once on a machine: the next process finds their rows packed in its cache."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ontologia.engines.parquet.read.packed import PACKED_AFTER
from ontologia.files.reading import FileReader
from ontologia.objects import FileCache, open_objects
from support.parquet_shop import Customer, Shop, commit

MANY = PACKED_AFTER + 3


@pytest.fixture(scope="module", params=["directory", "memory"])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("packed")
    uri = (folder / "store").as_uri() if request.param == "directory" else f"memory://{uuid.uuid4().hex}/packed"
    shop = Shop.create(open_objects(uri), "v2", folder / "cache", filled=False)
    grow(shop, MANY)
    yield shop
    shop.close()


@pytest.fixture
def shop(kept: Shop, tmp_path: Path) -> Shop:
    """The store as a machine sees it that has never read it; what a test commits, the next one finds."""
    return Shop(kept.objects, kept.version, tmp_path / "cache")


def grow(shop: Shop, commits: int) -> None:
    with shop.using(auto_compact="never") as repository:
        first = repository.engine.catalog().head
        for number in range(first, first + commits):
            commit(repository, [Customer(id=f"c{number % 20}", name=f"n{number}", age=number)])


def ask(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> int:
    """Ask for everybody, as a process that starts; how many files of the store it opens for that."""
    opened = []
    original = FileReader.open
    with monkeypatch.context() as patched, shop.using(auto_compact="never") as repository:
        patched.setattr(FileReader, "open", lambda self, file: opened.append(file) or original(self, file))
        query = shop.session(Customer, repository=repository).query().entities(Customer)
        found = {row.id: row.age for row in query.where(Customer.age >= 0).collect()}
        head = repository.engine.catalog().head
    assert found == {f"c{number % 20}": number for number in range(head)}
    return len(opened)


def packs(shop: Shop) -> list[Path]:
    return FileCache(shop.cache, 1 << 30).combined(shop.objects)


def test_the_next_process_opens_what_is_new_and_packs_it_when_it_is_much(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(shop, monkeypatch) >= MANY
    assert ask(shop, monkeypatch) == 0
    grow(shop, 2)
    assert ask(shop, monkeypatch) == ask(shop, monkeypatch) == 2
    grow(shop, PACKED_AFTER - 2)
    assert ask(shop, monkeypatch) == PACKED_AFTER
    assert ask(shop, monkeypatch) == 0
    assert len(packs(shop)) == 1


def test_a_process_that_goes_on_leaves_what_is_packed_as_it_is(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(shop, monkeypatch)
    (packed,) = packs(shop)
    with shop.using(auto_compact="never") as repository:
        query = shop.session(Customer, repository=repository).query().entities(Customer).where(Customer.age >= 0)
        query.collect()
        grow(shop, MANY)
        query.collect()
    assert packs(shop) == [packed]
    assert ask(shop, monkeypatch) == MANY


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: b"", lambda data: data[:99] + bytes([data[99] ^ 8]) + data[100:]]
)
def test_a_packed_file_that_is_damaged_is_not_used(shop: Shop, damage: object, monkeypatch: pytest.MonkeyPatch) -> None:
    every = ask(shop, monkeypatch)
    (packed,) = packs(shop)
    whole = packed.read_bytes()
    packed.write_bytes(damage(whole))  # type: ignore[operator]
    assert ask(shop, monkeypatch) == every
    assert packed.read_bytes() == whole


def test_what_is_packed_of_files_that_are_merged_now_makes_room_for_those_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/merged"), "v2", tmp_path / "cache", filled=False)
    grow(shop, MANY)
    ask(shop, monkeypatch)
    with shop.using() as repository:
        repository.compact(apply=True)
    grow(shop, MANY)
    assert ask(shop, monkeypatch) == MANY + 1
    assert ask(shop, monkeypatch) == 0
    assert len(packs(shop)) == 1


def test_what_is_packed_of_one_store_is_not_taken_for_another_laid_out_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, ages = f"memory://{uuid.uuid4().hex}/again", []
    for number in range(2):
        shop = Shop.create(open_objects(name), "v2", tmp_path / "cache", filled=False)
        with shop.using(auto_compact="never") as repository:
            for step in range(MANY):
                commit(repository, [Customer(id="c", name="x", age=step + number)])
        for _ in range(2):
            query = shop.session(Customer).query().entities(Customer)
            ages.append(query.where(Customer.age > 0).collect()[0].age)
        shop.close()
        for info in list(shop.objects.list()):
            shop.objects.delete(info.key)
    assert ages == [MANY - 1, MANY - 1, MANY, MANY]


def test_a_cache_that_cannot_be_written_leaves_the_files_to_be_opened(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = ask(shop, monkeypatch)
    (packed,) = packs(shop)
    packed.unlink()
    monkeypatch.setattr(FileCache, "combine", lambda *_: (_ for _ in ()).throw(PermissionError("read only")))
    assert ask(shop, monkeypatch) == every


def test_a_vacuum_leaves_nothing_packed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(shop, monkeypatch)
    assert packs(shop)
    with shop.using() as repository:
        repository.vacuum(apply=True)
    assert packs(shop) == []
