"""Handlers and Spark's stream of a store see the same changes, in the same order."""

from __future__ import annotations

from ontologia import CommitFeed, CommitMade, Ontology, Session, on_event
from ontologia.spark import read_stream
from support.spark_shop import Customer, commit


def test_a_stream_of_commits_and_handlers_see_the_same_changes_in_the_same_order(spark, folder, tmp_path):
    commit(folder, Customer(id="b", name="Bob", age=1), Customer(id="a", name="Ann", age=1))
    for age in (2, 3):
        commit(folder, Customer(id="a", name="Ann", age=age))
    commit(folder, Customer(id="c", name="Cy", age=4), Customer(id="b", name="Bob", age=4))
    streamed, handled = [], []

    def take(rows, batch_id):
        streamed.extend((row.commit_id, row.operation, row.id) for row in rows.collect())

    query = read_stream(spark, folder, Customer).writeStream.foreachBatch(take)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query.start().awaitTermination()

    with Ontology(storage_uri=folder) as source, Session(str(tmp_path / "work.db")) as session:

        @on_event(CommitMade)
        def follow(ctx):
            changes = source.list_commit_changes(ctx.event.commit_id)
            handled.extend((ctx.event.commit_id, item["operation"], item["key"]) for item in changes)

        session.run([follow], feeds=[CommitFeed("shop", source, since=0)], max_iterations=1)
    assert handled == streamed
    assert [commit_id for commit_id, _, _ in handled] == [1, 1, 2, 3, 4, 4]
