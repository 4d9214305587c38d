"""One S3 server for all workers of a test run."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from ontologia.testing.s3server import S3Server, s3_server


@contextmanager
def shared_s3_server(folder: Path) -> Iterator[S3Server]:
    """The server whose address is in a folder. Who finds none there starts it, and ends it when the others are done.

    Everyone comes in through the door, one at a time, and holds a share of `users` until leaving. Who started the
    server shuts the door, waits until nobody holds a share, and takes the address away: who comes in later starts
    another server.
    """
    address = folder / "s3.json"
    with (folder / "s3.door").open("w") as door, (folder / "s3.users").open("w") as users:
        with locked(door):
            started = None if address.exists() else start(address)
            server = S3Server(**json.loads(address.read_text()))
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            with server.in_environment():
                yield server
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            if started:
                with locked(door), locked(users):
                    address.unlink()
                    started.close()


def start(address: Path) -> ExitStack:
    """Start a server and write its address down. Closing what is returned ends it."""
    running = ExitStack()
    server = running.enter_context(s3_server(set_environment=False))
    address.write_text(json.dumps(asdict(server)))
    return running


@contextmanager
def locked(file: TextIO) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
