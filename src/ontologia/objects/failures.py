"""What can go wrong with an object, said once: missing, refused, or a failure of the store with a hint.

Every store reports its troubles in its own words. Callers need three answers: is the object missing, did the
condition fail, or did the storage fail; and after a failed conditional write a fourth: may it have been
applied?
"""

from __future__ import annotations

import errno
import re
from typing import ClassVar

from ontologia.errors import OntologiaError, StorageBackendError

WRITES = frozenset({"put", "put_if_absent", "put_if_match", "delete", "delete_many"})

_HINTS = {
    "no_such_bucket": "the bucket does not exist: create it first, or correct its name in the storage URI",
    "access_denied": "the credentials were refused: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or the "
    "role) and that the policy allows GetObject, PutObject, DeleteObject and ListBucket on this prefix",
    "wrong_region": "the bucket lives in another region: set AWS_REGION or s3_region to the region of the bucket",
    "unreachable": "nothing answers at this endpoint: check AWS_ENDPOINT_URL_S3 or s3_endpoint_url, and the network",
    "timeout": "no answer in time: check the network, or raise s3_request_timeout_s",
    "no_credentials": "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a "
    "profile with AWS_PROFILE, or run where a role is attached",
    "plain_http": "this endpoint is plain http: use https, or allow it with AWS_ALLOW_HTTP=true",
    "disk_full": "the disk is full: free some space and try again",
    "server_error": "the server failed: try again later",
    "busy": "another process holds the lock of this directory and does not move: is one stopped or hanging?",
    "file_permission": "the operating system refused: check the owner and the mode of the directory",
    "read_only": "the file system is mounted read-only: nothing can be written here until it is mounted for writing",
}

_CODES = {
    "NoSuchBucket": "no_such_bucket",
    "AccessDenied": "access_denied",
    "InvalidAccessKeyId": "access_denied",
    "SignatureDoesNotMatch": "access_denied",
    "ExpiredToken": "access_denied",
    "InvalidToken": "access_denied",
    "AuthorizationHeaderMalformed": "wrong_region",
    "PermanentRedirect": "wrong_region",
    "TemporaryRedirect": "wrong_region",
    "IllegalLocationConstraintException": "wrong_region",
    "RequestTimeout": "timeout",
}

_NOT_APPLIED = frozenset(
    {
        "no_such_bucket",
        "access_denied",
        "wrong_region",
        "unreachable",
        "no_credentials",
        "plain_http",
        "bad_request",
        "busy",
        "file_permission",
        "read_only",
        "disk_full",
    }
)
_TRANSIENT = frozenset({"unreachable", "timeout", "server_error", "connection", "busy"})


class ObjectNotFound(OntologiaError):
    """There is no object under this key. Part of normal work: most callers expect it somewhere."""

    code: ClassVar[str] = "object_not_found"

    def __init__(self, url: str) -> None:
        super().__init__(f"there is no object at {url}")
        self.url = url


class ConditionFailed(OntologiaError):
    """A conditional put was refused: the object exists already, or is not the version that was expected."""

    code: ClassVar[str] = "condition_failed"

    def __init__(self, url: str, expected: str | None) -> None:
        wanted = "no object yet" if expected is None else f"version {expected}"
        super().__init__(f"the put expected {wanted} at {url} and found another state")
        self.url = url
        self.expected = expected


class FolderBusy(TimeoutError):
    """The lock of a directory was not to be had in time. Nothing was written."""


def storage_error(operation: str, url: str, cause: BaseException, context: dict[str, str]) -> StorageBackendError:
    """Say what was tried, where, what the store answered, and what to look at next."""
    kind = kind_of(cause)
    reason = str(cause).split("\n\nDebug source:")[0].strip() or type(cause).__name__
    hint = _HINTS.get(kind)
    message = f"{operation} {url} failed: {reason}" + (f" — {hint}" if hint else "")
    maybe_applied = operation in WRITES and kind not in _NOT_APPLIED
    return StorageBackendError(
        message,
        context={
            **context,
            "operation": operation,
            "url": url,
            "kind": kind,
            "may_be_applied": maybe_applied,
        },
    )


def may_be_applied(error: StorageBackendError) -> bool:
    """True if the failed write may have reached the store, or may still reach it. True when in doubt."""
    return bool(error.context.get("may_be_applied", True))


def is_transient(error: StorageBackendError) -> bool:
    """True if the same request may well succeed a moment later."""
    return error.context.get("kind") in _TRANSIENT


def kind_of(cause: BaseException) -> str:
    """One word for a failure. The `object_store` crate types few of them, so its text has to be read."""
    if isinstance(cause, FolderBusy):
        return "busy"
    if isinstance(cause, TimeoutError):
        return "timeout"
    if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk_full"
    if isinstance(cause, OSError) and cause.errno in (errno.EACCES, errno.EPERM):
        return "file_permission"
    if isinstance(cause, OSError) and cause.errno == errno.EROFS:
        return "read_only"
    if isinstance(cause, ConnectionError):
        return "connection"
    return _kind_of_text(str(cause))


def _kind_of_text(text: str) -> str:
    code = re.search(r"<Code>(\w+)</Code>", text)
    if code and code.group(1) in _CODES:
        return _CODES[code.group(1)]
    if "latest/api/token" in text or "latest/meta-data" in text:
        return "no_credentials"  # the last link of the chain, the metadata service, is the one that reports
    if "BadScheme" in text:
        return "plain_http"
    if "incorrectly configured region" in text:
        return "wrong_region"
    if "kind: Timeout" in text:
        return "timeout"
    if "kind: Connect" in text:
        return "unreachable"
    status = re.search(r"status code: (\d{3})", text)
    if status is None:
        return "connection" if "HTTP error" in text else "other"
    number = int(status.group(1))
    if number in (401, 403):
        return "access_denied"
    if number >= 500 or number == 429:
        return "server_error"
    return "timeout" if number == 408 else "bad_request"
