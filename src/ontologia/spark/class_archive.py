"""An archive of the classes that Spark loads, in this machine's cache: with it, a JVM starts in two thirds of the time.

Java calls this class data sharing. The JVM of a brief session writes the archive when it ends, after the command that
started it has returned; the next one maps it. An archive is for one Java and one PySpark. A JVM ignores one that is not
its own.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from ontologia.files.reading import cache_folder

MAGIC = 0xF00BABA8
"""How an archive begins that was made when a JVM ended. It is written last."""
KEPT = 3
"""An archive takes 170 MB: of other versions, so many stay."""
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
_PLAIN = re.compile(r"[\w./+@=-]+", re.ASCII)
"""A path that means the same to Spark's settings, a shell and Java."""


def archive_options(java: str) -> list[str]:
    """What tells a JVM to use the archive, or to make it; nothing where there is no place for one."""
    try:
        place = _place_for(java)
        if not _PLAIN.fullmatch(str(place)):
            return []
        if _is_whole(place):
            os.utime(place)
            return [f"-XX:SharedArchiveFile={place}", "-XX:+VerifySharedSpaces", *QUIET]
        place.parent.mkdir(parents=True, exist_ok=True)
        _make_room(place)
    except OSError:
        return []
    return [f"-XX:ArchiveClassesAtExit={place}", *QUIET]


def drop_archive(java: str) -> None:
    """Let the archive be made again: a JVM could not start with it."""
    with suppress(OSError):
        _remove(_place_for(java))


def _place_for(java: str) -> Path:
    program = Path(java).resolve()
    release = program.parents[1] / "release"
    known = [str(program), release.read_text() if release.exists() else str(program.stat().st_mtime_ns)]
    digest = hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]
    return cache_folder("java") / f"spark-{version('pyspark')}-{digest}.jsa"


def _is_whole(place: Path) -> bool:
    """Whether an archive is complete, and as long as when it was first used: a JVM that maps a shorter one crashes."""
    if not _is_complete(place):
        return False
    size, noted = str(place.stat().st_size), _size_of(place)
    if not noted.exists():
        noted.write_text(size)
    return noted.read_text() == size


def _size_of(place: Path) -> Path:
    return place.with_suffix(".size")


def _remove(place: Path) -> None:
    for path in (place, _size_of(place)):
        path.unlink(missing_ok=True)


def _is_complete(place: Path) -> bool:
    with suppress(FileNotFoundError), place.open("rb") as file:
        return int.from_bytes(file.read(4), "little") == MAGIC
    return False


def _make_room(place: Path) -> None:
    """Remove what is incomplete, and archives of other versions that nobody has used for long."""
    _remove(place)
    others = sorted(place.parent.glob("*.jsa"), key=lambda other: other.stat().st_mtime)
    for other in others[: max(len(others) + 1 - KEPT, 0)]:
        _remove(other)
