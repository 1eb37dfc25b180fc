# Everything a checkout needs, on a bare Debian or Ubuntu: python3 >= 3.11 with venv, and make;
# nothing else, but the network the first time.
#
# Python packages go to .venv, pinned with checksums (requirements/*.txt). Kafka's jars go to a cache folder
# that all checkouts share ($SLUICE_CACHE, else ~/.cache/sluice), pinned likewise (requirements/kafka-jars*.lock):
# 4.3.1 for everything, and for the tests the oldest broker that is supported, too.
# Java is the machine's if it is 17 or newer, else the one that came with the packages.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
# Further arguments for the program that a target runs: make test ARGS='-k quota -x'
ARGS ?=
# How many test processes: most tests wait for brokers and clients, and each process starts its own broker.
WORKERS ?= 3
# Only for `make lock`; nothing at run time needs it.
UV_VERSION := 0.13.9

PY := .venv/bin/python
READY := .venv/.ready
PUMP := .venv/.pump
DEPLOY_READY := .venv/.deploy-ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests and benchmarks start many processes; without compiled modules each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# --- what people call --------------------------------------------------------------------------------------

.PHONY: demo newcomer recalibrate-demo test test-long mutants fuzz-pump coverage test-slow test-quick test-under-load lint types contracts structure check-generated build-check check-deploy check-docs docs test-pyspark-range generate reference pictures lock
.PHONY: kafka kafka-all setup clean help bench-evenness bench-bypass bench-clients bench-access-log bench-cost bench-hostile bench-faults bench-soak bench-tls bench-producer-ids bench-producer-ids-cost bench-storm bench-entities bench-calibration bench-access-writer bench-recalibration bench-replication bench-request-cost bench-scrape

demo: setup kafka  ## one quota, an overload, a storm of producer ids: broker alone and with Sluice, live; 90 seconds
	@$(PY) -m bench.demo $(ARGS)

# A file's tests stay with one process, and so do all that share a Spark (testkit/spark/one_process.py). Files go
# out in their order, real Kafkas early: with the largest first a process would wait at the end for what the other
# has just begun.
PYTEST := $(PY) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# For a test of minutes, or one beside other load: no end to how long it takes.
NO_LIMIT := -o faulthandler_timeout=0

test: setup kafka-all  ## the test suite, each feature at a real Kafka, too; starts that itself: twelve to twenty-five minutes
	@$(PYTEST) -m 'not slow and not long' $(ARGS)

test-long: setup kafka-all  ## further cases of what `make test` has one of, all examples of the property tests; CI runs both: as long
	@TESTS_THOROUGH=1 $(PYTEST) -m '(long or thorough or hypothesis) and not slow' $(ARGS)

test-quick: setup  ## only those of `make test` that need no Kafka: minutes
	@$(PYTEST) -m 'not slow and not long and not kafka' $(ARGS)

test-slow: setup kafka-all  ## the tests marked slow: minutes each
	@$(PY) -m pytest $(NO_LIMIT) -m slow $(ARGS)

# PySpark before 4.3 leaves sockets to the garbage collector, in whose test it may be.
LEAKY := -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning
test-pyspark-range: setup  ## the nightly job at the lowest PySpark that it takes, and its plan against the highest's: a quarter of an hour
	@PYTHONPATH=$$($(PY) -m tools.pyspark_lowest) $(PY) -m pytest $(LEAKY) --ignore tests/recalibration/spark/test_pyspark_range.py tests/recalibration $(ARGS)
	@$(PY) -m pytest tests/recalibration/spark/test_pyspark_range.py

test-under-load: setup kafka-all  ## test and test-long, while other processes keep all cores busy: an hour
	@TESTS_THOROUGH=1 $(PY) -m tools.under_load -- $(PYTEST) $(NO_LIMIT) -m 'not slow' $(ARGS)

fuzz-pump: setup  ## the compiled data path against the Python code on random traffic: a million steps, minutes; last line JSON
	@$(PY) -m tools.fuzz_pump $(ARGS)

mutants: setup  ## 600 changes of the pure packages, each to be noticed by a unit test: half an hour; last line JSON
	@$(PY) -m tools.mutants $(ARGS)

coverage: setup  ## branch coverage of the pure packages by their unit tests, with gates: a quarter of an hour; last line JSON
	@$(PY) -m tools.branch_coverage

