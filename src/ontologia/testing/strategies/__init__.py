"""Hypothesis strategies: `models` makes random classes, rows and histories, `queries` random questions about them."""

from ontologia.testing.strategies.models import RandomModel, RandomType, commits, histories, models
from ontologia.testing.strategies.queries import RandomQuery, queries

__all__ = ["RandomModel", "RandomQuery", "RandomType", "commits", "histories", "models", "queries"]
