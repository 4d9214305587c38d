"""What people ask: aggregates, the builder, the plan it makes, and the one compiler to SQL.

Nothing here opens a store. An engine supplies the rows of a type (`relation`) and runs the statement.
"""
