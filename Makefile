# The menu of this project. `make run` and `make test` set up everything they need in .venv.
# Needs python3 (3.11 or later) with venv, and make; nothing else.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest
SOURCES := coordinator protocol storage pipeline clients

.PHONY: help setup run demo test test-oldest test-compiled test-compiled-long sim fuzz crowds soak mutants differential test-clients test-clients-long test-consumers-long test-storage test-storage-long test-poolers test-gateway test-gateway-long test-registry test-registry-oldest test-pipeline test-pipeline-long ledger pictures ci lint types imports unit fmt docs pipeline-demo bench bench-parts bench-storage bench-micro guard bench-consumers bench-pipeline clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

.venv/bin/python:
	@$(PYTHON) -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "groupkeeper needs Python 3.11 or later with venv (Debian: apt install python3-venv)." >&2; exit 1; }
	@$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing groupkeeper into .venv (a minute, the first time)"
	@PIP_CONSTRAINT=constraints.txt $(PIP) install -e '.[server]'
	@touch $@

.venv/installed-for-tests: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing groupkeeper and what its tests need into .venv (a minute, the first time)"
	@PIP_CONSTRAINT=constraints.txt $(PIP) install -e '.[test]'
	@touch $@ .venv/installed

.venv/installed-for-pipeline: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing groupkeeper with PySpark into .venv (some minutes and 0.5 GB, the first time)"
	@PIP_CONSTRAINT=constraints.txt $(PIP) install -e '.[test,pipeline,export]'
	@touch $@ .venv/installed-for-tests .venv/installed

.venv/installed-for-fuzzing: .venv/installed-for-tests
	@echo "Installing what fuzzing needs into .venv"
	@PIP_CONSTRAINT=constraints.txt $(PIP) install -e '.[test,fuzz]'
	@touch $@

# What constraints-oldest.txt has, and for the rest what constraints.txt has. To compile all of it
# would take a third of the time, and the tests import little of it.
OLDEST_PIP := .venv-oldest/bin/python -m pip --disable-pip-version-check --quiet
.venv-oldest/installed: pyproject.toml constraints.txt constraints-oldest.txt
	@echo "Installing the oldest versions that groupkeeper allows into .venv-oldest (a minute, the first time)"
	@rm -rf .venv-oldest
	@$(PYTHON) -m venv .venv-oldest
	@awk -F== '/^#/ { next } FNR == NR { old[$$1] = 1; print; next } !($$1 in old)' \
	  constraints-oldest.txt constraints.txt > .venv-oldest/constraints.txt
	@PIP_CONSTRAINT=.venv-oldest/constraints.txt $(OLDEST_PIP) install --no-compile -e '.[test]'
	@touch $@

setup: .venv/installed-for-tests ## Create .venv with everything for development

run: .venv/installed ## Run the daemon: Kafka 127.0.0.1:9092, HTTP 127.0.0.1:9308, SQLite in var/
	@mkdir -p var
	@exec $(BIN)/groupkeeper serve --config deploy/run.toml

demo: .venv/installed ## Half a minute: consumers and the daemon are killed, and the group goes on
	@$(BIN)/python examples/demo.py

pipeline-demo: .venv/installed-for-pipeline ## Consumers misbehave, and the reports tell who did what; needs Java 17
	@$(BIN)/python -m examples.pipeline_demo

test: lint types imports unit ## Everything that needs only Python: lint, types, layers, all tests

# Most of their time they wait, for servers and for clients of other languages. `guard` counts instructions,
# which other work does not change. The longest come first.
SIDE_BY_SIDE := test-clients differential test-storage test-gateway test-registry guard test-registry-oldest

ci: ## What must pass before anything lands; a skipped test is a failure here
	REQUIRE_ALL=1 $(MAKE) test
	REQUIRE_ALL=1 $(MAKE) test-oldest
	REQUIRE_ALL=1 $(MAKE) test-compiled
	REQUIRE_ALL=1 $(MAKE) sim
	REQUIRE_ALL=1 $(MAKE) mutants
	REQUIRE_ALL=1 $(MAKE) --jobs=2 --output-sync=target $(SIDE_BY_SIDE)
	REQUIRE_ALL=1 $(MAKE) test-pipeline

# What only other targets run: an old client cannot even import it.
ELSEWHERE := clients|clients_long|spark|spark_long|differential|compiled|compiled_long|registry|postgres|zookeeper|consul|kafka_topic|storage_long|gateway|gateway_long
RUN_ELSEWHERE = $(shell grep -lrE '^pytestmark = \[?pytest\.mark\.($(ELSEWHERE))\b' tests)

# Members of the new protocol, which the oldest librdkafka does not speak.
NEED_NEW_LIBRDKAFKA := $(addprefix tests/conformance/, \
  test_consumer_protocol.py \
  test_migration_guide.py::test_librdkafka_refuses_the_settings_that_the_guide_removes \
  test_in_process_server.py::test_members_of_a_consumer_group \
  test_in_process_server.py::test_a_consumer_group_resumes \
  test_testing_doc.py::test_an_example_passes_as_it_stands[consumer-group])
# The help of the commands as it stands in the docs: the oldest Typer shows choices in other brackets.
NEED_NEW_TYPER := tests/house/test_docs.py::test_what_stands_between_markers_is_printed_from_the_code[commands.md]
OTHERS := 'fastapi==0.115.*' 'structlog==24.4.*' 'aiokafka==0.12.*'
test-oldest: .venv/installed-for-tests .venv-oldest/installed ## `make unit` on the oldest versions that pyproject.toml allows, with fewer random examples; how pip resolves beside others
	$(OLDEST_PIP) install --dry-run --ignore-installed '.[server]' $(OTHERS)
	EXAMPLES_SHARE=0.2 $(MAKE) unit BIN=.venv-oldest/bin LEFT_OUT='$(RUN_ELSEWHERE)' DESELECTED='$(NEED_NEW_LIBRDKAFKA) $(NEED_NEW_TYPER)'

test-compiled: .venv/installed-for-tests ## The tests of the hot path, once more on it as mypyc compiles it; needs a C compiler
	@command -v cc >/dev/null || { echo "make test-compiled needs a C compiler and Python's headers (Debian: apt install gcc libc6-dev python3-dev)." >&2; exit 1; }
	WORKERS=$(WORKERS) $(PYTEST) -q -m compiled tests/conformance/test_compiled.py tests/house/test_image.py

test-compiled-long: .venv/installed-for-tests ## Simulated worlds and the comparison with Kafka, on the compiled hot path; SEEDS=2000 for more
	WORKERS=$(WORKERS) $(PYTEST) -q -s -m compiled_long tests/conformance/test_compiled.py

sim: .venv/installed-for-tests ## Simulated worlds; SEEDS=2000 or MINUTES=60 for more, SEED=17 for one
	@WORKERS=$(WORKERS) $(BIN)/python -m tests.simulation.run

mutants: .venv/installed-for-tests ## Break the code on purpose, and see that a test notices; DRAWN=200 for more
	$(BIN)/python -m tests.mutants

differential: .venv/installed-for-tests ## Compare with a real Kafka; ALL_VERSIONS=1, CASES=2000 for more, POLICY=downgrade for another migration policy
	$(PYTEST) -q -m differential tests/conformance/kafka tests/gateway

test-clients: .venv/installed-for-tests ## Kafka's command line and clients in Java, Go, JavaScript, C
	WRITE_COMPATIBILITY=1 $(PYTEST) -q -m clients tests/conformance

test-clients-long: .venv/installed-for-tests ## Clients of consumer groups for 8 minutes: 20 members, kills, rolls; KILLS=100 KILL_SEED= for more
	$(PYTEST) -q -s -m clients_long $(addprefix tests/conformance/,test_consumer_protocol_long.py test_librdkafka_troubles.py)

