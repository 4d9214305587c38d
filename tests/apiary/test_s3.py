"""Frames on a real S3 server: the whole story once, the cell cache, and addresses as the seed writes them."""

import json
import uuid
from urllib.parse import urlsplit

import pytest

from ontologia.apiary import Apiary
from ontologia.config import OntologiaConfig
from ontologia.errors import StorageBackendError, ValidationError
from ontologia.objects import open_objects
from support.frames import NAME, apiary, ids, readings, sensors


@pytest.mark.s3
def test_the_whole_story_on_s3(s3, tmp_path):
    uri = s3.uri(f"frames-tests/{uuid.uuid4().hex}")
    with apiary(uri, tmp_path / "c") as ap, apiary(uri, tmp_path / "c2") as other:
        frame = sensors(ap)
        frame.write(readings(("north", 38.5, 1), ("a/b ü", 2.0, 2)))
        other.frame(NAME).write(readings(("north", 42.1, 3)))
        assert ids(frame.read()) == [1, 2, 3]
        frame.compact(force=True)
        frame.delete({"id": 2})
        frame.merge(readings(("north", 1.0, 1), ("west", 4.0, 4)), on=["id"])
        assert ids(other.frame(NAME).read()) == [1, 3, 4]
        assert ids(frame.read(version=1)) == [1, 2]
        assert ap.query(f"SELECT count(*) AS n FROM {NAME} WHERE temp > 40").to_pylist() == [{"n": 1}]
        assert ids(frame.to_polars().collect().to_arrow()) == [1, 3, 4]
        assert {node["state"] for node in ap.swarm_status()["nodes"]} == {"alive"}
    with apiary(uri, tmp_path / "c3") as ap:
        assert len(ap.frame(NAME).vacuum(older_than=0).keys) == 4
        assert ids(ap.frame(NAME).read()) == [1, 3, 4]


@pytest.mark.s3
def test_cells_that_were_read_are_cached_and_reported(s3, tmp_path):
    uri = s3.uri(f"frames-tests/{uuid.uuid4().hex}")
    with apiary(uri, tmp_path / "c") as ap:
        frame = sensors(ap)
        frame.write(readings(("north", 1.0, 1)))
        frame.read()
        with ap.node.objects.counting() as count:
            frame.read()
        assert count.count("get_range") == 0
        ap._pulse.beat()
        body = json.loads(open_objects(uri).get(f"_heartbeats/node_{ap.node.node_id}.json").data)
        (key,) = body["cache"]["cached_cells"]
        assert key.startswith("analytics/sensors/temperature/region=north/cell_")
        assert body["cache"]["size_bytes"] > 0


@pytest.mark.s3
def test_a_node_that_ran_nothing_but_sql_reports_its_cached_cells(s3, tmp_path):
    uri = s3.uri(f"frames-tests/{uuid.uuid4().hex}")
    with apiary(uri, tmp_path / "writer") as ap:
        sensors(ap).write(readings(("north", 1.0, 1), ("south", 1.0, 2)))
    with apiary(uri, tmp_path / "c") as node:
        node.query(f"SELECT sum(id) FROM {NAME} WHERE region = 'north'")
        (key,) = node.node.cached_cells()
        assert "region=north/cell_" in key


@pytest.mark.s3
def test_explain_gives_cells_to_the_node_that_has_them_cached(s3, tmp_path):
    uri = s3.uri(f"frames-tests/{uuid.uuid4().hex}")
    with apiary(uri, tmp_path / "one") as one, apiary(uri, tmp_path / "two") as two:
        frame = sensors(one)
        frame.write(readings(("north", 1.0, 1), ("south", 2.0, 2)))
        two.frame(NAME).read(filter={"region": "north"})
        two._pulse.beat()
        rows = one.query(f"EXPLAIN SELECT * FROM {NAME} WHERE region = 'north'").to_pylist()
        facts = {row["property"]: row["value"] for row in rows}
        assert facts[f"assigned_to_{two.node.node_id}"] == "1 cells, 1 of them cached"
        assert f"assigned_to_{one.node.node_id}" not in facts


@pytest.mark.s3
def test_a_bucket_is_opened_by_the_addresses_of_the_seed(s3, tmp_path, monkeypatch):
    prefix = uuid.uuid4().hex
    uri = s3.uri(f"frames-tests/{prefix}")
    with apiary(uri, tmp_path / "c") as ap:
        ap.create_hive("analytics")
    endpoint = urlsplit(s3.endpoint_url)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    for address in (
        f"s3://frames-tests@{endpoint.netloc}/{prefix}",
        f"s3://frames-tests/{prefix}?region=us-east-1&endpoint={s3.endpoint_url}",
    ):
        config = OntologiaConfig(cache_directory=str(tmp_path / "c"))
        with Apiary("test", address, config=config, read_only=True) as ap:
            assert ap.list_hives() == ["analytics"]


@pytest.mark.parametrize("form", ["{path}", "local://{path}", "file://{path}"])
def test_a_directory_is_opened_by_a_path_or_a_local_address(tmp_path, form):
    with Apiary("test", form.format(path=tmp_path / "data")) as ap:
        ap.create_hive("analytics")
    assert (tmp_path / "data/_registry/state_000002.json").exists()


def test_without_an_address_data_lies_in_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with Apiary("production") as ap:
        ap.create_hive("analytics")
    assert (tmp_path / ".apiary/data/_registry/state_000002.json").exists()


@pytest.mark.parametrize(
    "address",
    [
        "ftp://x",
        "s3://",
        "s3://a@b@c/x",
        "s3://bucket/x?colour=red",
        "s3://bucket/x?region=",
        "local://",
        "s3://b@h:1/x?endpoint=http://y",
        "file://host/x",
    ],
)
def test_an_address_that_means_nothing_is_refused(address):
    with pytest.raises(ValidationError):
        Apiary("test", address).start()


@pytest.mark.s3
def test_filters_and_sql_cannot_read_another_object_of_the_bucket(s3, tmp_path, monkeypatch):
    monkeypatch.setattr("ontologia.files.reading.WHOLE_FILE_BYTES", 0)  # cells are read by range, with credentials
    base = s3.uri(f"frames-tests/{uuid.uuid4().hex}")
    with apiary(f"{base}/other", tmp_path / "c") as other:
        sensors(other).write(readings(("north", 38.5, 1)))
        (cell,) = other.frame(NAME)._snapshot().cells
        secret = other.node.objects.url(f"analytics/sensors/temperature/{cell.path}")
    with apiary(f"{base}/mine", tmp_path / "c2") as ap:
        frame = sensors(ap)
        frame.write(readings(("north", 38.5, 7), ("south", 1.0, 8)))
        assert ids(frame.read(filter="lower(region) = 'north'")) == [7]
        for text in (f"EXISTS(SUMMARIZE '{secret}')", f"EXISTS(FROM '{secret}')"):
            with pytest.raises(ValidationError):
                frame.read(filter=text)
        with pytest.raises(StorageBackendError, match="disabled by configuration"):
            ap.node.duck.table(f"FROM read_parquet('{secret}')", {})
        assert ids(frame.read()) == [7, 8]