newcomer: setup kafka  ## plays the newcomer: install, quick start, who is throttled; by the docs alone, timed; last line JSON
	@$(PY) -m bench.newcomer $(ARGS)

recalibrate-demo: setup kafka  ## traffic → access log → nightly job → plan → applied → enforced; ARGS='--keep out' keeps them; last line JSON
	@$(PY) -m bench.recalibrate_demo $(ARGS)

bench-evenness: setup kafka  ## how even the rate is, native quota against Sluice; last line JSON
	@$(PY) -m bench.evenness $(ARGS)

bench-bypass: setup kafka  ## every known way round a limit as an attack, at Sluice and at the broker; last line JSON
	@$(PY) -m bench.bypass $(ARGS)

bench-clients: setup kafka  ## twelve client libraries under quotas that bite: lost, doubled, given up; last line JSON
	@$(PY) -m bench.clients $(ARGS)

bench-producer-ids: setup  ## what a producer id costs to look up and to remember, by store; last line JSON
	@$(PY) -m bench.producer_id_store $(ARGS)

bench-producer-ids-cost: setup  ## what the quota adds to a Produce of a known producer id; last line JSON
	@$(PY) -m bench.producer_id_cost $(ARGS)

bench-cost: setup kafka  ## processor time and memory of the proxy against HAProxy; last line JSON
	@$(PY) -m bench.cost $(ARGS)

bench-hostile: setup kafka  ## good clients beside damaged frames, garbage and slow drips; last line JSON
	@$(PY) -m bench.hostile $(ARGS)

bench-faults: setup kafka  ## kills, damaged files, a full disk, a clock that jumps …: lost, told, how soon over (root); last line JSON
	@$(PY) -m bench.faults $(ARGS)

bench-soak: setup kafka  ## 300 restarts of the proxy and 20 broker kills under load; last line JSON
	@$(PY) -m bench.soak $(ARGS)

bench-entities: setup  ## what 1 to 10,000 entities cost to load, to look up, and each request; last line JSON
	@$(PY) -m bench.entities $(ARGS)

bench-request-cost: setup kafka  ## how far the costs of request_percentage are from a real broker's figures; last line JSON
	@$(PY) -m bench.request_cost $(ARGS)

bench-storm: setup kafka  ## 10,000 new producer ids a second, through Sluice and without it; last line JSON
	@$(PY) -m bench.storm $(ARGS)

bench-calibration: setup  ## how well nightly limits fit demands that are known, a score of 0 to 100; last line JSON
	@$(PY) -m bench.calibration $(ARGS)

bench-recalibration: setup  ## what the nightly job costs, beside DuckDB; its goals: ARGS='--rows 100000000 --skip-growth'; last line JSON
	@$(PY) -m bench.recalibration $(ARGS)

bench-access-writer: setup  ## what writing the access log costs, and the loop's tail latency beside it; last line JSON
	@$(PY) -m bench.access_writer $(ARGS)

bench-replication: setup kafka  ## a throttled partition move, native throttle against Sluice, and with faults; last line JSON
	@$(PY) -m bench.replication $(ARGS)

bench-access-log: setup  ## what the access log costs a request: processor time, bytes on disk; last line JSON
	@$(PY) -m bench.access_log $(ARGS)

bench-scrape: setup  ## what a page of metrics costs, by prometheus_client's own writer and by ours; last line JSON
	@$(PY) -m bench.scrape $(ARGS)

bench-tls: setup  ## processor time of ending TLS against HAProxy; last line JSON
	@$(PY) -m bench.tls_cost $(ARGS)

lint: setup  ## ruff: rules and format
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

types: setup $(DEPLOY_READY)  ## mypy --strict over everything, tests too
	@$(PY) -m mypy

contracts: setup  ## which package may import which
	@.venv/bin/lint-imports

structure: setup  ## sizes of folders, modules and functions, import cycles, purity; last line JSON
	@$(PY) -m tools.structure

check-generated: setup kafka  ## the protocol tables are what the generator makes of Kafka's jar
	@$(PY) -m tools.protocol_tables --check

generate: setup kafka  ## write the protocol tables anew from Kafka's jar
	@$(PY) -m tools.protocol_tables

