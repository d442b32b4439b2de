# Everything runs in .venv, which the first target that needs it makes from python3 and the package index.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)
RUN_STAMP := $(VENV)/.ready-run
TEST_STAMP := $(VENV)/.ready-test
BENCH_STAMP := $(VENV)/.ready-bench
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.DEFAULT_GOAL := help
.PHONY: help demo test suite thorough quick op-tests lint types layers docs bench gate size generated clean

help:  ## say what can be made
	@sed -n 's/^\([a-z-]*\):.*##/\1\t/p' $(MAKEFILE_LIST) | expand -t 10

demo: $(RUN_STAMP)  ## train a small GPT on Python source, write text with it, and a report to look at
	$(BIN)/python examples/demo.py

# Types take minutes of one core, so they are checked beside the tests.
test: lint layers  ## style, types, layers, and the suite
	@$(MAKE) --no-print-directory --jobs=2 types suite

# Workers go through the files in halves and take from each other at the end: what a file's tests share is made once.
suite: $(TEST_STAMP)  ## the suite: of functions with long lists of cases a few
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not thorough"

thorough: $(TEST_STAMP)  ## what the suite leaves out: all other cases, campaigns, new environments
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m thorough

quick: $(TEST_STAMP)  ## the suite without its slow tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

op-tests: $(TEST_STAMP)  ## all tests of one op or scalar function: make op-tests NAME=softmax
	$(if $(NAME),,$(error say which: make op-tests NAME=softmax))
	$(BIN)/python -m pytest -n $(WORKERS) tests/numerics tests/ir tests/graph tests/backends/cpu/test_math.py \
	    tests/backends/nvptx/test_compile.py tests/device/test_ops.py tests/rules/test_size.py -k "$(NAME) or is_tried or budget"

lint: $(TEST_STAMP)  ## ruff, lint and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(TEST_STAMP)  ## pyright, strict
	$(BIN)/pyright

layers: $(TEST_STAMP)  ## who may import whom
	$(BIN)/lint-imports --no-cache

docs: $(RUN_STAMP)  ## the documentation as a static site with search, in build/site; works offline
	$(BIN)/python -m scripts.documents.site

bench: $(BENCH_STAMP)  ## the CPU workloads against NumPy, PyTorch and JAX
	$(BIN)/python -m benchmarks.cpu

BASE ?= HEAD~1
gate: $(TEST_STAMP)  ## the speed of this checkout and of BASE, the commit before: fails where this one is surely slower
	git worktree prune
	git worktree add --quiet --force --detach build/base $(BASE)
	$(BIN)/python -m benchmarks.gate build/base; status=$$?; git worktree remove --force build/base; exit $$status

size: $(RUN_STAMP)  ## lines of code per stage
	$(BIN)/python scripts/size.py

generated: $(TEST_STAMP)  ## what is made from declarations: stubs, tables of ops, FileCheck tests of ops without one
	$(BIN)/python scripts/facade_stub.py
	$(BIN)/python scripts/scalar_stubs.py
	$(BIN)/python scripts/typed_ops.py
	$(BIN)/python scripts/ops.py
	$(BIN)/python -m scripts.constructs
	$(BIN)/python -m scripts.passes
	$(BIN)/python -m scripts.contracts
	$(BIN)/python -m scripts.api_reference

clean:  ## remove the environment and what tools leave behind
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist

$(VENV)/bin/python:
	@echo "making an environment in $(VENV); what it needs comes from the package index, which can take minutes"
	$(PYTHON) -m venv $(VENV)

$(RUN_STAMP): pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable .
	@touch $@

$(TEST_STAMP): pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable '.[test]'
	@touch $@ $(RUN_STAMP)

$(BENCH_STAMP): pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable '.[bench]'
	@touch $@ $(RUN_STAMP)
