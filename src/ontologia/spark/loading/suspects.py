"""Which values of a column a check has to see, as a condition that Spark evaluates."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as sql

from ontologia.model import Column
from ontologia.runtime.intake.checks import COMPARISONS, Check, Limit


def suspects(check: Check, column: Column, value: SparkColumn) -> SparkColumn:
    """Whether the validator has to see a value: all that limits do not clear."""
    if check.limits is None:
        return value.isNotNull()
    cleared: SparkColumn = reduce(operator.and_, (_holds(limit, value) for limit in check.limits))
    # Spark takes NaN for greater than all numbers.
    return ~cleared | sql.isnan(value) if column.scalar == "float" else ~cleared


def _holds(limit: Limit, value: SparkColumn) -> Any:
    return COMPARISONS[limit.bound][0](sql.char_length(value) if limit.of_length else value, limit.value)
