# `make test` and `make demo` need Python 3.11 or later and nothing else: they make their own environment in
# .venv. Each .venv/.*-ready file says that what its target needs is installed; remove .venv to start afresh.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet --quiet

# Choose another interpreter with `make PYTHON=/path/to/python3.13 ...`, more arguments for pytest with
# `make test PYTEST_ARGS="-k approval -x"`.
PYTHON ?=
PYTEST_ARGS ?=
# Pytest workers, each with a database of its own: one more than the cores, since some tests wait.
# Not the browser tests: they have a target of their own, which fails where there is no browser.
PYTEST := -m pytest -n 3 --dist loadgroup
QUICK := -m "not browser and not slow"
WHOLE := -m "not browser"
# What PostgreSQL is asked to do in the way of the other databases, too.
PLAIN := tests/test_promises.py tests/test_kill_points.py tests/test_driving.py tests/test_continuing.py \
	tests/test_approvals_bound.py tests/test_approvals_property.py tests/processes/test_killed_workers.py

# What the shell has set for some other project must not reach this one.
unexport DJANGO_SETTINGS_MODULE PYTHONPATH PYTHONHOME VIRTUAL_ENV

.PHONY: help
help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- the two commands -------------------------------------------------------------------------------------

.PHONY: test
test: $(VENV)/.test-ready ## Run the tests on SQLite
	$(PY) $(PYTEST) $(QUICK)$(if $(PYTEST_ARGS), $(PYTEST_ARGS))

.PHONY: demo
demo: $(VENV)/.package-ready ## Run the example end to end: crash, recovery, approval, proof
	$(PY) -m example_project.demo

# --- more -------------------------------------------------------------------------------------------------

.PHONY: serve
serve: $(VENV)/.package-ready ## Leave the example running, with a login to click through
	$(PY) -m example_project.demo --serve

.PHONY: test-slow
test-slow: $(VENV)/.test-ready ## Run the tests on SQLite that take their time
	$(PY) $(PYTEST) -m slow$(if $(PYTEST_ARGS), $(PYTEST_ARGS))

.PHONY: test-postgres
test-postgres: $(VENV)/.postgres-ready ## Run the tests on a PostgreSQL server
	ANVIL_TEST_DB=postgres $(PY) $(PYTEST) $(WHOLE)$(if $(PYTEST_ARGS), $(PYTEST_ARGS))

.PHONY: test-postgres-plain
test-postgres-plain: $(VENV)/.postgres-ready ## The same for what saves, with plain statements
	ANVIL_TEST_PLAIN=1 ANVIL_TEST_DB=postgres $(PY) $(PYTEST) $(QUICK) $(PLAIN)$(if $(PYTEST_ARGS), $(PYTEST_ARGS))

.PHONY: test-mariadb
test-mariadb: $(VENV)/.mysql-ready ## Run the tests on a MariaDB server
	ANVIL_TEST_DB=mariadb $(PY) $(PYTEST) $(WHOLE)$(if $(PYTEST_ARGS), $(PYTEST_ARGS))

# A campaign of faults, on servers of its own where the binaries are found; see docs/faults.md.
CAMPAIGN_DB ?= sqlite
CAMPAIGN_BROKER ?= orm
CAMPAIGN_RUNS ?= 150
CAMPAIGN_FAULTS ?= 100
CAMPAIGN_SEED ?= 1
CAMPAIGN_ARGS ?=
CAMPAIGN_READY = $(VENV)/.test-ready $(addprefix $(VENV)/.,$(addsuffix -ready,$(filter postgres,$(CAMPAIGN_DB)) \
	$(patsubst mariadb,mysql,$(filter mariadb,$(CAMPAIGN_DB))) $(filter redis,$(CAMPAIGN_BROKER))))

.PHONY: campaign
campaign: ## Many runs on real workers while things break: CAMPAIGN_DB=postgres CAMPAIGN_BROKER=redis ...
	$(MAKE) --no-print-directory $(CAMPAIGN_READY)
	$(PY) -m tests.faults --db $(CAMPAIGN_DB) --broker $(CAMPAIGN_BROKER) --runs $(CAMPAIGN_RUNS) \
		--faults $(CAMPAIGN_FAULTS) --seed $(CAMPAIGN_SEED)$(if $(CAMPAIGN_ARGS), $(CAMPAIGN_ARGS))

