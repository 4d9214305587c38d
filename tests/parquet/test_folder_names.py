"""What folders are called says nothing about rows, also where other tools would read `name=value` as a column."""

from __future__ import annotations

import pytest

from ontologia import Ontology, initialize_storage
from support.parquet_shop import Customer


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("name", ["tier=free", "age=99", "entity_key=x", "commit_id=7", "id=c9", "superseded_by=1"])
def test_a_folder_named_like_a_partition_changes_no_value(tmp_path, name, version):
    uri = (tmp_path / name / "onto").as_uri()
    initialize_storage(storage_uri=uri, engine_version=version)
    with Ontology(storage_uri=uri, entity_types=[Customer]) as onto:

        def facts() -> list[object]:
            customers = onto.query().entities(Customer)
            return [
                [(c.id, c.tier, c.age, c.meta().commit_id) for c in customers.collect()],
                [(c.id, c.tier, c.age, c.meta().commit_id) for c in customers.with_history().collect()],
                customers.where(Customer.tier == "gold").count(),
                customers.as_of(1).sum(Customer.age),
                customers.to_arrow().column("tier").to_pylist(),
                [change["operation"] for change in onto.list_commit_changes(2)],
            ]

        for age in (1, 2, 3):
            with onto.session() as session:
                session.ensure([Customer(id="c1", name="a", tier="gold", age=age), Customer(id="c2", name="b", age=5)])
        expected = facts()
        assert expected[0] == [("c1", "gold", 3, 3), ("c2", None, 5, 1)]
        assert (expected[2], expected[3], expected[5]) == (1, 6, ["update_version"])
        onto.repository.compact(apply=True)
        assert facts() == expected
        with onto.session() as session:
            session.ensure(Customer(id="c1", name="a", tier="gold", age=4))
        assert facts()[0] == [("c1", "gold", 4, 4), ("c2", None, 5, 1)]
