# `make demo` and `make test` set everything up themselves; they need only Python 3.11+, git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests wait for disks and for processes: more of them at a time than there are cores.
WORKERS := $(shell echo $$(( ($$(nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2) * 3 + 1) / 2 )))
READY := $(VENV)/.ready

.PHONY: demo test unit guards lint bench requirements clean

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/python bench/demo.py

# Many interpreters are started: none of them should have to compile what it imports.
test unit: export PYTHONDONTWRITEBYTECODE =

test: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

unit: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not slow'

# Every guard of exact-path turns taken out, one by one: a test has to miss each.
guards: $(READY)
	cd tests && ../$(BIN)/python -m guards

lint: $(READY)
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python -m bench

requirements: $(READY)
	$(BIN)/python tests/requirements.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache
