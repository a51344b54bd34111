PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup setup-test demo test lint bench-overhead bench-diagnosis bench-births bench-pages bench-live-view bench-faults bench-suites bench-field clean

setup: .setup-base
setup-test: .setup-test

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

.setup-base: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet -c constraints.txt -e '.[demo]'
	@touch $@

.setup-test: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet -c constraints.txt -e '.[demo,test]'
	@command -v chromium >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
		(apt-get update -qq && apt-get install -qq -y chromium >/dev/null) || \
		echo 'chromium could not be installed: tests in a browser will be skipped'
	@touch $@ .setup-base

demo: setup
	$(BIN)/torchdoctor demo

# Many tests start processes: where PYTHONDONTWRITEBYTECODE is set, each would compile the package anew.
test: setup-test lint
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m compileall -q src
	$(BIN)/pytest -n auto --dist worksteal

lint: setup-test
	$(BIN)/ruff check src tests benchmarks docs
	$(BIN)/ruff format --check src tests benchmarks docs
	$(BIN)/lint-imports

.setup-bench: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet -c constraints.txt -e '.[demo,bench]'
	@touch $@

bench-overhead: .setup-bench
	$(BIN)/python benchmarks/whole_jobs.py --write
	$(BIN)/python benchmarks/overhead.py

bench-diagnosis: .setup-test
	$(BIN)/python benchmarks/diagnosis.py --write $(BENCH)

bench-births: .setup-test
	$(BIN)/python benchmarks/births.py --write $(BENCH)

bench-pages: .setup-test .setup-bench
	$(BIN)/python benchmarks/pages.py --write $(BENCH)

bench-live-view: .setup-base
	$(BIN)/python benchmarks/live_view.py --write $(BENCH)

bench-faults: .setup-test
	$(BIN)/python benchmarks/faults/run.py --write $(BENCH)

bench-suites: .setup-base
	$(BIN)/python benchmarks/suites/run.py --write $(BENCH)

bench-field: .setup-base
	$(BIN)/python benchmarks/field/run.py --write $(BENCH)

clean:
	rm -rf $(VENV) .setup-* build dist
