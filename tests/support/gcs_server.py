"""Google Cloud Storage's XML API on loopback, as far as we use it, with conditions by generation.

A stand-in: nothing real can be run here, and the emulators that can be had do not know this API. So it proves what we
send and how we read answers, not how Google's servers behave. `obeys=False` makes it ignore conditions.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 3  # small, so that listings have several pages


@dataclass(frozen=True)
class Stored:
    data: bytes
    generation: int
    modified: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}"'


class GcsServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *, obeys: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.obeys = obeys
        self.objects: dict[str, Stored] = {}  # by "bucket/key"
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.generation = 0
        self.lock = threading.Lock()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def put(self, path: str, data: bytes, condition: str | None) -> Stored | None:
        """None where the condition does not hold: a generation, or 0 for an object that is not there."""
        with self.lock:
            found = self.objects.get(path)
            if condition is not None and self.obeys and int(condition) != (found.generation if found else 0):
                return None
            self.generation += 1
            stored = self.objects[path] = Stored(data, self.generation)
            return stored


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # an answer is several small writes
    server: GcsServer

    @property
    def path_of(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/")

    @property
    def query(self) -> dict[str, str]:
        return {name: value[0] for name, value in parse_qs(urlsplit(self.path).query, keep_blank_values=True).items()}

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if "uploadId" in self.query:
            self.server.uploads[self.query["uploadId"]][int(self.query["partNumber"])] = data
            self.answer(200, headers={"ETag": f'"{len(data)}"'})
            return
        stored = self.server.put(self.path_of, data, self.headers.get("x-goog-if-generation-match"))
        self.answer(412) if stored is None else self.answer(200, stored=stored)

    def do_POST(self) -> None:
        """Uploads in parts: one begins, or is complete."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "uploads" in self.query:
            upload = str(len(self.server.uploads))
            self.server.uploads[upload] = {}
            self.answer(
                200,
                f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>".encode(),
            )
            return
        parts = self.server.uploads.pop(self.query["uploadId"])
        stored = self.server.put(self.path_of, b"".join(data for _, data in sorted(parts.items())), None)
        assert stored is not None
        body = f"<CompleteMultipartUploadResult><ETag>{escape(stored.etag)}</ETag></CompleteMultipartUploadResult>"
        self.answer(200, body.encode(), {"x-goog-generation": str(stored.generation)})

    def do_GET(self) -> None:
        if "list-type" in self.query:
            self.list()
            return
        stored = self.server.objects.get(self.path_of)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if stored is None:
            self.answer(404)
        elif wanted is None:
            self.answer(200, stored.data, stored=stored)
        elif int(wanted[1]) >= len(stored.data):
            self.answer(416)
        else:
            start, end = int(wanted[1]), min(int(wanted[2]) + 1, len(stored.data))
            place = {"Content-Range": f"bytes {start}-{end - 1}/{len(stored.data)}"}
            self.answer(206, stored.data[start:end], place, stored)

    def do_HEAD(self) -> None:
        stored = self.server.objects.get(self.path_of)
        self.answer(404) if stored is None else self.answer(200, stored.data, stored=stored)

    def do_DELETE(self) -> None:
        self.answer(404 if self.server.objects.pop(self.path_of, None) is None else 204)

    def list(self) -> None:
        bucket = self.path_of.rstrip("/") + "/"
        prefix, after = self.query.get("prefix", ""), self.query.get("start-after", "")
        after = max(after, self.query.get("continuation-token", ""))
        known = dict(self.server.objects)
        names = sorted(path.removeprefix(bucket) for path in known if path.startswith(bucket + prefix))
        names = [name for name in names if name > after]
        page = names[:PAGE]
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(known[bucket + name].data)}</Size>"
            f"<LastModified>{known[bucket + name].modified.isoformat()}</LastModified>"
            f"<ETag>{escape(known[bucket + name].etag)}</ETag>"
            f"<Generation>{known[bucket + name].generation}</Generation></Contents>"
            for name in page
        )
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if len(names) > PAGE else ""
        self.answer(200, f"<ListBucketResult>{contents}{more}</ListBucketResult>".encode())

    def answer(
        self, status: int, body: bytes = b"", headers: dict[str, str] | None = None, stored: Stored | None = None
    ) -> None:
        self.send_response(status)
        found = {"Content-Length": str(len(body))} | (headers or {})
        if stored is not None:
            found |= {"ETag": stored.etag, "x-goog-generation": str(stored.generation)}
            found |= {"Last-Modified": format_datetime(stored.modified, usegmt=True)}
        for name, value in found.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def gcs_server(*, obeys: bool = True) -> Iterator[GcsServer]:
    server = GcsServer(obeys=obeys)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
