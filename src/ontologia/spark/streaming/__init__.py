"""Streams: commits as micro-batches, and micro-batches as commits."""