CONSUMER_PROPERTIES := $(addprefix tests/property/,test_consumer_group.py test_mixed_groups.py \
  test_reconciliation.py test_consumer_assigning.py test_consumer_protocol.py)
test-consumers-long: .venv/installed-for-tests ## Random lives of consumer and mixed groups, 10,000 each; EXAMPLES_SHARE=5 for 500
	EXAMPLES_SHARE=$(or $(EXAMPLES_SHARE),100) $(PYTEST) -q -n $(WORKERS) $(CONSUMER_PROPERTIES)

test-storage: .venv/installed-for-tests ## The contract of storage on a real PostgreSQL, ZooKeeper, Consul and Kafka, with their failures; needs Java and Maven
	$(PYTEST) -q -m "(postgres or zookeeper or consul or kafka_topic) and not pooler and not storage_long" tests/storage

test-storage-long: .venv/installed-for-tests ## A store on each server that is away for two minutes, while members commit, one of three ZooKeepers and one of two Kafka brokers killed; OUTAGE_S=30 for less
	$(PYTEST) -q -s -m storage_long tests/storage

test-gateway: .venv/installed-for-tests ## Clients of a real Kafka through the daemon in gateway mode; needs Java, Maven, Go, Node.js
	$(PYTEST) -q -m gateway tests/gateway

test-gateway-long: .venv/installed-for-tests ## Exactly-once copies and groups in four languages, with kills, for many minutes; needs what test-gateway needs. RECORDS=1000 for less, NUMBERS=1000000 for more
	RECORDS=$(or $(RECORDS),10000) $(PYTEST) -q -s -m gateway_long tests/gateway

test-poolers: .venv/installed-for-tests ## That PostgreSQL's poolers are refused with the reason; needs Debian's postgresql and pgbouncer
	$(PYTEST) -q -m pooler tests/storage

# A server in each worker, and a file in one of them.
REGISTRY := tests/registry
OLDEST_REGISTRY := tests/registry/zookeeper/test_registry.py tests/registry/zookeeper/test_session.py
test-registry: .venv/installed-for-tests ## Registry and readers on a real ZooKeeper, Consul and Kafka; needs Java and Go
	$(PYTEST) -q -n $(WORKERS) --dist loadfile -m registry $(REGISTRY)

test-registry-oldest: .venv/installed-for-tests .venv-oldest/installed ## The registry on ZooKeeper, on the oldest versions that pyproject.toml allows
	$(MAKE) test-registry BIN=.venv-oldest/bin REGISTRY='$(OLDEST_REGISTRY)'

# A JVM in each worker, and a file in one of them: what its tests share is computed once.
test-pipeline: .venv/installed-for-pipeline ## The Spark jobs over the event log; needs Java 17
	@command -v java >/dev/null || { echo "make test-pipeline needs Java 17 (Debian: apt install openjdk-17-jre-headless)." >&2; exit 1; }
	$(BIN)/mypy -p groupkeeper.pipeline
	$(PYTEST) -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m spark tests/pipeline tests/examples

ledger: .venv/installed-for-pipeline ## The tables against what real consumers wrote down, for longer (LEDGER_STEPS=, LEDGER_SEED=); needs Java 17
	LEDGER_STEPS=$(or $(LEDGER_STEPS),2000) LEDGER_SEED=$(or $(LEDGER_SEED),1) $(PYTEST) -q -m spark tests/pipeline/test_ledger.py

test-pipeline-long: .venv/installed-for-pipeline ## Proofs about the pipeline that take minutes, of which test-pipeline has a small case; needs Java 17
	@command -v java >/dev/null || { echo "make test-pipeline-long needs Java 17 (Debian: apt install openjdk-17-jre-headless)." >&2; exit 1; }
	$(PYTEST) -q -m spark_long tests/pipeline tests/examples

