"""What others have written by mistake holds up no queue, and loses nothing of the rest."""

import sqlite3
import uuid

import pytest

from ontologia import Session, initialize_storage
from ontologia.objects import open_objects
from ontologia.runtime.events import object_paths as paths
from ontologia.runtime.events.object_store import OUTBOX
from support.events_shop import Product, StockLow


@pytest.fixture
def bucket():
    uri = f"memory://damage-{uuid.uuid4().hex}"
    initialize_storage(storage_uri=uri)
    return uri


@pytest.mark.parametrize("body", [b"", b"not JSON", b"[1]", b"{}", b'{"id": 7}'])
@pytest.mark.parametrize("part", ["event", "claim"])
def test_a_damaged_object_is_passed_over(bucket, note, seen, body, part, caplog):
    with Session(bucket, "shop") as session:
        bad, good = StockLow(sku="bad", priority=900), StockLow(sku="good")
        session.commit(event=[bad, good])
        handler_id = note.__on_event__.id
        key = paths.event(bad.to_record("shop")) if part == "event" else paths.claim("shop", bad.id, handler_id)
        open_objects(bucket).put(key, body)
        session.run([note], max_iterations=2)
    assert seen == ["good"]
    assert "passed over" in caplog.text


def test_a_damaged_row_fails_for_itself(tmp_path, note, seen):
    path = str(tmp_path / "onto.db")
    with Session(path, "shop") as session:
        session.commit(event=[StockLow(sku="bad", priority=900), StockLow(sku="good")])
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE events SET payload = 'not JSON' WHERE priority = 900")
        connection.close()
        session.run([note], max_iterations=1)
        (bad,) = session.events.events(status="retrying")
    assert seen == ["good"]
    assert "unreadable" in bad.claim.last_error


def test_a_users_note_by_the_name_of_the_outbox_stops_no_relay(bucket, note, seen):
    with Session(bucket, "shop") as session:
        for number, text in enumerate(["hello", "[7]", '"x"']):
            session.ensure(Product(sku="tea", left=number))
            session.commit(event=StockLow(sku="tea") if number == 0 else None, meta={OUTBOX: text} if number else None)
        session.run([note], max_iterations=1)
    assert seen == ["tea"]
