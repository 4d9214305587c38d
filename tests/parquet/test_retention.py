"""Files of commits whose rows a snapshot has can go: every question has the same answer afterwards."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from ontologia.engines.dispatch import open_objects_engine
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.care.check import check
from ontologia.errors import EngineVersionError, StorageBackendError
from ontologia.objects import open_objects
from ontologia.query.plan import Plan, Window
from support.parquet_shop import Bought, Customer, Rated, Shop, commit, latest, migrate

pytestmark = pytest.mark.thorough

CUSTOMER = Customer.__declaration__.ref


@pytest.fixture
def shop(version: str, tmp_path: Path) -> Shop:
    """A shop whose commits are compacted, and two commits after that."""
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/s"), version, tmp_path / "cache")
    shop.commit([Customer(id="c1", name="Alice", age=40), Rated(left_key="c1", right_key="p1", year="2026")])
    if version == "v2":
        session = shop.session()
        session.remove(Customer, "c2")
        session.commit()
    with shop.using() as repository:
        repository.compact(apply=True)
    shop.commit([Customer(id="c3", name="Carol")])
    shop.commit([Customer(id="c3", name="Caroline"), Bought(left_key="c3", right_key="p1")])
    return shop


def data_files(shop: Shop) -> set[str]:
    return {info.key for info in shop.objects.list("commits/") if info.key.endswith(".parquet")}


def size(shop: Shop) -> int:
    return sum(info.size for folder in ("commits/", "snapshots/") for info in shop.objects.list(folder))


def vacuum(shop: Shop, older_than_s: float = 0) -> list[str]:
    with shop.using() as repository:
        report = repository.vacuum(older_than_s, apply=True, compacted=True)
        assert repository.engine.warnings == []
    return [item.key for item in report.objects]


def test_files_of_commits_go_and_every_answer_stays(shop: Shop) -> None:
    before, files = shop.state(), data_files(shop)
    with shop.using() as repository:
        preview = [item.key for item in repository.vacuum(0, compacted=True).objects]
    assert data_files(shop) == files
    gone = vacuum(shop)
    assert sorted(gone) == sorted(preview)
    last = before["head"]
    kept = {int(key.split("/")[1].partition("-")[0]) for key in data_files(shop) if "Customer" in key}
    assert kept == {last - 1, last}
    assert shop.state() == before
    assert vacuum(shop) == []


def test_what_was_compacted_again_goes_with_the_next_run(shop: Shop) -> None:
    vacuum(shop)
    with shop.using() as repository:
        repository.compact(apply=True)
    shop.commit([Customer(id="c9", name="Nina")])
    before = shop.state()
    vacuum(shop)  # the old snapshot was named by the record until now
    vacuum(shop)
    snapshots = {info.key for info in shop.objects.list("snapshots/") if "Customer" in info.key}
    records = list(shop.objects.list(paths.COMPACTED))
    assert (len(snapshots), len(records), shop.state()) == (1, 1, before)


def test_an_index_that_is_lost_is_rebuilt_from_commits_and_snapshots(shop: Shop) -> None:
    before = shop.state()
    vacuum(shop)
    for info in list(shop.objects.list("meta/indices/")):
        shop.objects.delete(info.key)
    assert shop.state() == before
    with shop.using() as repository:
        repository.index_repair(apply=True)
        assert repository.index_verify().healthy
    shop.commit([Customer(id="c9", name="Nina")])
    assert shop.read(paths.index(CUSTOMER))["entries"][0]["path"].startswith("snapshots/")


def test_a_check_asks_for_no_file_that_a_snapshot_stands_for(shop: Shop) -> None:
    vacuum(shop)
    assert check(shop.objects).damages == []
    snapshot = next(info.key for info in shop.objects.list("snapshots/") if "Customer" in info.key)
    shop.objects.put(snapshot, shop.objects.get(snapshot).data[:-1] + b"x")
    (damage,) = check(shop.objects).damages
    assert "files of its commits were let go: restore a backup" in damage.effect


def test_a_snapshot_that_is_damaged_keeps_the_files_it_was_made_of(shop: Shop) -> None:
    snapshot = next(info.key for info in shop.objects.list("snapshots/") if "Customer" in info.key)
    shop.objects.put(snapshot, shop.objects.get(snapshot).data[:-1] + b"x")
    customers = {key for key in data_files(shop) if "Customer" in key}
    with shop.using() as repository:
        repository.vacuum(0, apply=True, compacted=True)
        assert "is damaged, so the files it was made of stay" in repository.engine.warnings[0]
    assert {key for key in data_files(shop) if "Customer" in key} == customers


def test_readers_that_began_without_the_snapshot_are_given_time(shop: Shop) -> None:
    files = data_files(shop)
    assert vacuum(shop, older_than_s=3600) == []
    assert (data_files(shop), "compacted_path" in shop.read(paths.HEAD)) == (files, False)


def test_a_store_whose_files_are_gone_is_refused_by_what_does_not_know_of_it(shop: Shop, version: str) -> None:
    vacuum(shop)
    stamp = shop.read(paths.ENGINE)["engine_version"]
    assert stamp.split("+")[0] == version
    assert "compacted" in stamp.split("+")
    shop.objects.put(paths.ENGINE, shop.objects.get(paths.ENGINE).data.replace(b"compacted", b"condensed"))
    with pytest.raises(EngineVersionError, match="this store uses condensed"):
        open_objects_engine(shop.objects)


def test_migrations_and_commits_go_on(shop: Shop) -> None:
    vacuum(shop)
    migrate(shop)
    with shop.using() as repository:
        assert repository.compact(apply=True).applied
        commit(repository, [Bought(left_key="c1", right_key="p1", amount=9)])
        assert latest(repository)["Customer"]["c3"]["email"] == "none"
    before = shop.state()
    vacuum(shop)
    assert shop.state() == before


def test_an_erasure_takes_the_record_along(shop: Shop) -> None:
    vacuum(shop)
    session = shop.session()
    preview = session.erase(Customer, "c1", reason="asked for", cascade=True)
    session.erase(Customer, "c1", reason="asked for", cascade=True, dry_run=False, token=preview.token)
    shop.close()
    for info in list(shop.objects.list("meta/indices/")):
        shop.objects.delete(info.key)
    with shop.using() as repository:
        assert "c1" not in latest(repository)["Customer"]
        assert "c3" in latest(repository)["Customer"]


# --- slow readers ---


@pytest.fixture
def uncompacted(version: str, tmp_path: Path) -> Shop:
    return Shop.create(open_objects((tmp_path / "store").as_uri()), version, tmp_path / "cache")


def compact_and_vacuum(shop: Shop, older_than_s: float) -> None:
    with shop.using() as repository:
        repository.compact(apply=True)
    vacuum(shop, older_than_s)


def read_slowly(shop: Shop, older_than_s: float) -> list[dict[str, Any]]:
    """All versions of customers, from files that were chosen before others compacted, and vacuumed with a guard."""
    with shop.using() as repository:
        engine = repository.engine
        schema = engine.catalog().layouts[CUSTOMER].schema
        plan = Plan(CUSTOMER, {CUSTOMER: schema}, Window("history"))
        shares = engine.shares(schema, plan.window, head=engine.catalog().head)
        compact_and_vacuum(shop, older_than_s)
        return [row for share in shares for table in engine.read_share(plan, share) for row in table.to_pylist()]


def test_a_slow_reader_finds_its_files_for_as_long_as_the_guard_says(uncompacted: Shop) -> None:
    expected = sorted(row["commit_id"] for row in read_slowly(uncompacted, 3600))
    assert expected == [1, 1, 2]


def test_a_reader_slower_than_the_guard_is_told_and_never_given_fewer_rows(uncompacted: Shop) -> None:
    with pytest.raises(StorageBackendError, match="Customer"):
        read_slowly(uncompacted, 0)
    assert len(read_slowly(uncompacted, 0)) == 3  # asked anew, it finds the snapshot


def test_a_copy_that_is_read_slowly_is_whole_or_an_error(uncompacted: Shop) -> None:
    for shop, older_than_s, is_whole in ((uncompacted.copy(), 3600.0, True), (uncompacted, 0.0, False)):
        with shop.using() as repository:
            (version,) = repository.engine.schema_versions(CUSTOMER)
            rows = repository.engine.history().rows(version, 0, 3)
            first = next(rows)
            compact_and_vacuum(shop, older_than_s)
            if is_whole:
                assert first.num_rows + sum(table.num_rows for table in rows) == 3
            else:
                with pytest.raises(StorageBackendError):
                    list(rows)
