"""The embedded engines: an ontology in one SQLite file, in layout v1 or v2. Nothing here knows of object storage."""
