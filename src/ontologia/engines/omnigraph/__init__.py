"""Typed data on a graph: classes become node and edge tables, queries run over their snapshots.

`face` has `Omnigraph`, the way in for people who want branches and merges; `engine` is the same store behind the
protocol of engines. How a graph is stored is in `ontologia.omnigraph`, which knows nothing of types.
"""
