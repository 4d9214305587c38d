"""Small files are merged by themselves: what is due, what stays, and that nothing fails for it."""

from __future__ import annotations

import json
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from ontologia import OntologiaConfig
from ontologia.cli.diagnostics import describe_diagnostic
from ontologia.engines.parquet.care import automatic, compaction
from ontologia.engines.parquet.log.records import IndexEntry
from ontologia.engines.parquet.read import layers
from ontologia.errors import StorageBackendError
from ontologia.objects import open_objects
from ontologia.runtime.transfer import import_data
from support.parquet_shop import Customer, Shop, commit, state

REF = Customer.__declaration__.ref
SETTINGS = {"compact_after_commits": 4}


@pytest.fixture
def shop(version: str, tmp_path: Path) -> Any:
    shop = Shop.create(open_objects(f"memory://{uuid.uuid4().hex}/s"), version, tmp_path / "cache", filled=False)
    yield shop
    shop.close()


def load(shop: Shop, folder: Path, keys: list[str], **settings: Any) -> list[str]:
    """Import customers; the warnings of it."""
    folder.mkdir(exist_ok=True)
    file = folder / "rows.jsonl"
    rows = [{"kind": "entity", "type": "Customer", "key": key, "fields": _fields(key)} for key in keys]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    repository = shop.repository(**SETTINGS | settings)
    session = shop.session(Customer, repository=repository)
    import_data(session, file, dry_run=False, on_conflict="upsert")
    return list(repository.engine.warnings)  # type: ignore[attr-defined]


def _fields(key: str) -> dict[str, Any]:
    return {"id": key, "name": "loaded", "tier": None, "age": 1, "tags": []}


def entries(shop: Shop) -> list[tuple[int, int, bool]]:
    with shop.using() as repository:
        index = repository.engine.log.index(REF).index  # type: ignore[attr-defined]
    found = sorted(index.entries, key=lambda entry: entry.min_commit_id)
    return [(entry.min_commit_id, entry.max_commit_id, entry.is_snapshot) for entry in found]


def test_a_load_merges_the_small_files_before_it(shop: Shop, tmp_path: Path) -> None:
    for number in range(3):
        shop.commit([Customer(id=f"c{number % 2}", name=f"n{number}")])

    load(shop, tmp_path / "in", ["c9"])

    assert entries(shop) == [(1, 4, True)]


def test_a_large_file_is_left_where_it_is(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "LARGE_ROWS", 10)
    monkeypatch.setattr(automatic, "QUICK_ROWS", 10)
    shop.commit([Customer(id=f"c{number:02d}", name="base") for number in range(20)])
    for number in range(3):
        shop.commit([Customer(id=f"c{number:02d}", name=f"n{number}")])
    before = shop.state()

    load(shop, tmp_path / "in", ["c00"])

    assert entries(shop) == [(1, 1, False), (2, 5, True)]
    with shop.using() as repository:
        after = state(repository)
        query = shop.session(Customer, repository=repository).query().entities(Customer)
        assert [row.name for row in query.limit(4).collect()] == ["loaded", "n1", "n2", "base"]
        assert query.count() == 20
        assert [row.name for row in query.as_of(4).limit(2).collect()] == ["n0", "n1"]
        assert query.with_history().count() == 24
    assert before != after


def test_few_files_are_left_alone(shop: Shop, tmp_path: Path) -> None:
    shop.commit([Customer(id="c1", name="one")])
    load(shop, tmp_path / "in", ["c9"])
    assert entries(shop) == [(1, 1, False), (2, 2, False)]


def test_nothing_is_merged_where_the_settings_say_never(shop: Shop, tmp_path: Path) -> None:
    for number in range(6):
        shop.commit([Customer(id="c1", name=f"n{number}")])
    load(shop, tmp_path / "in", ["c9"], auto_compact="never")
    assert len(entries(shop)) == 7


def test_sessions_merge_beside_their_commits_where_the_settings_say_so(shop: Shop) -> None:
    repository = shop.repository(**SETTINGS, auto_compact="commits", s3_lock_timeout_ms=20_000)
    for number in range(9):
        commit(repository, [Customer(id="c1", name=f"n{number}")])
    session = shop.session(Customer, repository=repository)
    for number in range(9):
        session.ensure(Customer(id="c1", name=f"m{number}"))
        session.commit()
    repository.close()

    assert len(entries(shop)) < 12
    assert shop.session(Customer).query().entities(Customer).collect()[0].name == "m8"


