"""The suite that every engine passes. A new engine is one folder under `engines` and one line here:

    ENGINES = [sqlite("v1"), sqlite("v2"), EngineCase("mine/v1", create=my_empty_store)]

    @pytest.fixture(params=ENGINES, ids=str)
    def engine(request):
        return request.param

    class TestEngines(EngineConformance): ...

`create` lays out a fresh empty store below a folder and gives what `Session(...)` opens: a path or a URI.
"""

from __future__ import annotations

from ontologia.testing.conformance.across import AcrossConformance
from ontologia.testing.conformance.aggregation import AggregationConformance
from ontologia.testing.conformance.case import EngineCase, StoreUnderTest, directory, graph, sqlite
from ontologia.testing.conformance.drops import DropConformance
from ontologia.testing.conformance.exactness import ExactnessConformance
from ontologia.testing.conformance.filters import FilterConformance
from ontologia.testing.conformance.forgetting import ForgetConformance
from ontologia.testing.conformance.frames import FrameConformance
from ontologia.testing.conformance.log import LogConformance
from ontologia.testing.conformance.migrations import MigrationConformance
from ontologia.testing.conformance.properties import PropertyConformance
from ontologia.testing.conformance.reads import ReadConformance
from ontologia.testing.conformance.relations import RelationConformance
from ontologia.testing.conformance.removals import RemovalConformance
from ontologia.testing.conformance.renames import RenameConformance
from ontologia.testing.conformance.sharing import SharingConformance
from ontologia.testing.conformance.staleness import StalenessConformance
from ontologia.testing.conformance.writes import WriteConformance

__all__ = ["AcrossConformance", "EngineCase", "EngineConformance", "StoreUnderTest", "directory", "graph", "sqlite"]


class EngineConformance(
    ReadConformance,
    FilterConformance,
    ExactnessConformance,
    AggregationConformance,
    RelationConformance,
    WriteConformance,
    StalenessConformance,
    LogConformance,
    MigrationConformance,
    RenameConformance,
    DropConformance,
    FrameConformance,
    SharingConformance,
    RemovalConformance,
    ForgetConformance,
    PropertyConformance,
):
    """Everything an engine promises. Subclass it in a test module that has an `engine` fixture; with
    `AcrossConformance` for one that keeps rows of earlier schema versions. What an engine cannot do is skipped."""
