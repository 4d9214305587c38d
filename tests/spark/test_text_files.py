"""CSV and JSON files: what they say is what is loaded, or they are refused by name."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from ontologia import Entity, Field, Ontology, ValidationError
from ontologia.runtime.loading.named_sources import are_few_bytes
from ontologia.spark import Pipeline, text_files
from ontologia.spark.sources import opened
from support.spark_shop import new_store


def rows(frame):
    return sorted(tuple(row) for row in frame.collect())


def test_a_line_break_inside_quotes_is_of_the_value(spark, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text('id,name\n1,"first line\nsecond, ""line"""\n2,"x"\n')
    assert rows(opened(spark, file)) == [("1", 'first line\nsecond, "line"'), ("2", "x")]


def test_quotes_that_parsers_would_guess_at_are_refused(spark, tmp_path, monkeypatch):
    file = tmp_path / "a.csv"
    file.write_text('id,name\n1,a\n2,"b\n3,c\n')
    with pytest.raises(ValidationError, match=r"a.csv: a quote that is opened in line 3 is never closed"):
        opened(spark, file)
    with monkeypatch.context() as patch:
        patch.setattr(text_files, "FEW_BYTES", -1)
        with pytest.raises(ValidationError, match=r"a.csv has an odd number of quotes"):
            opened(spark, file)
    file.write_text('id,name\n1,"a"b\n')
    with pytest.raises(ValidationError, match="continues after its closing quote"):
        opened(spark, file)
    with monkeypatch.context() as patch:
        patch.setattr(text_files, "FEW_BYTES", -1)
        with pytest.raises(Exception, match=r"(?i)malformed|parsing"):
            opened(spark, file).collect()
    file.write_text('id,name\n1,5" pipe\n')
    assert rows(opened(spark, file)) == [("1", '5" pipe')]


def test_files_may_have_their_columns_in_any_order_and_nothing_in_some_of_them(spark, tmp_path):
    (tmp_path / "a b#1.csv").write_text("id,name\n1,alice\n")
    (tmp_path / "b.csv").write_text("name,id\nbob,2\n")
    (tmp_path / "c.csv").write_text("")
    (tmp_path / "d.csv").write_text("id,name\n")
    frame = opened(spark, str(tmp_path / "*.csv"))
    assert (frame.columns, rows(frame)) == (["id", "name"], [("1", "alice"), ("2", "bob")])
    assert rows(opened(spark, tmp_path, format="csv")) == [("1", "alice"), ("2", "bob")]


def test_files_with_other_columns_are_refused_by_name(spark, tmp_path):
    (tmp_path / "a.csv").write_text("id,name\n1,alice\n")
    (tmp_path / "b.csv").write_text("id,nome\n2,bob\n")
    with pytest.raises(ValidationError, match=r"a.csv has the columns id, name, and b.csv has id, nome: load them one"):
        opened(spark, tmp_path, format="csv")


def test_a_column_that_is_there_twice_is_refused_by_name(spark, tmp_path):
    (tmp_path / "a.csv").write_text("id,name,Name\n1,a,b\n")
    with pytest.raises(ValidationError, match=r"a.csv has the column 'name' more than once"):
        opened(spark, tmp_path / "a.csv")


def test_bytes_that_are_not_utf8_stay_what_they_are_in_their_row_alone(spark, tmp_path):
    text = '\ufeffid,näme\nMüller,"grün\nblau"\n'.encode() + "Möller,x\n".encode("latin-1") + "é,\ufffd\n".encode()
    (tmp_path / "a.csv").write_bytes(text)
    frame = opened(spark, tmp_path / "a.csv")
    found = sorted(bytes(row[0]) for row in frame.selectExpr("cast(id AS binary)").collect())
    assert frame.columns == ["id", "näme"]
    assert found == [b"M\xc3\xbcller", b"M\xf6ller", b"\xc3\xa9"]
    assert frame.where("not is_valid_utf8(id)").count() == 1
    assert frame.where("`näme` = 'grün\nblau' or `näme` = '\ufffd'").count() == 2
    latin = opened(spark, tmp_path / "a.csv", options={"encoding": "ISO-8859-1", "header": "false"})
    assert latin.where("_c0 = 'Möller'").count() == 1


def test_a_header_that_is_not_utf8_is_refused_unless_its_encoding_is_said(spark, tmp_path):
    (tmp_path / "a.csv").write_bytes("id,größe\n1,2\n".encode("latin-1"))
    with pytest.raises(ValidationError, match=r"the first line of a.csv is not UTF-8: say its encoding"):
        opened(spark, tmp_path / "a.csv")
    assert opened(spark, tmp_path / "a.csv", options={"encoding": "ISO-8859-1"}).columns == ["id", "größe"]