# A browser cannot be installed with pip alone, and pictures are for eyes: not a part of `make ci`.
pictures: .venv/installed-for-pipeline ## Every page of the reports in Chromium, with 0, 8 and 10,000 groups; needs Java 17 and Chromium
	@command -v $${CHROMIUM:-chromium} >/dev/null || { echo "make pictures needs Chromium (Debian: apt install chromium)." >&2; exit 1; }
	@$(PIP) install playwright
	@$(BIN)/python -m tests.helpers.pictures.pictures

soak: .venv/installed-for-tests ## 10 minutes of faults (MINUTES= GROUPS= MEMBERS=): kill -9, full disk, held database...
	@$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),10) --groups $(or $(GROUPS),200) $(if $(MEMBERS),--members $(MEMBERS))

crowds: .venv/installed-for-tests ## Crowds in consumer groups: 10,000 patterns, 20,000 names, a joiner every millisecond; is a callback slow?
	@$(BIN)/python -m tests.fuzz.crowds

fuzz: .venv/installed-for-fuzzing ## Random bytes, frames and requests for 10 minutes (MINUTES= ONLY= SEED= KEEP=1)
	@$(BIN)/python -m tests.fuzz

lint: .venv/installed-for-tests ## Style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed-for-tests ## mypy --strict
	$(BIN)/mypy

imports: .venv/installed-for-tests ## The layers of docs/architecture.md
	$(BIN)/lint-imports

# Two a core: many of the tests wait, for clients, processes and pip.
unit: .venv/installed-for-tests ## All tests, without the linters
	$(PYTEST) -q -n $$((2 * $(WORKERS))) --dist worksteal $(addprefix --ignore=,$(LEFT_OUT)) $(foreach each,$(DESELECTED),'--deselect=$(each)')

fmt: .venv/installed-for-tests ## Format and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/installed-for-tests ## Print config.example.toml and the tables of docs/ from the code
	$(BIN)/python -m tests.helpers.printed.printed_docs

bench-micro: .venv/installed-for-tests ## What each layer of the hot path costs, here and in the commit in bench/guard-base, by turns
	$(BIN)/python -m bench.by_turns micro

guard: .venv/installed-for-tests ## Instructions a request, beside those of the commit in bench/guard-base; needs valgrind and a C compiler
	@$(BIN)/python -m bench.guard

BUSY ?= 0
ROUNDS ?= 5
INTERPRETER ?= $(BIN)/python
bench: .venv/installed-for-tests ## Beside a real Kafka and a bare echo (BUSY=2 ROUNDS=5 INTERPRETER=/usr/bin/python3); needs Java, Maven, Go
	@$(BIN)/python -m bench.beside_kafka --busy $(BUSY) --rounds $(ROUNDS) --python $(INTERPRETER)

bench-storage: .venv/installed-for-tests ## PostgreSQL, ZooKeeper, Consul and topics of Kafka as stores, beside their raw clients with the same bytes; needs Java and Maven
	@$(BIN)/python -m bench.shared_storage

bench-consumers: .venv/installed-for-tests ## Consumer groups (KIP-848) beside a real Kafka (ROUNDS=5 INTERPRETER=/usr/bin/python3); needs Java, Maven, Go
	@$(BIN)/python -m bench.consumers_beside_kafka --rounds $(ROUNDS) --python $(INTERPRETER)

bench-parts: .venv/installed-for-tests ## The other benchmarks: largest requests, storage, start...
	for bench in bench/*_bench.py; do $(BIN)/python -m bench.$$(basename $$bench .py); done

EVENTS ?= 1000000
bench-pipeline: .venv/installed-for-pipeline ## The pipeline over EVENTS=1000000 events, beside plain Python; what the log costs a commit
	$(BIN)/python -m bench.log_cost
	$(BIN)/python -m bench.pipeline --events $(EVENTS)
	$(BIN)/python -m bench.pipeline_small
	$(BIN)/python -m bench.pipeline_small 240000

clean: ## Forget .venv and every cache, never var/
	rm -rf .venv .venv-oldest .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	rm -f *__mypyc*.so; find $(SOURCES) -name '*.so' -delete
