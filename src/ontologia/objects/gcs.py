"""Google Cloud Storage. Credentials as obstore finds them: GOOGLE_SERVICE_ACCOUNT,
GOOGLE_APPLICATION_CREDENTIALS, the gcloud defaults, or the metadata service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ontologia.objects.remote import RemoteBackend, client_options, retry_config

if TYPE_CHECKING:
    from obstore.store import GCSStore


def gcs_backend(bucket: str, *, request_timeout_s: float) -> RemoteBackend:
    """A bucket. Conditions on GCS go by generation, which is a nonce by itself, and deletes go one by one."""
    connector = GcsConnector(bucket, request_timeout_s)
    return RemoteBackend(f"gs://{bucket}", f"gs://{bucket}", connector, version_field="version", bulk_delete=False)


@dataclass(frozen=True)
class GcsConnector:
    bucket: str
    request_timeout_s: float

    def __call__(self, *, retries: bool) -> GCSStore:
        from obstore.store import GCSStore

        return GCSStore(
            self.bucket,
            client_options=client_options(self.request_timeout_s, retries=retries),
            retry_config=retry_config(self.request_timeout_s, retries=retries),
        )
