"""What tests of Ontologia, of its engines and of code on top of it can use; `import ontologia` never imports it.

`conformance` is the suite every engine passes, `reference` a store in plain Python, `strategies` random models,
histories and queries, `histories` a checker of isolation; `stores`, `crash` and `s3server` make storage misbehave.
"""
