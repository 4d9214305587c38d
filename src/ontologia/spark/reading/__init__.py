"""Reading: types, changes and typed queries as DataFrames."""
