"""The engines on object storage: a log of Parquet commits under a head that moves by compare-and-swap.

Four rooms: `log` has the formats and what a head says, `read` answers questions, `write` has the commit protocol, and
`care` compacts, checks, repairs, vacuums and erases. Names of objects are in `paths`. Nothing here knows of SQLite.
"""
