"""How data files are written: what is compressed, and what has a dictionary."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from ontologia.files.writing import LOOKUP_GROUP_ROWS, lookup_writer, write_rows

ROWS = LOOKUP_GROUP_ROWS + 1


def test_numbers_that_get_no_smaller_are_not_compressed_and_all_are_read_back(tmp_path):
    dice = random.Random(1)
    begin = datetime(2020, 1, 1, tzinfo=UTC)
    rows = pa.table(
        {
            "key": [f"key-{number:06d}" for number in range(ROWS)],
            "price": [dice.random() if number % 3 else None for number in range(ROWS)],
            "hash": [dice.getrandbits(62) for _ in range(ROWS)],
            "number": list(range(ROWS)),
            "tier": [dice.choice(["gold", "basic"]) for _ in range(ROWS)],
            "at": pa.array([begin + timedelta(microseconds=n) for n in range(ROWS)], pa.timestamp("us", "UTC")),
            "none": pa.nulls(ROWS, pa.float64()),
        }
    )
    with lookup_writer(tmp_path / "x.parquet", rows.schema, rows) as writer:
        write_rows(writer, rows, LOOKUP_GROUP_ROWS)
    columns = pq.read_metadata(tmp_path / "x.parquet").row_group(0)
    found = {rows.column_names[place]: columns.column(place).compression for place in range(len(rows.column_names))}
    assert {name for name, codec in found.items() if codec == "UNCOMPRESSED"} == {"price", "hash"}
    assert pq.read_table(tmp_path / "x.parquet").equals(rows)
