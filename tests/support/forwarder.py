"""Another address for a server on loopback, that remembers what was said to it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Forwarder:
    """Passes bytes on. `said` is what clients have sent."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._said = bytearray()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def said(self) -> bytes:
        return bytes(self._said)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for source, sink, kept in ((client, server, self._said), (server, client, None)):
                    threading.Thread(target=_pass_on, args=(source, sink, kept), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket, kept: bytearray | None) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            if kept is not None:
                kept += data
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def forwarded(target: str) -> Iterator[Forwarder]:
    """A forwarder to a server, for the block."""
    forwarder = Forwarder(target)
    try:
        yield forwarder
    finally:
        forwarder.close()
