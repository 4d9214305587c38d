# Every target sets up .venv by itself: Python 3.11 or newer, make and PyPI are all it takes (test-s3a: Maven Central, too).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# One more than most cores we know: tests wait for Spark and for the S3 server.
WORKERS ?= 3
LOCKED := --constraint requirements.lock --build-constraint requirements.lock

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-s3a soak simulate check lint types bench bench-delta docs dist lock clean

help: ## What this Makefile can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(INSTALLED): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.x …")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade --constraint requirements.lock pip
	$(BIN)/python -m pip install --quiet $(LOCKED) --editable . --group dev
	@touch $@

demo: $(INSTALLED) ## The whole story on a small data set, in about a minute
	@$(BIN)/python examples/demo.py

test: $(INSTALLED) ## The test suite, without what takes minutes
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not slow"

test-slow: $(INSTALLED) ## The rest: kills in a loop, races for a minute, clusters, faults on both versions
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m slow

test-s3a: $(INSTALLED) ## Buckets read by Spark itself, through Hadoop's S3A, whose jars come from Maven Central
	@$(BIN)/python -m pytest -n 0 -m s3a tests/spark/test_s3a.py

SECONDS ?= 600
SUITE ?= types
soak: $(INSTALLED) ## Random histories, held against an oracle, for SECONDS=600: SUITE=types, graphs, …
	@$(BIN)/python -m ontologia.testing.differential --suite $(SUITE) --seconds $(SECONDS)

SEEDS ?= 1000
simulate: $(INSTALLED) ## Writers, readers and maintenance under SEEDS=1000 schedules and faults; SEED=17 WORLD=frames replays one
	@$(BIN)/python -m ontologia.testing.simulation $(WORLD) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

check: lint types ## Lint, types and the quick tests, for before every commit
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not slow and not thorough and not s3 and not spark"

lint: $(INSTALLED) ## Ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(INSTALLED) ## Mypy, strict
	@$(BIN)/mypy

bench: $(INSTALLED) ## Benchmarks beside their peers, in 40 minutes (QUICK=1: in 5): JSON, and a page in docs/benchmarks/
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

DELTA_SPARK ?= 4.2.1
bench-delta: $(INSTALLED) ## The pipeline beside Delta Lake, on the Spark that Delta has; jars come from Maven Central
	@test -d .delta/pyspark || $(BIN)/python -m pip install --quiet --no-deps --target .delta pyspark==$(DELTA_SPARK)
	@PYTHONPATH=.delta $(BIN)/python -m benchmarks.delta

docs: $(INSTALLED) ## Check the documentation: links, anchors, error codes, every example
	@$(BIN)/python -m pytest tests/docs

dist: $(INSTALLED) ## Wheel and source distribution, each installed in a fresh environment and tried
	@.ci/dist $(BIN)/python

lock: ## Write requirements.lock anew: RENEW=<name> or RENEW=all takes newer versions
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=26,<27"
	@$(BIN)/python .ci/lock.py $(RENEW)

clean: ## Remove the environment and all caches
	rm -rf $(VENV) .delta demo .ruff_cache .mypy_cache .pytest_cache .hypothesis build dist benchmarks/results
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
