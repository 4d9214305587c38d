"""Hadoop's S3A connector, where the cluster carries it: Spark reads a bucket itself, with our settings for it.

Settings are made for the one bucket (`fs.s3a.bucket.<name>.*`), so that other buckets keep those of the session. What
cannot be handed over, or is set otherwise already, is left alone: then the rows come through Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ontologia.objects import Objects
from ontologia.objects.aws import S3Connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR = "org.apache.hadoop.fs.s3a.S3AFileSystem"
PROVIDERS = "org.apache.hadoop.fs.s3a."


def reaches(spark: SparkSession, objects: Objects) -> bool:
    """Whether Spark reads this bucket as we do: it has the connector, and our settings are those of the bucket.

    A Connect session has no configuration to look into, so it counts as one without the connector.
    """
    context = getattr(spark, "_jsc", None)
    connector = getattr(objects.backend, "connect", None)
    if context is None or not isinstance(connector, S3Connector):
        return False
    configuration = context.hadoopConfiguration()
    if configuration.getClassByNameOrNull(CONNECTOR) is None:
        return False
    wanted = settings(connector)
    return wanted is not None and _agree(configuration, wanted)


def settings(connector: S3Connector) -> dict[str, str] | None:
    """What S3A needs to reach a bucket as a connector does; None where only we can have the credentials."""
    keys = connector.plain_credentials()
    if keys is None:
        return None
    found = {"endpoint.region": connector.chosen_region, "path.style.access": str(connector.path_style).lower()}
    if connector.endpoint is not None:
        is_plain = urlsplit(connector.endpoint).scheme == "http"
        found |= {"endpoint": connector.endpoint, "connection.ssl.enabled": str(not is_plain).lower()}
    if keys:
        names = {"access_key_id": "access.key", "secret_access_key": "secret.key", "session_token": "session.token"}
        found |= {names[name]: value for name, value in keys.items()}
        provider = "Temporary" if "session_token" in keys else "Simple"
        found["aws.credentials.provider"] = f"{PROVIDERS}{provider}AWSCredentialsProvider"
    return {f"fs.s3a.bucket.{connector.bucket}.{name}": value for name, value in found.items()}


def _agree(configuration: Any, wanted: dict[str, str]) -> bool:
    """Set what is not set. Hadoop keeps a bucket's client, so that other settings than its first would go unheard."""
    before = {name: configuration.get(name) for name in wanted}
    if any(value not in (None, wanted[name]) for name, value in before.items()):
        return False
    for name, value in wanted.items():
        if before[name] is None:
            configuration.set(name, value)
    return True
