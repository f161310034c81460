# One word each. `make quickstart` shows Rookhold at work; `make check` is every test.
# The system interpreter comes first: a sandbox must be able to read what it runs, and a shim in a
# home directory cannot be read by a sandbox uid.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)
BIN := .venv/bin
PACKAGES := $(wildcard packages/*/src)

.PHONY: help quickstart setup lock fmt lint types layers test e2e check audit soak bench wheels release clean

help:  ## list every target
	@sed -n 's/^\([a-z0-9]*\):.*## /  \1: /p' Makefile

quickstart: setup  ## run three real jobs in a sandbox, keep and verify their evidence
	@$(BIN)/rookhold quickstart

setup:  ## install what is missing; leaves every command in .venv/bin
	@$(PYTHON) tools/setup.py

lock:  ## resolve again: requirements.lock and uv.lock, for every supported Python
	@$(PYTHON) tools/lock.py

fmt:  ## format and fix what a tool can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lint:  ## style and formatting, by ruff
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types:  ## types, by mypy
	@$(BIN)/mypy $(PACKAGES) benchmarks

layers:  ## who may import whom, by import-linter
	@$(BIN)/lint-imports

test:  ## every test, small counts
	@tools/test.sh

e2e:  ## only the tests that run the whole product
	@$(BIN)/python -m pytest tests

check:  ## lint, types, layers and every test; what CI runs
	@$(PYTHON) tools/setup.py --for check
	@$(MAKE) --no-print-directory lint types layers test

audit:  ## known vulnerabilities in what the lock names; asks PyPI, and fails if that has no answer
	@$(BIN)/uv tool run pip-audit --strict --disable-pip --require-hashes --requirement requirements.lock

soak:  ## the same tests with big counts; takes long
	@$(PYTHON) tools/setup.py --for check
	@$(BIN)/python -m pytest -m soak

bench:  ## measure: launch, HTTP, store, evidence, memory; a few minutes; ARGS="--json FILE"
	@$(PYTHON) tools/setup.py --for bench
	@$(BIN)/python -m benchmarks $(ARGS)

wheels: setup  ## build every wheel and source archive into dist/, without a network
	@$(BIN)/uv build --quiet --offline --all-packages --clear --out-dir dist

release:  ## WHEEL=name: check that one wheel may be released, build it into dist/, tag it
	@$(BIN)/python tools/release.py $(WHEEL)

clean:  ## remove what setup, wheels and tests made
	rm -rf .venv wheelhouse wheelhouse-floor dist .cache
