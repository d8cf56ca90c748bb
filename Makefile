# Two commands on a fresh machine: make demo, make test. They need python3 (3.11 or later) and a package registry.

PYTHON ?= python3
VENV ?= .venv
BENCH ?= .venv-bench
PYTEST_ARGS ?=
CORES := -n auto --dist worksteal
BENCH_ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

# Each part of the package once, in a minute or two: for further versions of Python and of what the package needs.
QUICK := tests/comparison tests/problem tests/certify/test_bounds.py tests/certify/test_matchings.py tests/test_numerics.py \
	tests/test_theorems.py tests/ep/test_gaussian.py tests/ep/test_spike_slab.py tests/ep/test_plan.py tests/estimator \
	tests/test_package.py tests/test_versions.py tests/model/test_op.py tests/model/test_potential.py \
	tests/model/test_approximation.py

.PHONY: demo environment environment-lowest test quick test-lowest slow lint style types docs note dist bench-risk \
	bench reliability reproduce clean

demo: $(VENV)/demo.stamp  ## the quickstart on real data; figures go to out/
	$(BIN)/python examples/quickstart.py --out out

# Modules are compiled once: without that, each of the tests' processes compiles PyMC and all that it imports anew.
unexport PYTHONDONTWRITEBYTECODE

# One thread of BLAS in each of the tests' processes: as many threads as cores would wait for each other.
test quick: export OPENBLAS_NUM_THREADS = 1

environment: $(VENV)/dev.stamp  ## what the tests need

test: $(VENV)/dev.stamp  ## the tests, without those marked slow, on all cores
	$(BIN)/python -m pytest $(CORES) $(PYTEST_ARGS)

quick: $(VENV)/dev.stamp  ## the important ones of them
	$(BIN)/python -m pytest $(QUICK) $(CORES) $(PYTEST_ARGS)

environment-lowest test-lowest: export PIP_CONSTRAINT = $(CURDIR)/.ci/lowest.txt

environment-lowest:
	$(MAKE) environment VENV=.venv-lowest

test-lowest:  ## the same, with the lowest version of everything that pyproject.toml allows
	$(MAKE) quick VENV=.venv-lowest

slow: $(VENV)/dev.stamp  ## long statistical checks and benchmarks with targets
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

lint: style types  ## style, types and docstrings
	$(BIN)/python -m pytest --quiet tests/test_docstrings.py

style: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

docs: $(VENV)/docs.stamp  ## the site, in docs/_build/html; a warning is an error
	$(BIN)/sphinx-build -W --keep-going -j auto -b html docs docs/_build/html

note: $(VENV)/docs.stamp  ## the paper on what is new, one page to read or print: docs/_build/note/index.html
	$(BIN)/sphinx-build -W -q -c docs/note -b singlehtml docs/note docs/_build/note

dist:  ## wheel and sdist, tried in clean environments of every Python that is found
	PYTHON=$(PYTHON) .ci/dist

bench-risk: $(VENV)/dev.stamp  ## the exact risk against its peers
	$(BIN)/python -m benchmarks.risk

bench: $(BENCH)/peers.stamp  ## every benchmark against every peer, into docs/theory/benchmark_tables.md (BENCH_ARGS="--only smc")
	$(BENCH)/bin/python -m benchmarks.report $(BENCH_ARGS)
	$(BENCH)/bin/python -m benchmarks.readme

reliability: $(VENV)/dev.stamp  ## what could go wrong, before and after, into docs/develop/reliability.md
	$(BIN)/python -m benchmarks.reliability

reproduce: $(VENV)/dev.stamp  ## the paper's tables and figures, into docs/theory/reproduction.md (COLON=path adds the colon data)
	$(BIN)/python -m examples.reproduce_paper $(if $(COLON),--colon $(COLON))

clean:
	rm -rf $(VENV) $(BENCH) .venv-* out build dist

$(VENV)/%.stamp: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[$*]'
	touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) must be Python 3.11 or later; name another with make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# particles 0.4 asks for NumPy 1 but runs on NumPy 2, so it comes without its dependencies (the others bring them).
# LibAUC brings torch, several gigabytes: where that does not install, the benchmarks leave it out.
$(BENCH)/peers.stamp: pyproject.toml benchmarks/requirements-peers.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[plots,sklearn]' \
		--requirement benchmarks/requirements-peers.txt
	$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps particles==0.4
	-$(BENCH)/bin/python -m pip install --quiet --disable-pip-version-check libauc==2.0.1 torch==2.13.0
	touch $@
