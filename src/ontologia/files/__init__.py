"""What every part that keeps files needs, and none owns: Parquet, DuckDB, ranges of keys, sorting, JSON objects.

Here are rows, columns, files and bytes. Types, schemas, catalogs and commits live above: whatever is needed of them
comes in as plain names and values. Identifiers and paths enter SQL through `quoting`, and nowhere else.
"""
