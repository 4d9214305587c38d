"""From a URI to a store: `s3://bucket/prefix`, `gs://bucket/prefix`, `file:///directory`, `memory://name`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from ontologia.errors import ValidationError
from ontologia.objects.backend import Backend
from ontologia.objects.store import Objects


def open_objects(
    uri: str,
    *,
    region: str | None = None,
    endpoint_url: str | None = None,
    request_timeout_s: float = 10.0,
    allow_http: bool | None = None,
    concurrency: int = 16,
) -> Objects:
    """Open the store at a URI. Nothing is sent and nothing is made until the first request.

    For S3, the environment fills in what is not given: AWS_REGION (or AWS_DEFAULT_REGION),
    AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP, AWS_S3_FORCE_PATH_STYLE; how credentials are found
    is said in `aws.py`. `request_timeout_s` is how long the store may be silent; a conditional put has it as
    its total time. A plain path, absolute or relative, means a directory.
    """
    parts = urlsplit(uri)
    if not uri or uri.isspace():
        raise ValidationError("a storage URI is needed, as in s3://bucket/prefix or file:///data/store")
    prefix = unquote(parts.path).strip("/") if parts.scheme != "s3" else parts.path.strip("/")
    if parts.query or parts.fragment:
        raise ValidationError(f"a storage URI has no ? or # part: {uri!r}")
    backend: Backend
    if parts.scheme == "memory":
        from ontologia.objects.memory import memory_backend

        if not parts.netloc:
            raise ValidationError(f"a memory store needs a name, as in memory://example: {uri!r}")
        backend = memory_backend(parts.netloc)
    elif parts.scheme in ("file", ""):
        from ontologia.objects.files import FileBackend

        if parts.netloc not in ("", "localhost"):
            raise ValidationError(f"a file URI has three slashes, as in file:///data/store: {uri!r}")
        directory = Path(unquote(parts.path) if parts.scheme else uri).expanduser().resolve()
        backend, prefix = FileBackend(directory, request_timeout_s), ""
    elif parts.scheme == "s3":
        from ontologia.objects.aws import s3_backend

        backend = s3_backend(
            _bucket(parts.netloc, uri),
            region=region,
            endpoint_url=endpoint_url,
            request_timeout_s=request_timeout_s,
            allow_http=allow_http,
        )
    elif parts.scheme == "gs":
        from ontologia.objects.gcs import gcs_backend

        backend = gcs_backend(_bucket(parts.netloc, uri), request_timeout_s=request_timeout_s)
    else:
        raise ValidationError(
            f"no store for {parts.scheme}://, only s3://bucket/prefix, gs://bucket/prefix, file:///directory "
            f"and memory://name: {uri!r}"
        )
    return Objects(backend, prefix, concurrency=concurrency)


def _bucket(netloc: str, uri: str) -> str:
    if not netloc or "@" in netloc or ":" in netloc:
        raise ValidationError(f"a bucket is named as in s3://bucket/prefix, endpoints go into endpoint_url: {uri!r}")
    return netloc
