# Two commands on a fresh machine: make demo, make test. They need python3 (3.11 or later) and a package registry.

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test slow lint bench-risk bench clean

demo: $(VENV)/demo.stamp  ## the quickstart on real data; figures go to out/
	$(BIN)/python examples/quickstart.py --out out

test: $(VENV)/dev.stamp  ## the tests, without those marked slow
	$(BIN)/python -m pytest $(PYTEST_ARGS)

slow: $(VENV)/dev.stamp  ## long statistical checks and benchmarks with targets
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

lint: $(VENV)/dev.stamp  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench-risk: $(VENV)/dev.stamp  ## the exact risk against its peers
	$(BIN)/python benchmarks/risk.py

bench: $(VENV)/dev.stamp  ## every benchmark
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) out build dist

$(VENV)/%.stamp: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[$*]'
	touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) must be Python 3.11 or later; name another with make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
