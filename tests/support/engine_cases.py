"""The engines on object storage, as the conformance suite takes them."""

from __future__ import annotations

import uuid
from pathlib import Path

from ontologia.engines.initializing import initialize_storage
from ontologia.testing.conformance import EngineCase
from ontologia.testing.conformance import directory as directory


def bucket(engine_version: str) -> EngineCase:
    """An object-storage engine on the S3 server that the tests start; the bucket `conformance` must be there."""

    def create(folder: Path) -> str:
        uri = f"s3://conformance/{uuid.uuid4().hex}"
        initialize_storage(storage_uri=uri, engine_version=engine_version)
        return uri

    return EngineCase(f"s3/{engine_version} in a bucket", create)
