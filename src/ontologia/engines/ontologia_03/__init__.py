"""Stores that Ontologia 0.3 wrote: known for what they are, and read as that release read them. Nothing is written.

A store is a SQLite file or a bucket (`sqlite_file`, `bucket`), both under the stamps `v1` and `v2` that later releases
use for other layouts. Its schemas and rows are translated to ours (`schemas`, `rows`); `engine` answers from them.
"""
