"""`Location`: where a store is and how it is reached. The only address that travels."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from typing import Self

from ontologia.config import OntologiaConfig
from ontologia.errors import ValidationError
from ontologia.objects.opening import open_objects
from ontologia.objects.store import Objects


@dataclass(frozen=True, slots=True)
class Location:
    """An address and the settings it is opened with, small enough to go to every task.

    It can be pickled, compared and hashed. Credentials are no part of it: each process finds its own.

    >>> Location("s3://bucket/shop", OntologiaConfig(s3_region="eu-central-1")).uri
    's3://bucket/shop'
    """

    uri: str
    settings: OntologiaConfig = field(default_factory=OntologiaConfig)
    branch: str | None = None
    """Of a store that has branches, the one that is meant."""

    @classmethod
    def of(cls, where: str | os.PathLike[str] | Location, settings: OntologiaConfig | None = None) -> Location:
        """What a caller gave as an address; a location keeps its settings unless others are given."""
        if isinstance(where, Location):
            return where if settings is None else replace(where, settings=settings)
        return cls(os.fspath(where), settings or OntologiaConfig())

    def open_objects(self) -> Objects:
        """The object store at this address."""
        return open_objects(
            self.uri,
            region=self.settings.s3_region,
            endpoint_url=self.settings.s3_endpoint_url,
            request_timeout_s=self.settings.s3_request_timeout_s,
            sync_files=self.settings.sync_files,
        )

    def at(self, uri: str) -> Self:
        """Another address with the same settings."""
        return replace(self, uri=uri)

    # --- as text, for ways that carry nothing else, such as the options of a data source ---

    def settings_text(self) -> str:
        """The settings that differ from their defaults, as JSON, with those that the environment says here: it may be
        another one where the text is read."""
        plain = asdict(OntologiaConfig(s3_region=None, s3_endpoint_url=None))
        return json.dumps({name: value for name, value in asdict(self.settings).items() if value != plain[name]})

    @classmethod
    def from_text(cls, uri: str, settings: str | None, branch: str | None = None) -> Self:
        """The location of an address, the JSON of its settings, and the branch that is meant."""
        if not settings:
            return cls(uri, branch=branch)
        try:
            return cls(uri, OntologiaConfig(**json.loads(settings)), branch)
        except (TypeError, ValueError) as problem:
            raise ValidationError(f"settings are a JSON object of OntologiaConfig's fields: {problem}") from None
