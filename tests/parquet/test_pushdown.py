"""What DuckDB is asked to do: filters and columns reach the Parquet scan, snapshots need no window (RFC 0004 §4.2, §4.4)."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ontologia import OntologiaConfig, left
from ontologia.engines.parquet.care import snapshots
from ontologia.engines.parquet.engine import ParquetEngine
from ontologia.engines.parquet.read import layers
from ontologia.errors import StorageBackendError
from ontologia.files import reading as remote
from ontologia.objects import open_objects
from ontologia.runtime.session import Session
from ontologia.testing.s3server import S3Server
from support.parquet_shop import VERSIONS, Bought, Customer, Product, Shop, commit


@pytest.fixture(scope="module", params=VERSIONS)
def compacted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """2,000 customers of whom half were changed, in one snapshot."""
    folder = tmp_path_factory.mktemp("store")
    shop = Shop.create(open_objects(folder.as_uri() + "/s"), str(request.param), folder / "cache", filled=False)
    with shop.using() as repository:
        customers = [
            Customer(id=f"c{n:05}", name=f"n{n}", tier="gold" if n % 7 else "silver", age=n) for n in range(2_000)
        ]
        commit(repository, customers)
        commit(repository, [Customer(id=f"c{n:05}", name="changed", tier="gold", age=-n) for n in range(1_000)])
        commit(repository, [Product(sku="p1"), Bought(left_key="c00001", right_key="p1")])
        commit(repository, [Product(sku="p1", price=2.0), Bought(left_key="c00001", right_key="p1", amount=5)])
        repository.compact(apply=True)
    yield shop
    shop.close()


@pytest.fixture
def session(compacted: Shop) -> Session:
    return compacted.session()


def plan(text: str) -> str:
    """The physical plan alone."""
    return text.split("\n\n", 1)[1]


def test_filters_and_columns_reach_the_scan(session: Session) -> None:
    text = session.query().entities(Customer).where(Customer.age > 1_500, Customer.tier == "gold").explain()
    assert "READ_PARQUET" in plan(text)
    scan = plan(text)[plan(text).index("READ_PARQUET") :]
    assert "Filters:" in scan
    assert "age>1500" in scan.replace(" ", "")
    assert "tier='gold'" in scan.replace(" ", "")
    assert "json_extract" not in text


def test_an_aggregate_reads_only_the_columns_it_needs(session: Session) -> None:
    repository = session.repository
    assert isinstance(repository.engine, ParquetEngine)
    from ontologia.query.aggregates import Aggregate
    from ontologia.query.plan import Plan

    ref = Customer.__declaration__.ref
    schema = repository.engine.catalog().layouts[ref].schema
    text = plan(
        repository.engine.explain(Plan(ref, {ref: schema}, aggregates=(("n", Aggregate("avg", Customer.age)),)))
    )
    scan = text[text.index("READ_PARQUET") :]
    assert "age" in scan
    assert "name" not in scan
    assert "tags" not in scan


def test_latest_over_a_snapshot_is_a_filter_and_not_a_window(session: Session) -> None:
    text = session.query().entities(Customer).where(Customer.age > 10).explain()
    assert "ROW_NUMBER" not in text
    assert "WINDOW" not in plan(text)
    assert "t.file_row_number < 2000" in text.replace('"', "")  # where the rows in force are, by their number
    assert "superseded_by" not in text


def test_as_of_inside_a_snapshot_is_a_filter_and_not_a_window(session: Session) -> None:
    text = session.query().entities(Customer).as_of(1).explain()
    assert "WINDOW" not in plan(text)
    assert session.query().entities(Customer).as_of(1).where(Customer.age < 0).count() == 0
    assert session.query().entities(Customer).as_of(2).where(Customer.age < 0).count() == 999


def test_no_commit_after_a_snapshot_goes_through_a_window(
    compacted: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "LARGE_ROWS", 1_000)  # else a snapshot of this size is read into memory, too
    twin = Shop(compacted.copy().objects, compacted.version, tmp_path / "cache")
    twin.commit([Customer(id="c00001", name="tail", age=1)])
    twin.commit([Customer(id="c00002", name="tail", age=2), Customer(id="new", name="tail", age=3)])
    query = twin.session().query().entities(Customer)
    statement = query.explain().split("\n\n")[0]
    assert "ROW_NUMBER()" not in statement
    assert "t.file_row_number < 2000" in statement.replace('"', "")
    assert query.count() == 2_001
    assert query.where(Customer.name == "tail").count() == 3
    assert query.where(Customer.name == "changed").count() == 998
    twin.close()


def test_endpoint_filters_are_joined_in_the_engine(session: Session) -> None:
    query = session.query().relations(Bought)
    assert query.where(left(Bought).tier == "gold").count() == 1  # type: ignore[attr-defined]
    assert query.where(left(Bought).tier == "silver").count() == 0  # type: ignore[attr-defined]
    assert query.where(left(Bought).tier == "gold").as_of(3).collect()[0].amount == 1  # type: ignore[attr-defined]


def test_snapshots_have_current_rows_first_sorted_by_key_in_small_row_groups(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(snapshots, "LOOKUP_GROUP_ROWS", 100)
    shop = Shop.create(open_objects((tmp_path / "s").as_uri()), "v2", tmp_path / "cache", filled=False)
    with shop.using() as repository:
        commit(repository, [Customer(id=f"c{n:05}", name="a") for n in range(500)])
        commit(repository, [Customer(id=f"c{n:05}", name="b") for n in range(0, 500, 2)])
        repository.compact(apply=True)
        key = next(info.key for info in shop.objects.list("snapshots/"))
        file = pq.ParquetFile(io.BytesIO(shop.objects.get(key).data))
        table = file.read()
        current = table.column("superseded_by").to_pylist()
        assert current[:500] == [None] * 500
        assert None not in current[500:]
        keys = table.column("entity_key").to_pylist()
        assert keys[:500] == sorted(keys[:500])
        column = table.schema.names.index("entity_key")
        groups = [file.metadata.row_group(n).column(column).statistics for n in range(file.num_row_groups)]
        holding = [g for g in groups[:5] if g.min <= "c00123" <= g.max]
        assert len(holding) == 1
        found = repository.get_latest_entity("Customer", "c00123")
        assert found is not None
        assert found["name"] == "a"


def test_memory_is_bounded_and_what_does_not_fit_goes_to_a_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shop = Shop.create(open_objects((tmp_path / "s").as_uri()), "v2", tmp_path / "cache", filled=False)
    repository = shop.repository(s3_duckdb_memory_limit="100MB")
    with repository.engine.duck.cursor() as cursor:
        limit, place = cursor.execute(
            "SELECT current_setting('memory_limit'), current_setting('temp_directory')"
        ).fetchall()[0]
        assert limit == "95.3 MiB"
        assert Path(place).is_absolute()
        spilled = cursor.execute(
            "SELECT count(*) FROM (SELECT md5(i::text) || md5((i + 1)::text) AS k FROM range(2000000) r(i) ORDER BY k)"
        ).fetchall()
    assert spilled == [(2_000_000,)]
    shop.close()
    assert {path.name for path in tmp_path.iterdir()} <= {"s", "cache"}
    assert not Path(place).exists()


@pytest.mark.s3
def test_large_files_are_read_by_range_over_httpfs_with_the_same_results(
    s3: S3Server, version_of_s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = s3.uri(f"parquet-tests/{uuid.uuid4().hex}")
    shop = Shop.create(open_objects(uri), version_of_s3, tmp_path / "cache")
    with shop.using() as repository:
        repository.compact(apply=True)
        commit(repository, [Customer(id="c1", name="Tail")])
    expected = shop.state()
    monkeypatch.setattr(remote, "WHOLE_FILE_BYTES", 0)
    monkeypatch.setattr(layers, "LARGE_ROWS", 0)  # small files are always fetched whole
    cold = Shop(shop.objects, shop.version, tmp_path / "cold")
    with shop.objects.counting() as count:
        assert cold.state() == expected
    assert count.count("get_range") == 0
    with cold.using() as repository:
        from ontologia.query.plan import Plan

        ref = Customer.__declaration__.ref
        text = repository.engine.explain(Plan(ref, {ref: repository.engine.catalog().layouts[ref].schema}))
    assert "s3://" in text


@pytest.fixture(params=VERSIONS)
def version_of_s3(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.s3
def test_a_file_that_httpfs_cannot_read_is_an_error_that_names_it(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = s3.uri(f"parquet-tests/{uuid.uuid4().hex}")
    shop = Shop.create(open_objects(uri), "v2", tmp_path / "cache")
    monkeypatch.setattr(remote, "WHOLE_FILE_BYTES", 0)
    key = next(info.key for info in shop.objects.list("commits/1-") if "Customer" in info.key)
    shop.objects.delete(key)
    cold = Shop(shop.objects, "v2", tmp_path / "cold")
    with cold.using() as repository, pytest.raises(StorageBackendError, match=key):
        repository.query_entities("Customer")


def test_secrets_are_quoted_for_the_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from ontologia.files.duck import Duck

    duck = Duck(OntologiaConfig().s3_duckdb_memory_limit)
    secret = {"KEY_ID": "a'b", "SECRET": "x'; DROP SECRET y; --", "REGION": "us-east-1"}
    duck.allow_s3("it's one", secret)
    duck.allow_s3("it's one", {**secret, "KEY_ID": "rotated"})
    with duck.cursor() as cursor:
        rows = cursor.execute("SELECT name, secret_string FROM duckdb_secrets()").fetchall()
    assert len(rows) == 1
    assert "rotated" in rows[0][1]
    duck.close()
