"""Objects are made of some rows at a time: columns of Python values take as much memory as the objects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ontologia import Entity, Field, Ontology, Relation, initialize_storage
from ontologia.engines import duck
from ontologia.engines.parquet.read import answering as parquet
from ontologia.engines.sqlite import engine as sqlite
from ontologia.model.values import json_decoder
from ontologia.query import results
from ontologia.query.results import Hydrator


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int] = 0
    tags: Field[list[str]] = Field(default_factory=list)


class Joins(Relation[Thing, Thing]):
    weight: Field[int] = 0


@pytest.mark.parametrize("engine", ["sqlite/v1", "sqlite/v2", "s3/v1", "s3/v2"])
def test_no_more_rows_than_a_part_are_columns_at_once(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (duck, parquet, sqlite):
        monkeypatch.setattr(module, "PART_ROWS", 3)
    parts: list[int] = []
    original = Hydrator.objects

    def counted(self: Hydrator[Any], columns: Sequence[Sequence[Any]], **options: Any) -> list[Any]:
        parts.append(len(columns[0]))
        return original(self, columns, **options)

    kind, _, version = engine.partition("/")
    where = str(tmp_path / "x.db") if kind == "sqlite" else (tmp_path / "store").as_uri()
    initialize_storage(where, engine_version=version)
    place = {"db_path": where} if kind == "sqlite" else {"storage_uri": where}
    things = [Thing(id=f"t{number:02d}", size=number, tags=[f"g{number % 2}"]) for number in range(10)]
    with Ontology(entity_types=[Thing], relation_types=[Joins], **place) as onto:  # type: ignore[arg-type]
        with onto.session() as session:
            session.ensure(things)
            session.ensure(Joins(left_key=f"t{number:02d}", right_key="t00", weight=number) for number in range(10))
        entities, relations = onto.query().entities(Thing), onto.query().relations(Joins)
        monkeypatch.setattr(Hydrator, "objects", counted)

        assert entities.collect() == things
        assert [thing.size for thing in entities.where(Thing.size > 3).collect()] == [4, 5, 6, 7, 8, 9]
        assert entities.where(Thing.size > 99).collect() == []
        assert max(parts) == 3
        assert [(one.left.id, one.weight) for one in relations.collect()] == [(f"t{n:02d}", n) for n in range(10)]


def test_json_is_read_as_python_reads_it_however_deep_and_with_its_keys_shared() -> None:
    decode = json_decoder()
    deep = "[" * 500 + "]" * 500
    for text in (deep, '{"a": [1, 2.5, null, true, "\\u0000", -0.0]}', "123456789012345678901234567890"):
        assert repr(decode(text)) == repr(json.loads(text))
    one, other = decode('{"street": 1}'), decode('{"street": 2}')
    assert next(iter(one)) is next(iter(other))


def test_the_collector_is_left_alone_by_whoever_finds_it_resting(monkeypatch):
    """Another thread stopped it, and may start it again before this one would have stopped it, for good."""
    stopped = []
    monkeypatch.setattr(results.gc, "isenabled", lambda: False)
    monkeypatch.setattr(results.gc, "disable", lambda: stopped.append(True))
    assert results.make_at_once(len, [1, 2]) == 2
    assert stopped == []
