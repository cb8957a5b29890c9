# Rampart: the commands a newcomer needs. Python 3.11 or later and make are all it takes.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench bench-peers format clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(READY) ## Make .venv and install the pinned dependencies (torch first, alone)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

demo: $(READY) ## Run 14 honest clients and 6 sign flippers, with and without the defence
	$(BIN)/rampart up digits-sign-flip --beside digits-undefended

test: $(READY) ## Run every test
	$(BIN)/python -m pytest -q

check: $(READY) ## Lint, formatting, types, architecture
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

bench: $(READY) ## Measure rounds, detection, aggregation (see benchmarks/README.md)
	$(BIN)/python benchmarks/rounds.py
	$(BIN)/python -m benchmarks.detection table
	$(BIN)/python benchmarks/aggregation.py

bench-peers: $(READY) ## Install the systems we compare with, in an environment of their own
	bash benchmarks/peers.sh

format: $(READY) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the environment and the caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
