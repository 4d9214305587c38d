"""SQL over frames: reads of every kind, a few commands, and refusals that name the call to use instead.

Statements are parsed, names are resolved to frames, cells are left out, and DuckDB runs the rest in a sealed database.
"""
