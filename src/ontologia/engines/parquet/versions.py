"""The two engine versions on object storage, and the little in which they differ (RFC 0004 §2, RFC 0009 §4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ontologia.engines.catalog import summarize_layouts
from ontologia.engines.forgetting import Forgotten, Superseded
from ontologia.engines.parquet import paths
from ontologia.engines.parquet.care import forgetting
from ontologia.engines.parquet.engine import ParquetEngine
from ontologia.engines.parquet.log.schemas import SchemaCatalog
from ontologia.model import TypeRef


class ParquetEngineV1(ParquetEngine):
    """One file per type and commit, with typed columns for pushdown and `fields_json` for old readers."""

    engine_version = "v1"
    has_document = True
    data_path = staticmethod(paths.data_v1)
    snapshot_path = staticmethod(paths.snapshot_v1)


class ParquetEngineV2(ParquetEngine):
    """Files by type and schema version; indices and a layout catalog that know which version is current."""

    engine_version = "v2"
    capabilities = replace(ParquetEngine.capabilities, removals=True, forgetting=True)
    has_document = False
    data_path = staticmethod(paths.data_v2)
    snapshot_path = staticmethod(paths.snapshot_v2)

    def index_extras(self, schemas: SchemaCatalog, ref: TypeRef) -> dict[str, Any]:
        """RFC 0009 §4.3."""
        versions = [version for version in schemas.of(ref) if version.activation_commit_id is not None]
        current = next((version for version in versions if version.is_current), None)
        ends = [*(version.activation_commit_id for version in versions[1:]), None]
        return {
            "current_schema_version_id": None if current is None else current.schema_version_id,
            "activation_commit_id": None if current is None else current.activation_commit_id,
            "historical_versions": [
                {
                    "schema_version_id": version.schema_version_id,
                    "activation_commit_id": version.activation_commit_id,
                    "superseded_at_commit_id": end,
                }
                for version, end in zip(versions, ends, strict=False)  # none at all, of a type that was never committed
                if not version.is_current
            ],
        }

    def mirrors(self, schemas: SchemaCatalog) -> dict[str, dict[str, Any]]:
        """RFC 0009 §4.4."""
        layouts = [
            {
                "type_kind": version.ref.kind,
                "type_name": version.ref.name,
                "schema_version_id": version.schema_version_id,
                "activation_commit_id": version.activation_commit_id,
                "is_current": version.is_current,
            }
            for version in schemas.versions
            if version.activation_commit_id is not None
        ]
        return {**super().mirrors(schemas), paths.LAYOUTS: {"layouts": layouts}}

    def find_superseded(self, base: int) -> list[Superseded]:
        return forgetting.find(self, base)

    def forget(self, base: int, head: int, metadata: Mapping[str, Any]) -> Forgotten:
        return forgetting.forget(self, base, head, metadata)

    def storage_info(self) -> dict[str, Any]:
        schemas = self.log.schemas(self.log.head().head)
        rows = [
            (v.ref.kind, v.ref.name, v.schema_version_id, v.activation_commit_id, v.is_current)
            for v in schemas.versions
            if v.activation_commit_id is not None
        ]
        return super().storage_info() | {"type_layouts": summarize_layouts(rows)}
