"""Event classes: names, validation, the envelope, and what is refused."""

from datetime import UTC, date, datetime

import pydantic
import pytest

from ontologia import Event, EventDeadLetter, Field, Session, ValidationError
from ontologia.runtime.events.types import type_name
from support.events_shop import OrderPlaced, StockLow


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("UserCreated", "user.created"),
        ("Synced", "synced"),
        ("HTTPServerDown", "http.server.down"),
        ("OrderV2Placed", "order.v2.placed"),
        ("stock_low", "stock.low"),
    ],
)
def test_a_class_is_stored_under_its_name_in_dotted_lower_case(name, expected):
    assert type_name(name) == expected


def test_a_name_of_its_own_wins_and_is_not_inherited():
    class Base(Event):
        __event_type_name__ = "shop/base"

    class Derived(Base):
        pass

    assert (Base.__event_type_name__, Derived.__event_type_name__) == ("shop/base", "derived")
    assert EventDeadLetter.__event_type_name__ == "event.dead_letter"


def test_construction_validates():
    with pytest.raises(pydantic.ValidationError, match="left"):
        StockLow(sku="tea", left="many")
    with pytest.raises(pydantic.ValidationError, match="colour"):
        StockLow(sku="tea", colour="green")


def test_an_event_has_an_envelope():
    event = StockLow(sku="tea", priority=7)
    assert (event.priority, event.root_event_id, event.chain_depth) == (7, event.id, 0)
    assert event.created_at.tzinfo is UTC


def test_events_are_equal_by_payload_and_read_well():
    assert StockLow(sku="tea") == StockLow(sku="tea", priority=7)
    assert StockLow(sku="tea") != OrderPlaced(sku="tea")
    assert repr(StockLow(sku="tea", left=2)) == "StockLow(sku='tea', left=2)"
    assert StockLow.model_validate({"sku": "tea"}).model_dump() == {"sku": "tea", "left": 0}


def test_every_kind_of_value_comes_back():
    class Everything(Event):
        when: Field[datetime]
        day: Field[date]
        raw: Field[bytes]
        tags: Field[list[str]]
        more: Field[dict[str, int]]
        maybe: Field[float | None] = None

    event = Everything(
        when=datetime(2026, 3, 29, 1, 30, tzinfo=UTC), day=date(2026, 2, 28), raw=b"\x00\xff", tags=["a"], more={"b": 1}
    )
    again = Everything.from_record(event.to_record("shop"))
    assert again == event
    assert again.envelope == event.envelope


@pytest.mark.parametrize("field", ["id", "created_at", "priority", "root_event_id", "chain_depth"])
def test_the_names_of_the_envelope_are_taken(field):
    with pytest.raises(TypeError, match=f"Mine.{field}"):
        type("Mine", (Event,), {"__annotations__": {field: str}, "__module__": __name__})


@pytest.mark.parametrize("name", ["", "  ", "a\nb", 7])
def test_an_event_class_without_a_name_is_refused(name):
    with pytest.raises(TypeError, match="cannot be the name of an event"):
        type("Nameless", (Event,), {"__event_type_name__": name, "__module__": __name__})


def test_a_class_whose_name_has_no_letters_needs_one_of_its_own():
    with pytest.raises(TypeError, match="__event_type_name__"):
        type("_", (Event,), {"__module__": __name__})


def test_keys_are_refused():
    with pytest.raises(TypeError, match=r"Mine.sku.*no keys"):
        type(
            "Mine", (Event,), {"__annotations__": {"sku": str}, "sku": Field(primary_key=True), "__module__": __name__}
        )


@pytest.mark.parametrize("priority", ["high", 1.5, True, 10**12])
def test_a_priority_is_a_whole_number(priority):
    with pytest.raises(ValueError, match="priority"):
        StockLow(sku="tea", priority=priority)


def test_the_base_class_is_no_event():
    with pytest.raises(TypeError, match="subclassed"):
        Event()


@pytest.mark.parametrize("namespace", ["", " ", "a/b", "a\\b", "..", "a\nb", "x" * 101, 7])
def test_a_namespace_that_cannot_be_one_is_refused_before_anything_is_opened(namespace, tmp_path):
    with pytest.raises(ValidationError, match="cannot be a namespace"):
        Session(str(tmp_path / "onto.db"), namespace)
    assert not list(tmp_path.iterdir())


def test_an_event_is_not_ensured(tmp_path):
    with Session(str(tmp_path / "onto.db")) as session, pytest.raises(TypeError, match=r"commit\(event="):
        session.ensure(StockLow(sku="tea"))


@pytest.mark.parametrize("wrong", ["StockLow", StockLow, [1]])
def test_only_events_are_sent(tmp_path, wrong):
    with Session(str(tmp_path / "onto.db")) as session, pytest.raises(TypeError, match="takes an event"):
        session.commit(event=wrong)
