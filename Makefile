# make demo    installs into .venv and runs the demo, with one rank slowed on purpose; its run lies under outputs/
# make test    lint, then every test, then the torch-free tests on the other interpreters found (between the oldest and newest some)
# make bench   the benchmarks
# make injected   known sleeps in four processes: is the culprit named, and is what-if right?
# make dist    wheels and source archives of all distributions, checked, and tried on each Python found
# make compat-suites DIR=…   a framework's own profiler tests (a checkout of it), with accelprof and without
# make fuzz    hostile configurations and mangled files, some minutes; COUNT=…, FILES=… and SEED=… choose them (not in CI, where a short part runs)
# make lint    ruff, mypy, import-linter, news fragments
#
# PYTHON=…      the interpreter to make .venv with           PIP_ARGS=…   more arguments for every pip install
# DEMO_ARGS=…   more arguments for accelprof demo            TEST_ARGS=…  more arguments for pytest
# DIST_ARGS=…   more arguments for scripts/make-dist         JOBS=2        processes that run tests

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test bench injected dist fuzz lint pytest interpreters venv clean compat-suites

VENV := .venv
PLUGINS := $(wildcard plugins/*/pyproject.toml)
SOURCES := $(PLUGINS:%/pyproject.toml=-e './%[test]')
# what benchmarks are beside: modules and decorators of frameworks that are not here
LOOSE := --follow-imports silent --no-warn-unused-ignores --explicit-package-bases --allow-untyped-decorators --allow-subclassing-any --disable-error-code import-not-found --disable-error-code import-untyped
PACKAGES := $(filter-out %.egg-info,$(wildcard plugins/*/accelprof_*))
INSTALL = $(VENV)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt $(PIP_ARGS)
JOBS ?= 2
DEMO_ARGS ?= --straggler 1
SPREAD = -n $(JOBS) --dist loadgroup
export PYTHON PIP_ARGS SPREAD
unexport PYTHONDONTWRITEBYTECODE # some images set it: then each of the tests' processes compiles the sources anew

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | sed '/^$$/q'

demo: $(VENV)/.stamp-demo
	$(VENV)/bin/accelprof demo $(DEMO_ARGS)

test: lint pytest interpreters

lint: $(VENV)/.stamp-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy $(PACKAGES)
	MYPYPATH=benchmarks/cuda $(VENV)/bin/mypy $(LOOSE) benchmarks/*.py benchmarks/*/*.py
	$(VENV)/bin/lint-imports
	$(VENV)/bin/towncrier build --draft --version next >/dev/null

pytest: $(VENV)/.stamp-test
	$(VENV)/bin/python -m pytest -q $(SPREAD) $(TEST_ARGS)

interpreters: $(VENV)/.stamp-test
	scripts/test-interpreters

compat-suites: $(VENV)/.stamp-test
	$(VENV)/bin/python scripts/compat-suites "$(DIR)"

bench: $(VENV)/.stamp-bench
	python=$(VENV)/bin/python; if [ -x .venv-frameworks/bin/python ]; then python=.venv-frameworks/bin/python; fi; \
	  "$$python" -m benchmarks $(BENCH_ARGS)

injected: $(VENV)/.stamp-test
	$(VENV)/bin/python -m benchmarks injected

dist: $(VENV)/.stamp-test
	$(INSTALL) build twine "setuptools>=77" wheel
	$(VENV)/bin/python scripts/make-dist $(DIST_ARGS)

COUNT ?= 50000
SEED ?= 1
FILES ?= 12000
fuzz: $(VENV)/.stamp-test
	$(VENV)/bin/python tests/fuzz/configurations.py --count $(COUNT) --seed $(SEED)
	$(VENV)/bin/python tests/fuzz/files.py --count $(FILES) --seed $(SEED)
	ACCELPROF_SIGNAL_LINES=600 $(VENV)/bin/python -m pytest -q tests/session/test_signal_at_every_line.py

venv: $(VENV)/.stamp-test

clean:
	rm -rf .venv-py* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build

# Stamps make a second call quick: an installation is done again only when what it was made from changed.
$(VENV)/bin/python:
	python=$$(scripts/find-python); echo "making $(VENV) with $$python"; "$$python" -m venv $(VENV)

$(VENV)/.stamp-demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e ".[demo]"
	touch $@

$(VENV)/.stamp-test: pyproject.toml constraints.txt $(PLUGINS) | $(VENV)/bin/python
	$(INSTALL) -e ".[demo,test,dev]" $(SOURCES)
	touch $(VENV)/.stamp-demo $@

$(VENV)/.stamp-bench: $(VENV)/.stamp-test
	if [ -e benchmarks/requirements.txt ]; then $(INSTALL) -r benchmarks/requirements.txt; fi
	touch $@
