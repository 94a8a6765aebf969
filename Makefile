# make demo: a real hang and its verdict.  make test: every test.  make repros: every reproducer, diagnosed in every
# way, a quarter of an hour.  All build what they need in .venv first.
PYTHON ?= python3
VENV ?= .venv
WAYS ?= all
BIN := $(VENV)/bin
SOURCES := $(shell find ncclprobe -name '*.py') pyproject.toml

.PHONY: demo repros accuracy test unit lint bench clean

demo: $(VENV)/.repro
	$(BIN)/ncclprobe repro mismatched-logging --diagnose

test: $(VENV)/.dev
	$(BIN)/python -m pytest

repros: $(VENV)/.repro
	$(BIN)/ncclprobe repro --all --diagnose --ways $(WAYS)

# As repros, and writes what came of it into docs/reference/accuracy.md.
accuracy: $(VENV)/.repro
	PYTHONPATH=. $(BIN)/python benchmarks/reproducers.py --write

unit: $(VENV)/.dev
	$(BIN)/python -m pytest tests --ignore tests/e2e

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(VENV)/.dev
	PYTHONPATH=. $(BIN)/python benchmarks/diagnose.py
	PYTHONPATH=. $(BIN)/python benchmarks/analyzer.py
	PYTHONPATH=. $(BIN)/python benchmarks/logs.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# Debian and Ubuntu ship Python without the part of venv that installs pip.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed: make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -qy python3-venv; } \
	  || { echo "Python lacks venv: sudo apt-get install python3-venv, then make again"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip

$(VENV)/.repro: $(SOURCES) constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[repro]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev,repro]'
	@touch $@