reference: setup  ## what is made of options, metrics and values, written anew: docs, schemas, charts, dashboard
	@$(PY) -m tools.reference
	@$(PY) deploy/helm/generate.py
	@$(PY) deploy/grafana/generate.py
	@$(PY) -m tools.pictures

pictures: setup kafka $(DEPLOY_READY)  ## docs/images anew: drawings, and the pages as the checks in Chromium see them
	@$(PY) -m tools.pictures
	@PICTURES_FOLDER=docs/images $(PY) deploy/check.py status_page report_page

build-check: setup  ## source distribution, wheel from it, and that wheel in a fresh environment
	@.ci/build-check

check-deploy: setup kafka $(DEPLOY_READY)  ## what needs Debian's packages, Go or root: image, chart, alerts, pages, audit
	@$(PY) deploy/check.py $(ARGS)

check-docs: setup  ## every command and configuration of README and docs loaded or parsed; last line JSON
	@$(PY) -m tools.check_docs

docs: setup $(DEPLOY_READY)  ## the documentation as a site, into .cache/site; every link inside it checked
	@PYTHONPATH=. $(PY) deploy/checks/docs_site.py

lock: setup  ## pin anew what pyproject.toml and testkit/kafka/lock.py ask for (newest of all: ARGS=--upgrade)
	@[ -x .cache/lock/bin/uv ] || { $(PYTHON) -m venv .cache/lock; .cache/lock/bin/pip install -q uv==$(UV_VERSION); }
	@pin() { \
	  echo "requirements/$$1.txt"; \
	  .cache/lock/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
	    --no-emit-index-url --no-emit-find-links --system-certs $(ARGS) "$${@:2}" -o "requirements/$$1.txt"; \
	}; \
	pin run pyproject.toml; \
	pin dev pyproject.toml --group dev; \
	pin image pyproject.toml --extra access-log -c requirements/dev.txt; \
	pin recalibration pyproject.toml --extra recalibration -c requirements/dev.txt; \
	pin deploy --group deploy -c requirements/dev.txt; \
	pin build --group build; \
	pin pyspark-lowest --group pyspark-lowest
	@$(PY) -m testkit.kafka.dist --lock

clean:  ## remove all that this Makefile made here (not the shared cache of Kafka's jars)
	rm -rf .venv .editable .cache dist .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## this list
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "  make %-23s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- set-up: quick when nothing has changed ----------------------------------------------------------------

setup: $(PUMP)

kafka: setup
	@$(PY) -m testkit.kafka.dist --quiet

kafka-all: setup
	@$(PY) -m testkit.kafka.dist --all
	@$(PY) -m testkit.kafka.class_archive

$(READY): requirements/dev.txt pyproject.toml hatch_build.py
	@command -v $(PYTHON) >/dev/null || { echo "Sluice needs python3 (3.11 or newer): apt-get install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Sluice needs Python 3.11 or newer; $(PYTHON) is %d.%d. Say which to use: make PYTHON=/path/to/python3.11" % sys.version_info[:2])'
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) has no venv module: apt-get install python3-venv" >&2; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || { echo "Python: creating .venv with $$($(PYTHON) --version)"; $(PYTHON) -m venv .venv; }
	@echo "Python: installing $$(grep -c '^[a-z].*==' requirements/dev.txt) pinned packages into .venv"
	@$(PY) -m pip install --progress-bar off --require-hashes -r requirements/dev.txt | { \
	  count=0; while read -r word _; do case $$word in \
	    Collecting) count=$$((count + 1)); ((count % 20)) || echo "  $$count fetched";; \
	    Installing) echo "  all fetched; unpacking them takes half a minute";; \
	  esac; done; }
	@$(PY) -m pip install -q --no-deps --no-build-isolation -e .
	@touch $@
	@echo "Python: ready"

# The compiled data path, where a C compiler and Python's headers are; else Sluice runs as Python alone.
$(PUMP): $(READY) hatch_build.py $(wildcard proxy/pump/*.pyx proxy/pump/*.pxi)
	@$(PY) hatch_build.py
	@touch $@

$(DEPLOY_READY): $(READY) requirements/deploy.txt
	@echo "Python: installing what the deployment's checks need"
	@$(PY) -m pip install -q --progress-bar off --require-hashes -r requirements/deploy.txt
	@touch $@
