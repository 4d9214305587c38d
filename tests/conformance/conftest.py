"""Which parts of the suite wait for a longer run."""

import pytest

from ontologia.testing.conformance.properties import PropertyConformance

LIFE = "test_any_life_of_a_store_is_that_of_the_reference_model"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Random histories are thorough. In a bucket one of them is enough: all ask the engine of the directory again."""
    for item in items:
        name = getattr(item, "originalname", "")
        if hasattr(PropertyConformance, name):
            item.add_marker(pytest.mark.thorough)
            if "in a bucket" in item.name and name != LIFE:
                item.add_marker(pytest.mark.slow)
