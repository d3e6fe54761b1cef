# Every target sets up what it needs: `make run` and `make test` are the only commands to know.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.py pyproject.toml $(shell find src -name '*.pyx' -o -name '*.pxd')
# make bench BENCH=--quick, make suites SUITES="--suite kombu", make sim SIM="--seeds 20000"
BENCH ?=
SUITES ?=
# make crash CRASH="--kills 200 --seed 7 --out crash.json", CRASH="--stops 50"
CRASH ?=
SIM ?=
STORE_SIM ?= --seeds 20000
# make faults FAULTS="--seconds 180 --seed 7"
FAULTS ?= --seconds 60

.PHONY: run test check lint types layers bench suites crash faults sim store-sim clean

run: $(VENV)/.built
	$(BIN)/warren dev

test: check
	$(BIN)/pytest -q -n 2 tests --ignore=tests/unit --ignore=tests/property --ignore=tests/session --ignore=tests/peers --ignore=tests/gateway --ignore=tests/sim --ignore=tests/cluster
	$(BIN)/pytest -q -n 2 --dist loadfile tests/cluster
	$(BIN)/pytest -q -n 2 -m slow tests/sim
	$(BIN)/python tests/suites/run.py --fast

check: lint types layers
	$(BIN)/pytest -q -n 2 tests/unit tests/property tests/session tests/peers tests/gateway bench/tests
	$(BIN)/pytest -q -n 2 -m "not slow" tests/sim

lint: $(VENV)/.built
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	PATH="$(BIN):$$PATH" $(BIN)/cython-lint src

types: $(VENV)/.built
	$(BIN)/mypy

layers: $(VENV)/.built
	$(BIN)/lint-imports

# Warren against RabbitMQ (where Debian's rabbitmq-server is installed); renews docs/benchmarks.md.
bench: $(VENV)/.built
	$(BIN)/python -m bench $(BENCH)

# Clusters in virtual time, each from a seed; a failure says which. One again: SIM="--show SEED".
# Mirrored queues alone: SIM="--seeds 0 --members 0 --rings 20000".
sim: $(VENV)/.built
	cd tests && ../$(BIN)/python -m sim $(SIM)

# The store on a failing disk, by more seeds than the tests have.
store-sim: $(VENV)/.built
	$(BIN)/python tests/store/store_schedules.py $(STORE_SIM)

# Other people's client suites against Warren; downloads them.
suites: $(VENV)/.built
	$(BIN)/python tests/suites/run.py --broker warren $(SUITES)

# The broker killed again and again under load; what it had confirmed must come back.
crash: $(VENV)/.built
	$(BIN)/python tests/crash $(CRASH)

# A cluster under load whose nodes are killed, suspended and cut off at random, from a seed.
faults: $(VENV)/.built
	$(BIN)/python tests/cluster/faults.py $(FAULTS)

$(VENV)/.installed: requirements/dev.txt
	@command -v $(PYTHON) >/dev/null || { \
	  echo "Warren needs Python 3.11: install it, or name yours with 'make PYTHON=python3 ...'"; exit 1; }
	@command -v $${CC:-cc} >/dev/null || { \
	  echo "Warren compiles its data plane: install gcc first (Debian: apt-get install gcc)"; exit 1; }
	@echo "setting up $(VENV) (a minute the first time) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -q --disable-pip-version-check -r requirements/dev.txt
	@touch $@

$(VENV)/.built: $(VENV)/.installed $(SOURCES)
	@echo "compiling ..."
	@$(BIN)/pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

clean:
	rm -rf $(VENV) build src/*.egg-info bench/bin
	find src -name '*.so' -delete
