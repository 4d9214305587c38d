"""A sample of random questions, answered by Spark as by the oracle. The embedded engines answer thousands."""

from ontologia.query.builder import QueryRoot
from ontologia.spark.reading.queries import SparkSource
from ontologia.testing.conformance import directory
from ontologia.testing.differential.checking import check_seed

SEEDS = (0, 2)


def test_spark_answers_as_the_oracle_does(spark):
    def source(session):
        return QueryRoot(SparkSource(spark, session.engine))

    assert sum(check_seed(directory("v2"), seed, 8, source) for seed in SEEDS) > 12
