"""Sums at the ends of 64 bits, and a sample of random questions, answered by Spark as by the oracle. The embedded engines answer thousands."""

import pytest

from ontologia import Entity, Field, Session, SumOverflowError
from ontologia.query.builder import QueryRoot
from ontologia.spark.reading.queries import SparkSource
from ontologia.testing.conformance import directory
from ontologia.testing.differential.checking import check_seed
from support.spark_conversions import session_with

SEEDS = (0, 2)


def test_spark_answers_as_the_oracle_does(spark):
    def source(session):
        return QueryRoot(SparkSource(spark, session.engine))

    assert sum(check_seed(directory("v2"), seed, 8, source) for seed in SEEDS) > 12


def test_a_sum_is_exact_or_an_error_whether_spark_minds_overflow_or_not(spark, folder):
    class Account(Entity):
        id: Field[int] = Field(primary_key=True)

    most = 2**63 - 1
    with Session(folder, entity_types=[Account]) as opened:
        opened.ensure(Account(id=number) for number in (most, 1, -5))
        opened.commit()
        accounts = QueryRoot(SparkSource(spark, opened.engine)).entities(Account)
        for ansi in ("true", "false"):
            with session_with(spark, {"spark.sql.ansi.enabled": ansi}):
                assert accounts.sum(Account.id) == most - 4
                with pytest.raises(SumOverflowError):
                    accounts.where(Account.id > 0).sum(Account.id)
