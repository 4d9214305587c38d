"""Settings given in code hold wherever the work is done."""

from __future__ import annotations

import pickle

import pytest

from ontologia import OntologiaConfig, ValidationError
from ontologia.objects import Location
from ontologia.spark import Pipeline, compact, read
from support.forwarder import forwarded
from support.spark_shop import Customer, customers, new_store, session


@pytest.fixture
def detour(s3):
    """The S3 server under an address that no environment knows."""
    with forwarded(s3.endpoint_url) as forwarder:
        yield forwarder


@pytest.fixture
def config(detour, tmp_path):
    return OntologiaConfig(s3_endpoint_url=detour.url, cache_directory=str(tmp_path / "cache"))


def test_executors_write_to_the_endpoint_that_the_pipeline_was_given(spark, s3_prefix, detour, config):
    uri = new_store(s3_prefix)
    rows = spark.createDataFrame([("c1", "Ann", 1)], "id string, name string, age int")
    Pipeline(spark, uri, config).load(rows, into=Customer).commit()
    assert b"/part-" in detour.said


def test_executors_read_and_compare_at_the_endpoint_that_was_given(spark, s3_prefix, detour, config, tmp_path):
    uri = new_store(s3_prefix)
    rows = spark.createDataFrame([("c1", "Ann", 1)], "id string, name string, age int")
    for age in (1, 2):
        Pipeline(spark, uri, config).load(rows.replace(1, age), into=Customer).commit()
    assert [row.age for row in read(spark, uri, Customer, config=config).collect()] == [2]
    with session(uri, config=config) as opened:
        assert compact(spark, opened, apply=True).applied
    assert list((tmp_path / "cache").rglob("*.parquet"))
    assert customers(uri)["c1"] == ("Ann", 2)


def test_options_carry_settings_where_there_is_nothing_but_text(spark, s3_prefix, detour, config):
    uri = new_store(s3_prefix)
    rows = spark.createDataFrame([("c1", "Ann", 1)], "id string, name string, age int")
    given = {"models": "support.spark_shop:Customer", "settings": Location(uri, config).settings_text()}
    rows.write.format("ontologia").options(**given).mode("append").save(uri)
    assert b"/staging/" in detour.said


def test_a_location_can_be_sent_and_says_what_it_does_not_understand():
    location = Location("s3://bucket/x", OntologiaConfig(s3_region="eu-central-1"))
    assert pickle.loads(pickle.dumps(location)) == location
    assert Location.from_text(location.uri, location.settings_text()) == location
    for wrong in ('{"s3_regoin": "x"}', "[1]", "{"):
        with pytest.raises(ValidationError, match="settings are a JSON object"):
            Location.from_text("s3://bucket/x", wrong)
