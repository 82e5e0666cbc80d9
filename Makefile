# `make` prints this help. Everything runs from the checkout; nothing is installed elsewhere.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
UV := $(VENV)/bin/uv
export PYTHONUNBUFFERED := 1
# uv knows the system's certificates only when told (a proxy may have one of its own).
export UV_SYSTEM_CERTS := 1
export UV_NO_PROGRESS := 1

# A set is up to date when the stamp with its lock's checksum is there. diffusion contains gpu, dev
# contains both.
sum = $(firstword $(shell cksum < requirements/$(1)))
GPU_STAMP := $(VENV)/gpu-$(call sum,gpu.txt)
DEV_STAMP := $(VENV)/dev-$(call sum,dev.txt)
DIFFUSION_STAMP := $(VENV)/diffusion-$(call sum,diffusion.txt)
UV_STAMP := $(VENV)/uv-$(call sum,bootstrap.txt)
RUN_STAMP := $(firstword $(wildcard $(DEV_STAMP) $(DIFFUSION_STAMP)) $(GPU_STAMP))

.DEFAULT_GOAL := help
.PHONY: help setup setup-diffusion setup-dev up down status demo check static test bench lock clean

help:  ## this list
	@echo "Cutlog: an AI editing backend whose every change is an event in Kafka."
	@echo
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1@\2/p' $(MAKEFILE_LIST) | awk -F@ '{printf "%-22s %s\n", $$1, $$2}'

setup: $(RUN_STAMP)  ## packages, Kafka, sample clips and models; done by itself before the others
	@$(PY) -m cutlog.stack jars
	@$(PY) -m cutlog.samples > /dev/null
	@$(PY) -m cutlog.model_files > /dev/null

setup-diffusion: $(if $(wildcard $(DEV_STAMP)),$(DEV_STAMP),$(DIFFUSION_STAMP))  ## the same with torch and diffusers (5 GB), for the scene genai
	@$(MAKE) --no-print-directory setup

setup-dev: $(DEV_STAMP)  ## the same with the tools that `make check` needs
	@$(PY) -m cutlog.stack jars
	@$(PY) -m cutlog.samples > /dev/null
	@$(PY) -m cutlog.model_files > /dev/null

up: setup  ## start everything and stay: Kafka, Postgres, Valkey, S3 and Cutlog's processes
	@$(PY) -m cutlog up

down: $(RUN_STAMP)  ## end what `make up` started
	@$(PY) -m cutlog down
	@test ! -d .cutlog/demo || $(PY) -m cutlog down -d .cutlog/demo

status: $(RUN_STAMP)  ## what runs, and how far behind it is
	@$(PY) -m cutlog status

demo: setup  ## from upload to film, once, with real video; then stop
	@$(PY) -m cutlog demo

check:  ## format, lint, types, import rules and all tests, with a time budget for each part
	@began=$$(date +%s); $(MAKE) --no-print-directory setup-dev || exit 1; \
	CHECK_SETUP_SECONDS=$$(( $$(date +%s) - began )) $(PY) -m tests.check

static: $(DEV_STAMP)  ## only format, lint, types and import rules
	@$(PY) -m tests.check static

test: setup-dev  ## only the tests, without the long ones (faults, simulation)
	@$(PY) -m tests.check units integration

bench: setup-dev  ## whole lifecycles a second on this machine
	@$(PY) -m cutlog bench lifecycles

lock: $(DEV_STAMP)  ## resolve the locks in requirements/ anew, for every Python from 3.11 on
	@for set in dev bootstrap; do $(COMPILE) requirements/$$set.in -o requirements/$$set.txt || exit 1; done
	@for set in diffusion gpu run; do $(COMPILE) -c requirements/dev.txt requirements/$$set.in -o requirements/$$set.txt || exit 1; done
	@for set in samples models pictures; do $(COMPILE) --no-deps requirements/$$set.in -o requirements/$$set.txt || exit 1; done
	@$(PY) -m cutlog.stack lock
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate

clean:  ## delete the environment, the caches and the local stack's data
	@test ! -x $(PY) || test ! -d .cutlog || $(MAKE) --no-print-directory down || true
	@rm -rf $(VENV) .cache .cutlog .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# -------------------------------------------------------------------------- the environment

$(UV_STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "Cutlog needs Python 3.11 or later; \`make PYTHON=...\` names another one." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || { \
	echo "This Python can't make environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "setting up $(VENV) and what it needs, once: a minute or two…"
	@test -x $(PY) && $(PY) -c 'import pip' 2> /dev/null || $(PYTHON) -m venv --clear $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@touch $@

$(DEV_STAMP): $(UV_STAMP)
	@$(UV) pip sync --quiet --require-hashes --python $(PY) requirements/dev.txt
	@rm -f $(VENV)/gpu-* $(VENV)/diffusion-* $(VENV)/dev-*
	@touch $@

$(GPU_STAMP): $(UV_STAMP)
	@$(UV) pip sync --quiet --require-hashes --python $(PY) requirements/gpu.txt
	@rm -f $(VENV)/gpu-* $(VENV)/diffusion-* $(VENV)/dev-*
	@touch $@

$(DIFFUSION_STAMP): $(UV_STAMP)
	@$(UV) pip sync --quiet --require-hashes --python $(PY) requirements/diffusion.txt
	@rm -f $(VENV)/gpu-* $(VENV)/diffusion-* $(VENV)/dev-*
	@touch $@
