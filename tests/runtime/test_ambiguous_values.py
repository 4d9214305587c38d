"""What JSON cannot tell apart is refused before it is written, not changed on the way."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from ontologia import Entity, Field, Session, ValidationError


class Note(Entity):
    id: Field[str] = Field(primary_key=True)
    anything: Field[Any] = None
    when: Field[str | date] = ""


@pytest.fixture
def session(tmp_path):
    with Session(tmp_path / "onto.db", entity_types=[Note]) as opened:
        yield opened


@pytest.mark.parametrize(
    "note",
    [
        {"anything": float("nan")},
        {"anything": b"raw"},
        {"anything": [1, {"at": date(2026, 1, 2)}]},
        {"anything": {1: "a number as a key"}},
        {"when": date(2026, 1, 2)},
    ],
)
def test_a_value_that_would_be_read_back_as_another_is_refused(session, note):
    session.ensure(Note(id="n1", **note))
    with pytest.raises(ValidationError, match=r"entity Note\.(anything|when): .* would be read back as"):
        session.commit()
    session.discard()
    assert session.query().entities(Note).collect() == []


@pytest.mark.parametrize(
    "note",
    [{"anything": {"a": [1, 2.5, None, True, "x"]}}, {"anything": 3}, {"when": "2026-01-02"}, {"when": "later"}],
)
def test_a_value_that_json_can_say_is_read_back_as_it_was(session, note):
    session.ensure(Note(id="n1", **note))
    session.commit()
    assert session.query().entities(Note).collect() == [Note(id="n1", **note)]
