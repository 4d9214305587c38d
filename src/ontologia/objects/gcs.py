"""Google Cloud Storage. Credentials as obstore finds them: GOOGLE_SERVICE_ACCOUNT,
GOOGLE_APPLICATION_CREDENTIALS, the gcloud defaults, or the metadata service. STORAGE_EMULATOR_HOST, as
Google's own clients have it, names a server to use in its place, without credentials."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from obstore.store import GCSStore

from ontologia.objects.remote import RemoteBackend, client_options, retry_config

if TYPE_CHECKING:
    from obstore.store import GCSConfig


def gcs_backend(bucket: str, *, request_timeout_s: float) -> RemoteBackend:
    """A bucket. Conditions on GCS go by generation, which is a nonce by itself, and deletes go one by one."""
    host = os.environ.get("STORAGE_EMULATOR_HOST")
    emulator = None if not host else host if "://" in host else f"http://{host}"
    connector = GcsConnector(bucket, request_timeout_s, emulator)
    identity = f"gs://{bucket}" if emulator is None else f"gs://{bucket} at {emulator}"
    return RemoteBackend(f"gs://{bucket}", identity, connector, version_field="version", bulk_delete=False)


@dataclass(frozen=True)
class GcsConnector:
    bucket: str
    request_timeout_s: float
    emulator: str | None = None

    def __call__(self, *, retries: bool) -> GCSStore:
        settings: GCSConfig = {}
        if self.emulator is not None:
            settings["service_account_key"] = json.dumps(_UNSIGNED | {"gcs_base_url": self.emulator})
        return GCSStore(
            self.bucket,
            config=settings,
            client_options=client_options(
                self.request_timeout_s, retries=retries, allow_http=self.emulator is not None
            ),
            retry_config=retry_config(self.request_timeout_s, retries=retries),
        )


#: A key that signs nothing. Its form is what the library asks for.
_UNSIGNED = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
