"""Two ways to one answer: random questions, asked of an engine and of an oracle that shares no code with it.

`worlds` makes models and histories with hostile names and values, `making` makes questions as plain data, `questions`
puts them to the builder, `oracle` answers the same data from lists of rows, knowing neither builder, plan nor SQL.

    python -m ontologia.testing.differential --seconds 600          # or: make soak SECONDS=600
"""
