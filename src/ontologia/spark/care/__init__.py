"""Care of a store by executors: compaction and migration."""
