"""Files that can be read and not written, such as an archive on read-only media."""

import os
from pathlib import Path

import pytest

from ontologia import Entity, Field, Ontology, StorageBackendError


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)


def test_a_file_that_nobody_can_write_to_is_read_and_not_written(tmp_path, monkeypatch):
    path = tmp_path / "archive" / "onto.db"
    path.parent.mkdir()
    with Ontology(path, entity_types=[Thing]) as onto, onto.session() as session:
        session.ensure(Thing(id="c1"))
    writable = os.access
    archived = {path, path.parent}  # root may write everywhere, so that the mode of a file would prove nothing
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place) not in archived and writable(place, mode))
    before = {item.name: item.read_bytes() for item in path.parent.iterdir()}
    with Ontology(path, entity_types=[Thing]) as onto:
        assert onto.query().entities(Thing).first().id == "c1"
        with pytest.raises(StorageBackendError, match="read-only; nothing was written"), onto.session() as session:
            session.ensure(Thing(id="c2"))
    assert {item.name: item.read_bytes() for item in path.parent.iterdir()} == before
