# Everything a fresh machine needs is python3 (with venv), pip and make.
#
#   make fit      plan an example: how Llama 3.1 8B trains on a DGX A100
#   make check    lint, types, layers and all tests but the engine's (no torch)
#   make test     the same, and emitted configs run by the real DeepSpeed on the CPU
#   make engine   the tests that run DeepSpeed, with settings that `make test` leaves out
#   make validate every published run predicted and compared (no torch)
#
# `make test` installs torch (a CPU build is enough; where pip's index has only CUDA builds it takes
# a few GB), DeepSpeed and transformers into $(VENV).

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: fit check test engine validate lint format bench-solve bench-simulate bench-sweep bench-startup docs wheel clean

fit: $(VENV)/.ziplan
	$(BIN)/ziplan fit examples/quickstart/model.yaml examples/quickstart/cluster.yaml

check: $(VENV)/.dev lint
	$(BIN)/python -m pytest -m "not engine"

test: $(VENV)/.dev $(VENV)/.engine lint
	$(BIN)/python -m pytest -n $(JOBS) -m "not engine_all"

engine: $(VENV)/.dev $(VENV)/.engine
	$(BIN)/python -m pytest -n $(JOBS) -m engine

validate: $(VENV)/.ziplan
	$(BIN)/ziplan validate

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-solve: $(VENV)/.dev
	$(BIN)/python benchmarks/solve.py

bench-simulate: $(VENV)/.dev
	$(BIN)/python benchmarks/simulate.py

bench-sweep: $(VENV)/.dev
	$(BIN)/python benchmarks/sweep.py

bench-startup: $(VENV)/.dev
	$(BIN)/python benchmarks/startup.py

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py

wheel: $(VENV)/.ziplan
	$(PIP) wheel --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ziplan: $(BIN)/python pyproject.toml
	$(PIP) install --editable .
	touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(PIP) install --editable '.[dev]'
	touch $@ $(VENV)/.ziplan

# DeepSpeed builds from source, with the setuptools of the environment it goes into.
$(VENV)/.engine: $(VENV)/.dev
	$(PIP) install wheel setuptools hatchling editables
	$(PIP) install --no-build-isolation --editable '.[engine]'
	touch $@
