"""From an address to a store.

s3://bucket/prefix                     AWS, or what the environment says
s3://bucket/prefix?region=eu-west-1    also ?endpoint=https://host:port
s3://bucket@host:port/prefix           a server of one's own (MinIO, Ceph): plain http, but https at port 443
gs://bucket/prefix
file:///directory, local://directory, a plain path
memory://name
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from ontologia.errors import ValidationError
from ontologia.objects.backend import Backend
from ontologia.objects.store import Objects, check_key


def open_objects(
    uri: str,
    *,
    region: str | None = None,
    endpoint_url: str | None = None,
    request_timeout_s: float = 10.0,
    allow_http: bool | None = None,
    sync_files: bool = True,
    concurrency: int = 16,
) -> Objects:
    """Open the store at a URI. Nothing is sent and nothing is made until the first request.

    For S3, the environment fills in what is not given: AWS_REGION (or AWS_DEFAULT_REGION),
    AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_ENDPOINT, AWS_ALLOW_HTTP, AWS_S3_FORCE_PATH_STYLE; how credentials are
    found is said in `aws.py`. What the address itself says comes before both. `request_timeout_s` is how long the store
    may be silent; a conditional put has it as its total time. A plain path, absolute or relative, means a directory;
    without `sync_files`, what is written there need not survive a power failure.
    """
    parts = check_uri(uri)
    prefix = _prefix(parts)
    backend: Backend
    address = None
    if parts.scheme == "memory":
        from ontologia.objects.memory import memory_backend

        backend = memory_backend(parts.netloc)
    elif parts.scheme in ("file", ""):
        from ontologia.objects.files import FileBackend

        directory = Path(unquote(parts.path) if parts.scheme else parts.path).expanduser().resolve()
        backend, prefix = FileBackend(directory, request_timeout_s, sync_files=sync_files), ""
    elif parts.scheme == "s3":
        from ontologia.objects.aws import s3_backend

        bucket, endpoint, region_there = _s3_place(parts, uri)
        address = uri
        backend = s3_backend(
            bucket,
            region=region_there or region,
            endpoint_url=endpoint or endpoint_url,
            request_timeout_s=request_timeout_s,
            allow_http=True if "@" in parts.netloc else allow_http,
        )
    else:
        from ontologia.objects.gcs import gcs_backend

        backend = gcs_backend(parts.netloc, request_timeout_s=request_timeout_s)
    return Objects(backend, prefix, concurrency=concurrency, address=address)


def check_uri(uri: str) -> SplitResult:
    """The parts of a URI that names a store. One that cannot is an error, before anything is opened."""
    if not uri or uri.isspace():
        raise ValidationError("a storage URI is needed, as in s3://bucket/prefix or file:///data/store")
    if re.search(r"[\x00-\x1f\x7f]|%00", uri):
        raise ValidationError(f"a storage URI has no control characters, and {uri!r} has")
    try:
        parts = urlsplit(uri)
    except ValueError as problem:
        raise ValidationError(f"{uri!r} is not a URI: {problem}") from None
    if parts.scheme in ("", "local"):
        parts = SplitResult("", "", uri.removeprefix("local://"), "", "")
    if parts.fragment or (parts.query and parts.scheme != "s3"):
        raise ValidationError(f"a storage URI has no # part, and a ? part only in s3://bucket/prefix?region=…: {uri!r}")
    match parts.scheme:
        case "memory":
            if not parts.netloc:
                raise ValidationError(f"a memory store needs a name, as in memory://example: {uri!r}")
        case "file" | "":
            if parts.netloc not in ("", "localhost"):
                raise ValidationError(f"a file URI has three slashes, as in file:///data/store: {uri!r}")
            if not parts.path.strip("/"):
                raise ValidationError(f"a local store needs a directory, as in file:///data/store: {uri!r}")
            return parts
        case "s3":
            _s3_place(parts, uri)
        case "gs":
            _bucket(parts.netloc, uri)
        case _:
            raise ValidationError(
                f"no store for {parts.scheme}://, only s3://bucket/prefix, gs://bucket/prefix, file:///directory "
                f"and memory://name: {uri!r}"
            )
    if prefix := _prefix(parts):
        try:
            check_key(prefix)
        except ValueError as problem:
            raise ValidationError(f"{uri!r} cannot be a store's place: {problem}") from None
    return parts


def _prefix(parts: SplitResult) -> str:
    return unquote(parts.path).strip("/") if parts.scheme != "s3" else parts.path.strip("/")


def _s3_place(parts: SplitResult, uri: str) -> tuple[str, str | None, str | None]:
    """The bucket, and the endpoint and the region where the address names them."""
    said = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(said) - {"region", "endpoint"})
    if unknown or not all(said.values()) or ("endpoint" in said and "://" not in said["endpoint"]):
        raise ValidationError(
            f"behind the ? of a bucket stand region=NAME and endpoint=https://host:port and nothing else: {uri!r}"
        )
    for server in (said.get("endpoint"), f"//{parts.netloc.partition('@')[2]}"):
        _check_port(server, uri)
    bucket, at, host = parts.netloc.partition("@")
    if not at:
        return _bucket(bucket, uri), said.get("endpoint"), said.get("region")
    if not host or "@" in host or "endpoint" in said:
        raise ValidationError(f"a server is named once, as in s3://bucket@host:port/prefix: {uri!r}")
    scheme = "https" if host.endswith(":443") else "http"
    return _bucket(bucket, uri), f"{scheme}://{host}", said.get("region")


def _check_port(server: str | None, uri: str) -> None:
    try:
        urlsplit(server or "").port  # noqa: B018 — to ask for one that cannot be is an error
    except ValueError:
        raise ValidationError(f"a server has a port up to 65535, as in s3://bucket@host:9000/prefix: {uri!r}") from None


def _bucket(netloc: str, uri: str) -> str:
    if not netloc or "@" in netloc or ":" in netloc:
        raise ValidationError(f"a bucket is named as in s3://bucket/prefix or s3://bucket@host:port/prefix: {uri!r}")
    return netloc
