# Everything runs in .venv, which is made here; servers are started by the tests and the demo themselves.

PYTHON ?=
VENV := .venv/bin/python
PIP := $(VENV) -m pip --disable-pip-version-check install --quiet

# The environment of an active venv or of pip's user mode would send packages elsewhere.
unexport PYTHONHOME
unexport PYTHONPATH
unexport PIP_TARGET
unexport PIP_PREFIX
export PIP_USER := 0

.PHONY: help demo demo-up docs test test-all matrix faults flat soak chaos lint bench bench-growth bench-quick clean

help:
	@echo "make demo         a shop and its bank, 200 orders, two kills and a wiped Redis, a summary"
	@echo "make demo-up      the same shop left running for DEMO_MINUTES (60), with its admin to look at and to operate"
	@echo "make test         lint, then every test but the long ones, against real servers"
	@echo "make test-all     every test, the long ones too, then the matrix; at most five hours"
	@echo "make matrix       a slice of the tests against the built wheel, with several Pythons, Djangos, Postgreses, ..."
	@echo "make faults       a process dies at every point, and at every pair of them, in some ten minutes"
	@echo "make flat         memory, connections and sessions after 2,000 and after 10,000 sagas, in some four minutes"
	@echo "make soak         the same after 200,000 steps (STEPS=), and the outbox is empty and small; takes long"
	@echo "make chaos        everything goes wrong at random for three minutes (MINUTES=, SEED=), then all has to be right"
	@echo "make lint         ruff, import-linter, mypy"
	@echo "make docs         the documentation as a site, in build/site; strict, with every link checked"
	@echo "make bench-quick  the most telling speed ratios, in about a minute"
	@echo "make bench        all speed ratios against the peers, with a picture, in some ten minutes"
	@echo "make bench-growth what a million finished or due sagas, an old transaction and many queues cost, as curves"
	@echo "make clean        remove .venv and everything generated"

demo: .venv/installed-demo
	@$(VENV) -m example_project.demo

demo-up: .venv/installed-demo
	@$(VENV) -m example_project.demo.up

test: lint
	$(VENV) -m pytest

# Both parts run, whatever becomes of the first, and each is bounded.
test-all: lint
	@failed=0; \
	timeout 10800 $(VENV) -m pytest -m "full or not full" --maxfail=50 || failed=1; \
	timeout 7200 $(VENV) -m nox || failed=1; \
	exit $$failed

matrix: .venv/installed-dev
	timeout 7200 $(VENV) -m nox

faults: .venv/installed-dev
	timeout 3600 $(VENV) -m pytest tests/faults -m "full or not full" --maxfail=20

flat: .venv/installed-dev
	timeout 1200 $(VENV) -m pytest -s tests/integration/test_flat.py -m full

soak: .venv/installed-dev
	timeout 10800 env STEPS=$(or $(STEPS),200000) $(VENV) -m pytest -s tests/integration/test_soak.py -m full

chaos: .venv/installed-dev
	$(VENV) -m tests.chaos --minutes $(or $(MINUTES),3) $(if $(SEED),--seed $(SEED))

docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(VENV) -m mkdocs build --strict --quiet
	@echo "Open build/site/index.html"

lint: .venv/installed-dev
	$(VENV) -m ruff check .
	$(VENV) -m ruff format --check .
	$(VENV) -c "from importlinter.cli import lint_imports_command as lint; lint()"
	$(VENV) -m mypy

bench: .venv/installed-dev
	$(VENV) -m tests.benchmarks.full

bench-growth: .venv/installed-dev
	$(VENV) -m tests.benchmarks.growth

bench-quick: .venv/installed-dev
	$(VENV) -m tests.benchmarks.quick

# Wheels of a Postgres are there for Python 3.11 to 3.13, so that one of these is looked for, whatever python3 is. A Python
# without ensurepip (Debian without python3-venv) lends its own pip.
.venv/made:
	@set -e; found="$(PYTHON)"; \
	for python in python3 python3.13 python3.12 python3.11; do \
	  if [ -n "$$found" ]; then break; fi; \
	  if "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then found="$$python"; fi; \
	done; \
	if [ -z "$$found" ]; then echo "Python 3.11 to 3.13 not found; use make PYTHON=/path/to/python3" >&2; exit 1; fi; \
	"$$found" -m venv --clear .venv >/dev/null 2>&1 || { \
	  "$$found" -m venv --clear --without-pip .venv; \
	  "$$found" -m pip --disable-pip-version-check --python .venv/bin/python install --quiet pip; }
	@touch $@

.venv/installed-%: pyproject.toml | .venv/made
	@echo "Installing into .venv (once) ..."
	@$(PIP) --editable '.[$*]'
	@touch $@

clean:
	rm -rf .venv .venv-bench .nox dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
