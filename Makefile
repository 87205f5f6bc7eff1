# One definition of every task; `.ci/run` and people call the same targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test compiler bench up down unit contract integration e2e lint types arch format schemas docs lock clean

help: ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | awk -F'\t' '{printf "  \033[36m%-12s\033[0m %s\n", $$1, $$2}'

install: $(STAMP) ## make .venv with everything, from the lock

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) else f"gpubus needs Python 3.11 to 3.13, this is {v[0]}.{v[1]}; set PYTHON=/path/to/python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q services shared gpubus
	@touch $(STAMP)

demo: install ## from a bare host to a chat answer (KEEP=1 leaves the stack up)
	@$(BIN)/python -m gpubus.demo

test: compiler unit contract arch integration e2e ## every test

# The tests build a stub of libnvidia-ml; a skipped test fails the run.
compiler:
	@command -v gcc >/dev/null || test $$(id -u) -ne 0 || (apt-get update -qq && apt-get install -y -qq gcc libc6-dev) >/dev/null

unit: install ## decisions, no network
	$(BIN)/python -m pytest tests/unit -q

contract: install ## shapes of messages, documents, ports
	$(BIN)/python -m pytest tests/contract -q

arch: install ## sizes, names, imports of the tree
	$(BIN)/python -m pytest tests/arch -q

integration: install ## the plumbing against real servers
	$(BIN)/python -m tests.support.run tests/integration 3

e2e: install ## whole stacks, one story a file
	$(BIN)/python -m tests.support.run tests/e2e 2

bench: install ## measure; prints, and writes bench/results.json
	@$(BIN)/python -m bench

lint: install ## ruff and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: install ## mypy --strict
	$(BIN)/mypy

format: install ## rewrite the layout
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

schemas: install ## write JSON schemas and golden samples of new messages
	$(BIN)/python -m tests.contract.write

docs: install ## write docs/events.md, docs/asyncapi, deploy/nats
	$(BIN)/python -m shared.bus.docs docs

up: install ## start everything on this host
	@$(BIN)/gpubus up

down: install ## stop it
	@$(BIN)/gpubus down

lock: ## pin every dependency with hashes (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --all-extras --group dev --output-file requirements.lock pyproject.toml

clean: ## remove what was built here
	rm -rf $(VENV) .demo build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
