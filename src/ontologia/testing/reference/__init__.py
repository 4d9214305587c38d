"""A store in plain Python that says what every engine must answer: `store` commits and asks, `filters` judges a row.

Nothing here is fast, and nothing here reads files.
"""

from ontologia.testing.reference.store import ReferenceStore

__all__ = ["ReferenceStore"]
