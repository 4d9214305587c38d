"""S3 and what speaks its protocol: where settings and credentials come from.

This is the one place that decides. The libraries that reach a bucket beside obstore (DuckDB, Lance, Spark's S3A) are
told what is found here, and what they would read from the environment otherwise is given to them too.

The endpoint: the one that is given, or the first of AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL and AWS_ENDPOINT. The region:
the one that is given, or the first of AWS_REGION, AWS_DEFAULT_REGION, that of the profile, and us-east-1.

Credentials, the first that is found:

1. AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, with AWS_SESSION_TOKEN if there is one;
2. the profile AWS_PROFILE (or `default`) of the shared credentials and config files: static keys are read
   here; a profile with roles, SSO or a process needs boto3 installed, which then resolves it;
3. what obstore finds by itself: web identity (EKS), container credentials (ECS), instance metadata (EC2).
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ontologia.errors import StorageBackendError
from ontologia.objects.remote import RemoteBackend, client_options, retry_config

if TYPE_CHECKING:
    from obstore.store import S3Store

_NEEDS_BOTO = ("role_arn", "sso_session", "sso_start_url", "credential_process", "source_profile")
_TOKENS = ("AWS_SESSION_TOKEN", "AWS_TOKEN")


def s3_backend(
    bucket: str,
    *,
    region: str | None,
    endpoint_url: str | None,
    request_timeout_s: float,
    allow_http: bool | None,
) -> RemoteBackend:
    """A bucket; what is not given comes from the environment now, credentials when the first request is
    sent."""
    endpoint = endpoint_url or _first_set("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    if allow_http is None:
        allow_http = _is_true("AWS_ALLOW_HTTP") or (endpoint is not None and _is_loopback(endpoint))
    connector = S3Connector(
        bucket=bucket,
        region=region or _first_set("AWS_REGION", "AWS_DEFAULT_REGION"),
        endpoint=endpoint,
        # Servers behind an endpoint of their own rarely have a DNS name per bucket, and a certificate of AWS
        # does not cover bucket names with dots.
        path_style=_is_true("AWS_S3_FORCE_PATH_STYLE") or endpoint is not None or "." in bucket,
        allow_http=allow_http,
        request_timeout_s=request_timeout_s,
    )
    return RemoteBackend(f"s3://{bucket}", f"s3://{bucket} at {endpoint or 'AWS'}", connector)


@dataclass(frozen=True)
class S3Connector:
    """The settings of a bucket, without secrets: those are looked up where the client is made."""

    bucket: str
    region: str | None
    endpoint: str | None
    path_style: bool
    allow_http: bool
    request_timeout_s: float

    def __call__(self, *, retries: bool) -> S3Store:
        from obstore.store import S3Store

        config: dict[str, Any] = {"virtual_hosted_style_request": not self.path_style, **self._credentials()}
        config["region"] = self.chosen_region
        if self.endpoint is not None:
            # Both names, because obstore lets AWS_ENDPOINT_URL_S3 of the environment win over `endpoint`.
            config |= {"endpoint": self.endpoint, "aws_endpoint_url_s3": self.endpoint}
        return S3Store(
            self.bucket,
            client_options=client_options(self.request_timeout_s, retries=retries, allow_http=self.allow_http),
            retry_config=retry_config(self.request_timeout_s, retries=retries),
            **config,
        )

    @property
    def chosen_region(self) -> str:
        return self.region or _profile().get("region") or "us-east-1"

    def plain_credentials(self) -> dict[str, str] | None:
        """Key, secret and token, for another library. Empty where the machine has a role, which any library finds;
        None where they are not plain text."""
        found = _plain_text(lambda name: os.environ.get(name.upper())) or _plain_text(_profile().get)
        if found:
            return found
        return None if _needs_boto() or "AWS_WEB_IDENTITY_TOKEN_FILE" in os.environ else {}

    def has_other_token(self, keys: Mapping[str, str]) -> bool:
        """Whether the environment has a token that is not of these keys: libraries would send it along."""
        return bool(keys) and "session_token" not in keys and any(name in os.environ for name in _TOKENS)

    def _credentials(self) -> dict[str, Any]:
        """The same for obstore, which finds the others by itself, unless only boto3 does."""
        found = self.plain_credentials()
        if not found:
            return {"credential_provider": _boto_provider()} if _needs_boto() else {}
        if self.has_other_token(found):
            key = {"access_key_id": found["access_key_id"], "secret_access_key": found["secret_access_key"]}
            return {"credential_provider": lambda: {**key, "token": None, "expires_at": None}}
        return dict(found)


def _needs_boto() -> bool:
    return any(name in _profile() for name in _NEEDS_BOTO)


def _plain_text(find: Callable[[str], str | None]) -> dict[str, str]:
    """Both parts of a key, and the token if there is one; nothing if a part is missing."""
    names = ("access_key_id", "secret_access_key", "session_token")
    found = {name: value for name in names if (value := find(f"aws_{name}"))}
    return found if {"access_key_id", "secret_access_key"} <= found.keys() else {}


def _boto_provider() -> Any:
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise StorageBackendError(
            f"the AWS profile {_profile_name()!r} uses a role, SSO or a process, which boto3 resolves: "
            "pip install boto3, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from None
    return Boto3CredentialProvider()


def _profile_name() -> str:
    return os.environ.get("AWS_PROFILE") or "default"


def _profile() -> Mapping[str, str]:
    """The profile as both shared files say it; the credentials file has the last word, as in the AWS
    tools."""
    name = _profile_name()
    section = name if name == "default" else f"profile {name}"
    home = Path("~/.aws").expanduser()
    config = _section(os.environ.get("AWS_CONFIG_FILE") or home / "config", section)
    return config | _section(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials", name)


def _section(file: str | Path, section: str) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(Path(file).expanduser(), encoding="utf-8")
    except configparser.Error as error:
        raise StorageBackendError(f"cannot read the AWS settings in {file}: {error}") from error
    return dict(parser[section]) if parser.has_section(section) else {}


def _first_set(*variables: str) -> str | None:
    return next((value for name in variables if (value := os.environ.get(name))), None)


def _is_true(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() in ("1", "true", "yes", "on")


def _is_loopback(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
