"""Deterministic simulation: many writers, readers and maintenance jobs in one process, under a seed that decides every
interleaving and fault. `python -m ontologia.testing.simulation --seeds 1000`; docs/design/0080-simulation.md says how
it works and what it cannot see.

`scheduler` runs actors and injects faults, `runs` draws plans, runs, replays and shrinks them; each world (`frames`,
`types`) knows one system: what its actors do, a model in plain Python, and the invariants.
"""
