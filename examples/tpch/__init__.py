"""TPC-H, the benchmark of decision support, as an ontology on Spark: what a real model and its pipeline look like."""
