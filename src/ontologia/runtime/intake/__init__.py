"""Rows on their way in: whether columns fit a type, and whether values are what its class demands.

The same rules serve Arrow tables, files and executors. What becomes of a row that does not fit is decided elsewhere.
"""
