"""The colony: what this node has and does. Capacity and load are measured; bees do the work; heartbeats tell others.

Nothing here knows what a frame is.
"""
