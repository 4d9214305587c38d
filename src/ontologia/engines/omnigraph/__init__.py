"""Typed data on a graph: classes become node and edge tables, queries run over their snapshots.

`engine` is a branch of a graph behind the protocol of engines; `Omnigraph`, with branches and merges, is above, in the
runtime. How a graph is stored is in `ontologia.omnigraph`, which knows nothing of types.
"""
