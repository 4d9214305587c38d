"""DuckDB in process: what it leaves on disk."""

from __future__ import annotations

import stat
from pathlib import Path

from ontologia.files.duck import Duck


def test_what_does_not_fit_into_memory_lies_where_only_its_owner_can_look_and_goes_with_the_store():
    duck = Duck("64MB")
    with duck.cursor() as cursor:
        folder = Path(cursor.execute("SELECT current_setting('temp_directory')").fetchone()[0])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    duck.close()
    assert not folder.exists()