def test_a_commit_that_comes_while_files_are_merged_waits_for_it_and_does_not_give_up(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge, began, may_end = compaction.merge, threading.Event(), threading.Event()

    def merge_slowly(*how: Any) -> Any:
        began.set()
        may_end.wait(10)
        return merge(*how)

    monkeypatch.setattr(compaction, "merge", merge_slowly)
    repository = shop.repository(**SETTINGS, s3_lock_timeout_ms=1)
    session = shop.session(Customer, repository=repository)
    for number in range(4):
        session.ensure(Customer(id="c1", name=f"n{number}"))
        session.commit()
    assert began.wait(10)
    session.ensure(Customer(id="c1", name="last"))
    threading.Timer(0.05, may_end.set).start()

    assert session.commit() == 5
    assert entries(shop) == [(1, 4, True), (5, 5, False)]


def test_a_load_is_done_though_its_files_could_not_be_merged(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise StorageBackendError("no room")

    monkeypatch.setattr(compaction, "merge", fail)
    for number in range(6):
        shop.commit([Customer(id="c1", name=f"n{number}")])

    warnings = load(shop, tmp_path / "in", ["c9"])

    assert warnings == ["small files were not merged this time: no room"]
    assert shop.session(Customer).query().entities(Customer).count() == 2


def test_an_answer_says_when_compaction_is_overdue(shop: Shop) -> None:
    for number in range(9):
        shop.commit([Customer(id="c1", name=f"n{number}")])
    found = shop.session(Customer, **SETTINGS).query().entities(Customer).collect().diagnostics
    assert found == [{"reason": "compaction_overdue", "type": "entity Customer", "files": 9}]
    assert "onto compact" in describe_diagnostic(found[0])


def test_bytes_count_as_much_as_commits() -> None:
    small = [IndexEntry(n, n, f"commits/{n}-a/x", size=3 << 20, row_count=10) for n in range(1, 13)]
    assert not automatic.due(small[:10], OntologiaConfig())
    assert automatic.due(small, OntologiaConfig()) == small


def test_files_are_merged_with_others_of_their_size() -> None:
    def entries(*rows: int) -> list[IndexEntry]:
        return [IndexEntry(n, n, f"commits/{n}-a/x", size=100, row_count=count) for n, count in enumerate(rows, 1)]

    settings = OntologiaConfig(compact_after_commits=3)
    for rows, merged in [
        ((1, 1), 0),
        ((1, 1, 1), 3),
        ((13, 1, 1, 1), 3),
        ((12, 1, 1, 1), 4),
        ((1_000_000, 100, 10, 10, 10), 4),
        ((600_000, 400_000, 100_000, 1), 0),
        ((600_000, 400_000, 100_000, 99_999, 1_000, 999), 0),
        ((300_000, 300_000, 300_000, 300_000), 3),
    ]:
        found = entries(*rows)
        assert list(automatic.due(found, settings)) == found[len(rows) - merged :], rows


def test_a_store_that_was_never_merged_is_merged_in_steps() -> None:
    small = [IndexEntry(n, n, f"commits/{n}-a/x", size=100, row_count=1) for n in range(1, 2_501)]
    assert automatic.due(small, OntologiaConfig()) == small[: automatic.QUICK_FILES]


def test_a_commit_that_makes_nothing_due_asks_for_nothing_more(shop: Shop) -> None:
    counts = []
    for wanted in ("never", "commits"):
        with shop.using(auto_compact=wanted) as repository:
            commit(repository, [Customer(id="c1", name=f"warm {wanted}")])
            with shop.objects.counting() as requests:
                commit(repository, [Customer(id="c1", name=wanted)])
            counts.append(requests.total)
    assert counts[0] == counts[1]


def test_a_wrong_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="auto_compact is loads or commits or never"):
        OntologiaConfig(auto_compact="sometimes")  # type: ignore[arg-type]
