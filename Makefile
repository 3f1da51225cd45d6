# make demo   environment, build, a real offload and its report
# make test   environment, style, types and every test
# make bench  every floor of the project, measured through the public API
# make fuzz   what takes longer than a test run may: FUZZ_MINUTES, 30 unless told
# make docs   write the generated pages of docs/ anew
# make lint   style and types alone

PYTHON ?= python3
BIN := .venv/bin
JOBS ?= 2
FUZZ_MINUTES ?= 30

.PHONY: demo test bench fuzz docs lint clean

demo: .venv/demo
	$(BIN)/ringloom demo

bench: .venv/demo
	$(BIN)/ringloom bench

test: .venv/all lint
	PATH="$$(sh tests/icarus.sh):$$PATH" $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

fuzz: .venv/all
	FUZZ_MINUTES=$(FUZZ_MINUTES) $(BIN)/python -m pytest -n $(JOBS) -m fuzz

docs: .venv/demo
	$(BIN)/python -m ringloom.hw.describe docs

# mypy does not see through an editable install of mapped folders: it checks the package as a user installs it.
lint: .venv/all
	$(BIN)/ruff check .
	rm -rf build/installed build/lib build/bdist*
	$(BIN)/python -m pip install --quiet --no-deps --target build/installed .
	MYPYPATH=build/installed $(BIN)/mypy -p ringloom

.venv/bin/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), f"Python 3.11 or newer is needed, not {sys.version}"'
	$(PYTHON) -m venv .venv

.venv/demo: .venv/bin/python pyproject.toml
	@echo 'fetching packages into .venv (a minute or more, 0.8 GB)'
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

.venv/all: .venv/bin/python pyproject.toml
	@echo 'fetching packages and test tools into .venv (some minutes, 1.5 GB)'
	$(BIN)/python -m pip install --quiet --editable '.[all]'
	touch $@ .venv/demo

clean:
	rm -rf build .venv .pytest_cache .mypy_cache .ruff_cache