.PHONY: campaign-short
campaign-short: ## A campaign of less than a minute on PostgreSQL and Redis, or on what there is of them
	$(MAKE) --no-print-directory campaign CAMPAIGN_RUNS=40 CAMPAIGN_FAULTS=30 CAMPAIGN_SEED=1 \
		CAMPAIGN_DB=$(if $(wildcard /usr/lib/postgresql/*/bin/initdb),postgres,sqlite) \
		CAMPAIGN_BROKER=$(if $(shell command -v redis-server),redis,orm)

.PHONY: test-browser
test-browser: $(VENV)/.browser-ready ## Run the tests that drive a real browser (a Chromium of the system)
	ANVIL_BROWSER_REQUIRED=1 $(PY) -m pytest tests/browser$(if $(PYTEST_ARGS), $(PYTEST_ARGS))

.PHONY: test-fuzz
test-fuzz: $(VENV)/.fuzz-ready ## Send the REST API what its document allows, and what it does not
	ANVIL_FUZZ_REQUIRED=1 $(PY) -m pytest tests/test_api_fuzz.py$(if $(PYTEST_ARGS), $(PYTEST_ARGS))

.PHONY: bench-lists
bench-lists: $(VENV)/.test-ready $(if $(filter postgres,$(DB)),$(VENV)/.postgres-ready) $(if $(filter mariadb,$(DB)),$(VENV)/.mysql-ready) ## Time each list in a small and in a large table (DB=postgres)
	$(PY) -m benchmarks.lists --db $(or $(DB),sqlite)$(if $(BENCH_ARGS), $(BENCH_ARGS))

.PHONY: mutations
mutations: $(VENV)/.test-ready ## Break each promise in a copy of the tree: a test has to notice
	$(PY) -m tests.mutations$(if $(MUTATIONS_ARGS), $(MUTATIONS_ARGS))

.PHONY: bench
bench: $(VENV)/.bench-ready ## Measure what durability costs, beside the least that could do the job (BENCH_ARGS="--db postgres")
	$(PY) -m benchmarks.overhead$(if $(BENCH_ARGS), $(BENCH_ARGS))

.PHONY: bench-full
bench-full: $(VENV)/.bench-ready ## The same with more rounds and longer runs
	$(PY) -m benchmarks.overhead --set full$(if $(BENCH_ARGS), $(BENCH_ARGS))

.PHONY: bench-check
bench-check: $(VENV)/.test-ready ## Count statements and commits on the databases that answer; never judges time
	$(PY) -m benchmarks.overhead --set check$(if $(BENCH_ARGS), $(BENCH_ARGS))

.PHONY: bench-docs
bench-docs: $(VENV)/.bench-ready ## Write the last measurement into docs/performance.md
	$(PY) -m benchmarks.overhead.report --write docs/performance.md$(if $(BENCH_ARGS), $(BENCH_ARGS))

.PHONY: screenshots
screenshots: $(VENV)/.browser-ready ## Take the pictures of the docs anew
	ANVIL_BROWSER_REQUIRED=1 ANVIL_SCREENSHOTS=docs/screenshots $(PY) -m pytest tests/browser

.PHONY: docs
docs: $(VENV)/.docs-ready ## Build the documentation into build/docs; any warning and any dead link is an error
	$(PY) -m sphinx --builder html --doctree-dir build/doctrees --fail-on-warning --keep-going --quiet docs build/docs
	$(PY) -m tests.docs.links build/docs

.PHONY: docs-write
docs-write: $(VENV)/.test-ready ## Write anew what the docs take from the code: settings, commands, errors, states
	$(PY) -m tests.docs

.PHONY: lint
lint: $(VENV)/.dev-ready ## Check style and formatting
	$(PY) -m ruff check
	$(PY) -m ruff format --check

.PHONY: format
format: $(VENV)/.dev-ready ## Mend style and formatting
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

.PHONY: types
types: $(VENV)/.dev-ready ## Check the types of the package
	$(PY) -m mypy

.PHONY: migrations-check
migrations-check: $(VENV)/.package-ready ## Fail when a model change has no migration
	EXAMPLE_DB=:memory: $(PY) manage.py makemigrations --check --dry-run

.PHONY: clean
clean: ## Remove the environment and everything generated
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f example_project/db.sqlite3 example_project/db.sqlite3-wal example_project/db.sqlite3-shm
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the environment --------------------------------------------------------------------------------------

$(VENV)/.python-ready:
	@python="$(PYTHON)"; \
	if [ -z "$$python" ]; then \
		for candidate in python3.13 python3.12 python3.14 python3.11 python3 python; do \
			if $$candidate -c 'import sys, ensurepip, sqlite3, venv; sys.exit(sys.version_info < (3, 11))' \
				>/dev/null 2>&1; then python=$$candidate; break; fi; \
		done; \
	fi; \
	if [ -z "$$python" ]; then \
		echo "No Python 3.11 or later with venv and sqlite3 was found." >&2; \
		echo "Install one (on Debian and Ubuntu: python3 and python3-venv), or name it: make PYTHON=/path/to/python" >&2; \
		exit 1; \
	fi; \
	echo "Making $(VENV) with $$($$python --version)"; \
	rm -rf $(VENV) && $$python -m venv $(VENV)
	@# Dependency groups need pip 25.1, newer than what some Pythons bring.
	@$(PIP) install "pip>=25.1"
	@touch $@

$(VENV)/.package-ready: $(VENV)/.python-ready pyproject.toml
	@echo "Installing anvil_django into $(VENV)"
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.test-ready: $(VENV)/.package-ready
	@echo "Installing what the tests need"
	@$(PIP) install --group test
	@touch $@

$(VENV)/.browser-ready: $(VENV)/.package-ready
	@echo "Installing what the browser tests need"
	@$(PIP) install --group browser
	@touch $@

$(VENV)/.fuzz-ready: $(VENV)/.test-ready
	@echo "Installing what the API is fuzzed with"
	@$(PIP) install --group fuzz
	@touch $@

$(VENV)/.docs-ready: $(VENV)/.test-ready
	@echo "Installing what builds the documentation"
	@$(PIP) install --group docs
	@touch $@

$(VENV)/.bench-ready: $(VENV)/.test-ready
	@echo "Installing what the benchmark needs"
	@$(PIP) install --group bench
	@touch $@

$(VENV)/.dev-ready: $(VENV)/.package-ready
	@echo "Installing the development tools"
	@$(PIP) install --group dev
	@touch $@

$(VENV)/.postgres-ready: $(VENV)/.test-ready
	@echo "Installing the PostgreSQL client"
	@$(PIP) install --editable ".[postgres]"
	@touch $@

$(VENV)/.mysql-ready: $(VENV)/.test-ready
	@echo "Installing the MariaDB client"
	@$(PIP) install --editable ".[mysql]"
	@touch $@

$(VENV)/.redis-ready: $(VENV)/.test-ready
	@echo "Installing the Redis client"
	@$(PIP) install --editable ".[redis]"
	@touch $@
