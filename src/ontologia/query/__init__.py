"""What people ask: aggregates, the builder, the plan it makes, and the one compiler to SQL.

Nothing here opens a store. An engine supplies the rows of a type (`stored_rows`) and runs the statement.
"""

from ontologia.query.aggregates import avg, count, max, min, sum

__all__ = ["avg", "count", "max", "min", "sum"]
