# Every target sets up what it needs: `make run` and `make test` are the only commands to know.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src -name '*.pyx' -o -name '*.pxd')

.PHONY: run test check lint types layers bench suites fuzz clean

run: $(VENV)/.built
	$(BIN)/warren dev

test: $(VENV)/.built check
	$(BIN)/pytest -q -n 2 tests

check: $(VENV)/.built lint types layers
	$(BIN)/pytest -q -n 2 tests/unit tests/property tests/session -m "not slow"

lint: $(VENV)/.built
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/cython-lint src

types: $(VENV)/.built
	$(BIN)/mypy

layers: $(VENV)/.built
	$(BIN)/lint-imports

$(VENV)/.installed: pyproject.toml requirements/dev.txt
	@command -v $(PYTHON) >/dev/null || { echo "Warren needs Python 3.11: install it, or name yours with 'make PYTHON=python3.12 ...'"; exit 1; }
	@command -v gcc >/dev/null || { echo "Warren compiles its data plane: install gcc first (Debian: apt-get install gcc)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -r requirements/dev.txt
	@touch $@

$(VENV)/.built: $(VENV)/.installed setup.py $(SOURCES)
	$(BIN)/pip install -q --no-build-isolation --no-deps -e .
	@touch $@

clean:
	rm -rf $(VENV) build src/*.egg-info
	find src -name '*.so' -delete
