"""Statements that several nodes answer together (seed, "Bucket Layout": `_queries/{query_id}/`).

A statement becomes fragments, a fragment becomes tasks by cell, nodes leave their parts as Arrow files, and who asked
makes the answer of them. Nodes meet in the bucket only.
"""
