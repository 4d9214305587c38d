"""Export and import in bounded memory, as Python has them: pages, staging, last words."""

import json

import pytest

from ontologia.query.plan import Window
from ontologia.runtime import pages as paging
from ontologia.runtime.pages import pages
from ontologia.runtime.transfer import Precondition, export_data, exporting, import_data, staging

ENGINES = ["sqlite-v1", "sqlite-v2", "s3-v1", "s3-v2"]


@pytest.fixture(params=ENGINES)
def store(request, filled, models):
    with filled(request.param).ontology(models) as ontology:
        yield ontology


def keys_of(table, ref):
    return list(zip(*(table.column(name).to_pylist() for name in ref.identity), strict=True))


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(
    "window", [Window("as_of", 2), Window("as_of", 1), Window("since", 0), Window("since", 1)], ids=str
)
@pytest.mark.parametrize("name", ["Customer", "Product", "Subscription"])
@pytest.mark.thorough
def test_pages_of_any_size_have_every_row_once_in_order_of_identity(store, models, name, window, size):
    schema = getattr(models, name).__declaration__.schema
    one = next(pages(store.engine, schema, window, 2), None)
    many = list(pages(store.engine, schema, window, 2, page_rows=size))
    expected = [] if one is None else keys_of(one, schema.ref)
    assert [key for table in many for key in keys_of(table, schema.ref)] == expected
    assert len(expected) == {
        ("Customer", "since"): 6 if window.commit == 0 else 1,
        ("Customer", "as_of"): 5,
    }.get((name, window.mode), 3 if window.mode == "as_of" or window.commit == 0 else 0)


def test_versions_of_one_identity_are_never_split_over_pages(store, models):
    for number in range(5):
        with store.session() as session:
            session.ensure(models.Product(sku=1, price=100.0 + number))
    schema = models.Product.__declaration__.schema
    found = [keys_of(table, schema.ref) for table in pages(store.engine, schema, Window("since", 0), 7, page_rows=2)]
    assert [keys.count(("1",)) for keys in found if ("1",) in keys] == [6]


def test_commits_made_during_an_export_stay_out_of_it(store, models, tmp_path, monkeypatch):
    plain = exporting.pages

    def interrupted(engine, schema, window, head, **more):
        for page in plain(engine, schema, window, head, page_rows=2, **more):
            yield page
            if schema.ref.name == "Customer" and engine.catalog().head == 2:
                with store.session() as session:
                    session.ensure(models.Customer(id="c9", name="Late"))

    monkeypatch.setattr(exporting, "pages", interrupted)
    report = export_data(store, tmp_path / "data")
    assert [item.rows for item in report.types] == [5, 3, 3]


@pytest.mark.parametrize("order", ["ascending", "descending", "interleaved"])
@pytest.mark.parametrize("name", ENGINES)
def test_the_last_word_on_an_identity_wins_in_any_order(initialized, models, tmp_path, monkeypatch, order, name):
    monkeypatch.setattr(staging, "ROWS_AT_ONCE", 10)
    numbers = [number for number in range(40) for _ in range(2)]
    if order == "descending":
        numbers.reverse()
    if order == "interleaved":
        numbers = numbers[::2] + numbers[1::2]
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        for price, number in enumerate(numbers):
            record = {
                "kind": "entity",
                "type": "Product",
                "key": str(number),
                "fields": {"sku": number, "price": price},
            }
            file.write(json.dumps(record) + "\n")
    with initialized(name).ontology(models) as store:
        report = import_data(store, path, dry_run=False)
        assert (report.types[0].inserted, report.types[0].repeated) == (40, 40)
        found = store.query().entities(models.Product).collect()
    last = {number: float(price) for price, number in enumerate(numbers)}
    assert {product.sku: product.price for product in found} == last


def test_a_commit_may_be_larger_than_the_batch_size_of_sessions(initialized, models, tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "ROWS_AT_ONCE", 4_000)
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        for number in range(10_001):
            fields = {"sku": number, "price": 1}
            file.write(json.dumps({"kind": "entity", "type": "Product", "key": str(number), "fields": fields}) + "\n")
    with initialized("sqlite-v2").ontology(models) as store:
        assert import_data(store, path, dry_run=False).commit_id == 1
        assert store.query().entities(models.Product).count() == 10_001


@pytest.mark.parametrize("name", ["s3-v1", "s3-v2"])
def test_an_import_that_loses_a_race_starts_again_and_lands_once(
    filled, initialized, models, tmp_path, monkeypatch, name
):
    from ontologia.engines.parquet.write.commit import HeadMovedError, ParquetTransaction

    plain, lost = ParquetTransaction.publish, []

    def publish(self, metadata):
        if not lost:
            lost.append(self.commit_id)
            raise HeadMovedError("somebody else was first")
        return plain(self, metadata)

    with filled("sqlite-v2", "source").ontology(models) as source:
        export_data(source, tmp_path / "data")
    monkeypatch.setattr(ParquetTransaction, "publish", publish)
    with initialized(name).ontology(models) as store:
        report = import_data(store, tmp_path / "data", dry_run=False)
        assert (lost, report.commit_id, [item.inserted for item in report.types]) == ([1], 1, [5, 3, 3])
        assert store.query().entities(models.Product).count() == 3


@pytest.mark.parametrize("name", ENGINES)
def test_wide_rows_come_in_smaller_pages(initialized, models, name, monkeypatch):
    monkeypatch.setattr(paging, "FIRST_PAGE_ROWS", 4)
    monkeypatch.setattr(paging, "PAGE_BYTES", 100_000)
    with initialized(name).ontology(models) as store:
        with store.session() as session:
            session.ensure(models.Customer(id=f"c{number:02}", name="x" * 50_000) for number in range(20))
        schema = models.Customer.__declaration__.schema
        sizes = [page.num_rows for page in pages(store.engine, schema, Window("as_of", 1), 1)]
    assert sum(sizes) == 20
    assert sizes[0] == 4
    assert max(sizes[1:]) <= 2


def test_progress_is_told(store, tmp_path):
    told = []
    export_data(store, tmp_path / "data", progress=lambda *step: told.append(step))
    assert told[-1] == ("Subscription", 11, 11)


def test_a_precondition_reads_as_it_is_written():
    assert Precondition.parse("must_exist").rule == "must_exist"
    assert Precondition.parse("if_commit_id:7").commit_id == 7
    with pytest.raises(ValueError, match="if_commit_id:N"):
        Precondition.parse("if_commit_id:-7")


def test_both_as_of_and_history_are_refused(store, tmp_path):
    from ontologia import ValidationError

    with pytest.raises(ValidationError, match="not both"):
        export_data(store, tmp_path / "data", as_of=1, history_since=1)
