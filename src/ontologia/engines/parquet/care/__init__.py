"""Care of a store: compaction, indices verified and repaired, vacuum. None of it changes an answer."""
