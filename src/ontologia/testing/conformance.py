"""The suite that every engine passes. A new engine is one folder under `engines` and one line here:

    ENGINES = [sqlite("v1"), sqlite("v2"), EngineCase("mine/v1", create=my_empty_store)]

    @pytest.fixture(params=ENGINES, ids=str)
    def engine(request):
        return request.param

    class TestEngines(EngineConformance): ...

`create` lays out a fresh empty store below a folder and gives what `Session(...)` opens: a path or a URI.
"""

from __future__ import annotations

from ontologia.testing.conformance_aggregation import AggregationConformance
from ontologia.testing.conformance_case import EngineCase, StoreUnderTest, sqlite
from ontologia.testing.conformance_drops import DropConformance
from ontologia.testing.conformance_filters import FilterConformance
from ontologia.testing.conformance_frames import FrameConformance
from ontologia.testing.conformance_log import LogConformance
from ontologia.testing.conformance_migrations import MigrationConformance
from ontologia.testing.conformance_properties import PropertyConformance
from ontologia.testing.conformance_reads import ReadConformance
from ontologia.testing.conformance_relations import RelationConformance
from ontologia.testing.conformance_shared import SharingConformance
from ontologia.testing.conformance_writes import WriteConformance

__all__ = ["EngineCase", "EngineConformance", "StoreUnderTest", "sqlite"]


class EngineConformance(
    ReadConformance,
    FilterConformance,
    AggregationConformance,
    RelationConformance,
    WriteConformance,
    LogConformance,
    MigrationConformance,
    DropConformance,
    FrameConformance,
    SharingConformance,
    PropertyConformance,
):
    """Everything an engine promises. Subclass it in a test module that has an `engine` fixture."""
