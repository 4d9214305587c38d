"""The engines on object storage: a log of Parquet commits under a head that moves by compare-and-swap.

Formats are in `records`, places in `paths`, the write protocol in `commit`, reading in `planning` and `relation`,
care in `compaction`, `indexes` and `vacuum`. Nothing here knows of SQLite.
"""
