"""Large files as they lie, small commits in memory: every mix of them is read as what was committed."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ontologia import Entity, Field, Ontology, StorageBackendError, initialize_storage
from ontologia.engines.parquet.read import file_rows, in_order, layers
from ontologia.engines.parquet.read.packed import SmallFiles
from ontologia.files import duck
from ontologia.files.duck import Duck
from ontologia.files.reading import FileReader
from ontologia.objects import open_objects
from ontologia.query import count
from ontologia.runtime.rows import WantedRows
from support.parquet_shop import KEYS, Bought, Customer, Shop, commit, some_keys


@pytest.fixture
def small_is_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits of more than four rows are large, so that a few dozen rows have all the shapes of millions."""
    monkeypatch.setattr(layers, "LARGE_ROWS", 4)
    monkeypatch.setattr(layers, "MOST_ROWS", 14)
    monkeypatch.setattr(file_rows, "MANY_ROWS", 4)


@pytest.mark.usefixtures("small_is_tiny")
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
@pytest.mark.slow_on("v1")
@pytest.mark.thorough
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
        youngest = query.order_by(Customer.age, descending=True).limit(3)
        by_age = sorted(state, key=lambda key: (-state[key], key))
        assert [row.id for row in youngest.collect()] == by_age[:3]
        assert youngest.offset(2).to_arrow().column("id").to_pylist() == by_age[2:5]
        last = session.query().relations(Bought).order_by(Bought.amount, descending=True).limit(2).to_arrow()
        assert last.column("left_key").to_pylist() == by_age[:2]
        bought = session.query().relations(Bought).to_arrow().to_pydict()
        assert dict(zip(bought["left_key"], bought["amount"], strict=True)) == state
        earlier = chance.randrange(1, number + 1)
        assert {row.id: row.age for row in query.as_of(earlier).collect()} == past[earlier]
        then = sorted(past[earlier], key=lambda key: (-past[earlier][key], key))
        assert [row.id for row in youngest.as_of(earlier).collect()] == then[:3]
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
def test_a_few_rows_of_many_are_found_by_the_columns_that_decide_it(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/s"), version, tmp_path / "cache", filled=False)
    shop.commit([Customer(id=key, name="load", age=number) for number, key in enumerate(KEYS)])
    shop.commit([Customer(id=KEYS[-1], name="later", age=0), Customer(id=KEYS[0], name="later", age=22)])
    query = shop.session(Customer).query().entities(Customer).order_by(Customer.age, descending=True).limit(3)
    asked: list[str] = []
    original = Duck.table
    monkeypatch.setattr(
        Duck, "table", lambda self, sql, *more, **named: asked.append(sql) or original(self, sql, *more, **named)
    )

    found = query.to_arrow().to_pydict()

    assert found["id"] == [KEYS[0], KEYS[22], KEYS[21]]
    assert found["name"] == ["later", "load", "load"]
    assert len(asked) == 1
    assert '"age"' in asked[0]
    assert '"name"' not in asked[0]
    assert '"name"' in query.explain()  # which says what is asked, and then how it is found
    shop.close()


@pytest.mark.usefixtures("small_is_tiny")
def test_rows_before_or_behind_all_that_is_superseded_are_read_without_a_comparison(
    version: str, tmp_path: Path
) -> None:
    for superseded, has_some_apart in ((KEYS[:3], True), (KEYS[-3:], True), (KEYS[::12], False)):
        shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/s"), version, tmp_path / "cache", filled=False)
        shop.commit([Customer(id=key, name="load") for key in KEYS])
        shop.commit([Customer(id=key, name="later") for key in superseded])
        query = shop.session(Customer).query().entities(Customer).where(Customer.age == 0)

        assert (query.explain().partition("\n\n")[0].upper().count("READ_PARQUET") == 2) == has_some_apart
        names = {row.id: row.name for row in query.collect()}
        assert names == {key: "later" if key in superseded else "load" for key in KEYS}
        shop.close()


@pytest.mark.usefixtures("small_is_tiny")
def test_a_snapshot_is_read_without_the_column_that_tells_what_was_superseded(version: str, tmp_path: Path) -> None:
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/s"), version, tmp_path / "cache", filled=False)
    shop.commit([Customer(id=key, name="load", age=1) for key in KEYS])
    shop.commit([Customer(id=key, name="again", age=1) for key in KEYS[4:16]])
    with shop.using() as repository:
        repository.compact(apply=True)
    query = shop.session(Customer).query().entities(Customer).where(Customer.age == 1)

    assert "superseded_by" not in query.explain().partition("\n\n")[0]
    assert sorted(row.name for row in query.collect()) == ["again"] * 12 + ["load"] * 12
    assert query.as_of(1).count() == 24
    assert {row.name for row in query.as_of(1).collect()} == {"load"}
    shop.close()


@pytest.mark.usefixtures("small_is_tiny")
def test_a_field_may_be_called_as_duckdb_calls_the_number_of_a_row(version: str, tmp_path: Path) -> None:
    class Line(Entity):
        id: Field[str] = Field(primary_key=True)
        File_Row_Number: Field[int] = 0

    uri = (tmp_path / "store").as_uri()
    initialize_storage(storage_uri=uri, engine_version=version)
    with Ontology(storage_uri=uri, entity_types=[Line]) as onto:
        for number, keys in enumerate((KEYS, KEYS[3:5])):
            with onto.session() as session:
                session.ensure(Line(id=key, File_Row_Number=number) for key in keys)
        lines = onto.query().entities(Line)
        top = lines.order_by(Line.File_Row_Number, descending=True).limit(2)
        for _ in range(2):
            assert lines.where(Line.File_Row_Number == 1).count() == 2
            assert [line.id for line in top.collect()] == KEYS[3:5]
            onto.repository.compact(apply=True)


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
    original = SmallFiles.rows
    monkeypatch.setattr(SmallFiles, "rows", lambda *given, **how: read.append(len(given[2])) or original(*given, **how))
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

    for most in (1, 100):  # more rows than these are not put between the others one by one
        monkeypatch.setattr(in_order, "MOST_BETWEEN", most)
        found = session.query().entities(Customer).to_arrow().to_pydict()

        assert found["id"] == sorted([*KEYS, "a", "z", f"{KEYS[9]}x"])
        assert [name for name in found["name"] if name == "later"] == ["later"] * 2
        assert found["name"].count("again") == (11 if compacted else 0)
    assert not [sql for sql in asked if "READ_PARQUET" in sql]
    shop.close()


@pytest.mark.usefixtures("small_is_tiny")
def test_all_rows_of_a_file_far_away_come_also_where_duckdb_has_no_memory_to_sort_them(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/s"), version, tmp_path / "cache", filled=False)
    shop.commit([Customer(id=key, name="load") for key in KEYS])
    shop.commit([Customer(id=KEYS[3], name="later")])
    monkeypatch.setattr(FileReader, "comes_whole", lambda self, file: False)
    original = duck.execute

    def execute(cursor: Any, sql: str, parameters: Any) -> Any:
        if "ORDER BY" in sql and "READ_PARQUET" in sql:
            raise duckdb.OutOfMemoryException("Out of Memory Error: no more")
        return original(cursor, sql, parameters)

    monkeypatch.setattr(duck, "execute", execute)
    query = shop.session(Customer).query().entities(Customer)
    assert query.to_arrow().column("id").to_pylist() == [row.id for row in query.collect()] == sorted(KEYS)
    with pytest.raises(StorageBackendError, match="raise OntologiaConfig"):
        query.where(Customer.name == "load").to_arrow()
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
