"""The engines on object storage, as the conformance suite takes them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

from ontologia.engines.dispatch import initialize_storage
from ontologia.testing.conformance import EngineCase


def directory(engine_version: str) -> EngineCase:
    """An object-storage engine in a directory."""
    return _on_objects("directory", engine_version, lambda folder: (folder / "store").as_uri())


def bucket(engine_version: str) -> EngineCase:
    """The same on the S3 server that the tests start; the bucket `conformance` must be there."""
    return _on_objects("bucket", engine_version, lambda folder: f"s3://conformance/{uuid.uuid4().hex}")


def _on_objects(place: str, engine_version: str, choose: Callable[[Path], str]) -> EngineCase:
    def create(folder: Path) -> str:
        uri = choose(folder)
        initialize_storage(storage_uri=uri, engine_version=engine_version)
        return uri

    return EngineCase(f"s3/{engine_version} in a {place}", create)
