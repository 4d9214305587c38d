"""Large files as they lie, small commits in memory: every mix of them is read as what was committed."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import pytest

from ontologia.engines.parquet.read import layers, tails
from ontologia.files.duck import Duck
from ontologia.objects import open_objects
from ontologia.query import count
from ontologia.runtime.rows import WantedRows
from support.parquet_shop import KEYS, Bought, Customer, Shop, commit, some_keys


@pytest.fixture
def small_is_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits of more than four rows are large, so that a few dozen rows have all the shapes of millions."""
    monkeypatch.setattr(layers, "LARGE_ROWS", 4)
    monkeypatch.setattr(layers, "MOST_ROWS", 14)


@pytest.mark.usefixtures("small_is_tiny")
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_loads_small_commits_and_snapshots_in_any_order_read_as_committed(
    version: str, seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/s"), version, tmp_path / "cache", filled=False)
    repository = shop.repository(compact_after_commits=4)
    session = shop.session(repository=repository)
    state: dict[str, int] = {}
    past: list[dict[str, int]] = [{}]
    for number in range(1, 26):
        if chance.random() < 0.1:
            repository.compact(apply=True)
        if chance.random() < 0.3:
            repository.engine.tidy("load")
        keys = some_keys(chance)
        rows = [Customer(id=key, name="x", age=number) for key in keys]
        commit(repository, [*rows, *(Bought(left_key=key, right_key="p", amount=number) for key in keys)])
        state |= dict.fromkeys(keys, number)
        past.append(dict(state))
        if chance.random() < 0.5:
            continue
        query = session.query().entities(Customer)
        assert {row.id: row.age for row in query.collect()} == state
        assert [row.id for row in query.collect()] == sorted(state)
        assert query.count() == len(state)
        assert query.where(Customer.age == number).count() == len(keys)
        ages = query.group_by(Customer.age).agg(rows=count())
        assert sum(group["rows"] for group in ages) == len(state)
        bought = session.query().relations(Bought).to_arrow().to_pydict()
        assert dict(zip(bought["left_key"], bought["amount"], strict=True)) == state
        earlier = chance.randrange(1, number + 1)
        assert {row.id: row.age for row in query.as_of(earlier).collect()} == past[earlier]
        for key in chance.sample(KEYS, 5):
            for then, expected in ((query, state), (query.as_of(earlier), past[earlier])):
                one = then.where(Customer.id == key).first()
                assert (one and one.age) == expected.get(key)
        assert {row.id: row.age for row in query.collect()} == state  # whatever the past left in memory
    shop.close()


@pytest.mark.usefixtures("small_is_tiny")
def test_what_is_superseded_in_a_large_file_is_left_out_by_its_place(version: str, tmp_path: Path) -> None:
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/s"), version, tmp_path / "cache", filled=False)
    shop.commit([Customer(id=key, name="load") for key in KEYS])
    shop.commit([Customer(id=KEYS[3], name="later"), Customer(id="new", name="later")])
    session = shop.session()

    statement = session.query().entities(Customer).where(Customer.age == 0).explain().split("\n\n")[0]

    assert "file_row_number" in statement
    assert "ROW_NUMBER()" not in statement
    assert session.query().entities(Customer).count() == len(KEYS) + 1
    shop.close()


@pytest.mark.usefixtures("small_is_tiny")
def test_loads_of_other_keys_need_no_care(version: str, tmp_path: Path) -> None:
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/s"), version, tmp_path / "cache", filled=False)
    for start in range(0, 24, 8):
        shop.commit([Customer(id=key, name="load") for key in KEYS[start : start + 8]])
    session = shop.session()

    statement = session.query().entities(Customer).where(Customer.age == 0).explain().split("\n\n")[0]

    assert "ANTI" not in statement
    assert "ROW_NUMBER()" not in statement
    assert session.query().entities(Customer).where(Customer.age == 0).count() == 24
    shop.close()


def test_a_tail_grows_by_the_new_files_alone(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/s"), version, tmp_path / "cache", filled=False)
    repository = shop.repository()
    session = shop.session(repository=repository)
    read: list[int] = []
    original = tails.Tails._read
    monkeypatch.setattr(
        tails.Tails, "_read", lambda self, schema, files: read.append(len(files)) or original(self, schema, files)
    )
    for number in range(6):
        commit(repository, [Customer(id=f"c{number % 4}", name=f"n{number}")])
        session.query().entities(Customer).collect()

    assert read == [2, 1, 1, 1, 1]  # the first commit alone is read where it lies
    assert [row.name for row in session.query().entities(Customer).collect()] == ["n4", "n5", "n2", "n3"]
    shop.close()


@pytest.mark.usefixtures("small_is_tiny")
@pytest.mark.parametrize("compacted", [False, True])
def test_all_rows_come_in_order_without_a_sort(
    version: str, compacted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/s"), version, tmp_path / "cache", filled=False)
    shop.commit([Customer(id=key, name="load") for key in KEYS])
    if compacted:
        shop.commit([Customer(id=key, name="again") for key in KEYS[4:16]])
        with shop.using() as repository:
            repository.compact(apply=True)
    shop.commit([Customer(id=KEYS[3], name="later"), Customer(id="a", name="first"), Customer(id="z", name="last")])
    shop.commit([Customer(id=KEYS[5], name="later"), Customer(id=f"{KEYS[9]}x", name="between")])
    session = shop.session(Customer)
    asked: list[str] = []
    original = Duck.table
    monkeypatch.setattr(
        Duck, "table", lambda self, sql, *more, **named: asked.append(sql) or original(self, sql, *more, **named)
    )

    found = session.query().entities(Customer).to_arrow().to_pydict()

    assert found["id"] == sorted([*KEYS, "a", "z", f"{KEYS[9]}x"])
    assert [name for name in found["name"] if name == "later"] == ["later"] * 2
    assert found["name"].count("again") == (11 if compacted else 0)
    assert not [sql for sql in asked if "read_parquet" in sql]
    shop.close()


@pytest.mark.usefixtures("small_is_tiny")
def test_a_file_that_is_not_in_order_is_sorted(version: str, tmp_path: Path) -> None:
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/s"), version, tmp_path / "cache", filled=False)
    schema = Customer.__declaration__.schema
    rows = [Customer(id=key, name="load") for key in KEYS]
    with shop.using() as repository, repository.engine.write() as transaction:
        layout = transaction.activate(schema)
        for part in (rows[12:], rows[:12]):
            wanted = WantedRows(Customer.__declaration__)
            for row in part:
                wanted.add(row)
            transaction.append(layout, wanted.table())
        transaction.publish({})

    assert [row.id for row in shop.session(Customer).query().entities(Customer).collect()] == KEYS
    shop.close()
