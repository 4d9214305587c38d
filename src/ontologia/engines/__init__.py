"""Storage engines behind one protocol (`base`), found by what a store says of itself (`dispatch`).

One folder per backend. Engines compile and run queries and publish commits; what to commit is the runtime's business.
"""