def test_endings_ignore_case_and_packed_files_are_looked_at_too(spark, tmp_path):
    (tmp_path / "A.TSV").write_text("id\tname\n1\ta,b\n")
    (tmp_path / "B.CSV").write_text("id,name\n1,a\n")
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(b'id,name\n1,"a\nb"\n'))
    assert rows(opened(spark, tmp_path / "A.TSV")) == [("1", "a,b")]
    assert rows(opened(spark, tmp_path / "B.CSV")) == [("1", "a")]
    assert rows(opened(spark, tmp_path / "c.csv.gz", format="csv")) == [("1", "a\nb")]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(spark, tmp_path):
    (tmp_path / "a[1]{x}*.csv").write_text("id\n1\n")
    (tmp_path / "a1x.csv").write_text("id\n2\n")
    assert rows(opened(spark, tmp_path / "a[1]{x}*.csv")) == [("1",)]


def test_json_that_cannot_be_read_is_refused(spark, tmp_path):
    (tmp_path / "a.json").write_bytes('{"id": "Müller"}\n'.encode("latin-1"))
    with pytest.raises(ValidationError, match=r"a.json has bytes that are not UTF-8: say its encoding"):
        opened(spark, tmp_path / "a.json")
    (tmp_path / "b.json").write_text('{"id": "a"}\n{"id": \n')
    with pytest.raises(Exception, match=r"b\.json"):
        opened(spark, tmp_path / "b.json")


def test_several_values_in_a_line_are_refused(spark, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n\n{"id": 2} {"id": 3}\n')
    with pytest.raises(ValidationError, match=r"a.jsonl, line 3: has more than one value"):
        opened(spark, tmp_path / "a.jsonl")


def test_a_few_files_of_this_machine_are_seen_as_a_job_of_spark_sees_them(spark, tmp_path, monkeypatch):
    contents = {
        "a b#1%20ü.csv": b'id,name\r\n1,"a\r\nb"\r\n',
        "b.CSV": b"id,name\n1,M\xf6ller\n",
        "c.csv": b"",
        "d.csv": b"\n\nid\n",
        "e.csv": b"\xef\xbb\xbfid,n\xc3\xa4me",
        "f.csv": b'id\n"a""b"\n"\xed\xa0\x80"\n',
        "_g.csv": b"hidden\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    given = [{}, {"quote": ""}, {"quote": "'", "pathGlobFilter": "*.csv"}, {"multiLine": "true"}]

    def looks():
        options = [text_files._Options(one) for one in given]
        found = [look for one in options for look in text_files._look_at(spark, f"file:{tmp_path}", one)]
        return [replace(look, path=path) for look, path in zip(found, text_files._paths(found), strict=True)]

    here = looks()
    monkeypatch.setattr(text_files, "FEW_BYTES", -1)
    monkeypatch.setattr(text_files, "_look", lambda *_: pytest.fail("the files were looked at here"))
    assert here == looks()


def test_only_files_of_this_machine_are_known_to_be_few_bytes(tmp_path):
    few, many = tmp_path / "few.csv", tmp_path / "many.csv"
    few.write_text("id\n")
    with many.open("wb") as file:
        file.truncate(text_files.FEW_BYTES)
    sources = [[few], [many], [few, many], [tmp_path], ["s3://bucket/few.csv"], ["jdbc:sqlite:few.db"]]
    assert [are_few_bytes(map(str, one)) for one in sources] == [True, True, False, False, False, False]


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    city: Field[str | None] = None
    any: Field[Any] = None
    words: Field[dict[str, list[int]]] = Field(default_factory=dict)


def test_nested_json_is_stored_as_it_is_and_can_be_taken_apart(spark, tmp_path):
    """Spark would give every object the fields that any of them has."""
    file = tmp_path / "things.jsonl"
    rows = [
        {"id": "a", "any": {"a": 1}, "words": {"x": [1]}, "place": {"city": "Rome"}},
        {"id": "b", "any": {"b": {}}, "words": {}, "place": {"city": "Oslo", "lat": 59.9}},
        {"id": "c", "any": {"c": [{}, {"d": None}]}, "place": None},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    uri = new_store((tmp_path / "store").as_uri())
    Pipeline(spark, uri).load(file, into=Thing, map={"city": "place.city"}).commit()
    with Ontology(storage_uri=uri, entity_types=[Thing]) as onto:
        found = {row.id: (row.city, row.any, row.words) for row in onto.query().entities(Thing).collect()}
    assert found == {
        "a": ("Rome", {"a": 1}, {"x": [1]}),
        "b": ("Oslo", {"b": {}}, {}),
        "c": (None, {"c": [{}, {"d": None}]}, {}),
    }
    other = new_store((tmp_path / "other").as_uri())
    Pipeline(spark, other).load(file, into=Thing, map={"any": "place", "city": "place.city"}).commit()
    with Ontology(storage_uri=other, entity_types=[Thing]) as onto:
        assert onto.query().entities(Thing).where(Thing.id == "b").first().city == "Oslo"
