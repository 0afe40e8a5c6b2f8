# Each target sets up what it needs (a .venv, pinned installs), once, and again when pyproject.toml,
# constraints.txt or the set-up itself change. PYTHON=... names the Python to use.

VENV := .venv
RUN := $(VENV)/bin/python
WORKERS ?= 2
SOAK_SECONDS ?= 3600
TESTS ?= tests
SETUP := pyproject.toml constraints.txt tools/setup.sh

export PYTHON

.DEFAULT_GOAL := help
.PHONY: help demo test browser picture check format bench soak faults kernels docs clean

help: ## show what there is
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

demo: $(VENV)/core.stamp ## simulate 2,000 requests, check every event, and replay the log
	$(RUN) tools/demo.py

test: $(VENV)/dev.stamp ## the tests, and at the end what was skipped (TESTS=tests/log for a part)
	$(RUN) -m pytest -n $(WORKERS) --dist worksteal --durations 10 $(TESTS)

browser: $(VENV)/dev.stamp ## a Chromium for the tests of the HTML report, if there is none
	@tools/setup.sh browser

picture: $(VENV)/dev.stamp ## the picture of a report in docs/ (needs the browser)
	$(RUN) tools/picture.py

check: $(VENV)/dev.stamp ## lint, format, types, layers, tables of docs/
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports
	$(RUN) tools/tables.py --check

format: $(VENV)/dev.stamp ## mend what ruff can mend
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

bench: $(VENV)/dev.stamp ## the figures of speed and memory
	@status=0; for bench in benchmarks/bench_*.py; do \
		echo "== $$bench"; $(RUN) "$$bench" || status=1; \
	done; exit $$status

soak: $(VENV)/dev.stamp ## the random tests for an hour, under new seeds (SOAK_SECONDS=...)
	$(RUN) tools/soak.py --seconds $(SOAK_SECONDS) --workers $(WORKERS) $(TESTS)

faults: $(VENV)/core.stamp ## each fault at 200 random places, and the table of docs/faults.md
	$(RUN) tools/faults.py

kernels: $(VENV)/dev.stamp ## compile every kernel for GPUs, with this Triton and with 3.6.0
	$(RUN) tools/kernels.py
	$(RUN) tools/kernels.py --triton 3.6.0

docs: $(VENV)/core.stamp ## write the tables of docs/ again from the code
	$(RUN) tools/tables.py

clean: ## remove what the targets made
	rm -rf $(VENV) build demo-run *.egg-info .hypothesis .*_cache

$(VENV)/core.stamp: $(SETUP)
	@tools/setup.sh core
	@touch $@

$(VENV)/dev.stamp: $(VENV)/core.stamp
	@tools/setup.sh dev
	@touch $@
