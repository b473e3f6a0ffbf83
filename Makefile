# Two commands do all the set-up: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Where Python may not keep compiled modules, each of the many programs that tests start would compile its own.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo pipeline-demo quick test test-long check mypy pyright style docs site clean

$(VENV)/.user: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[daemon,plot]'
	touch $@

# Modules are compiled when they are imported: most of what comes with the libraries never is, and it took a minute.
$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	# Built against the system's library; without it the tests of Kerberos say why they are skipped.
	! command -v krb5-config >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check 'gssapi>=1.8,<2' \
	    || echo "gssapi can't be built here: Kerberos is not tested"
	touch $@ $(VENV)/.user $(VENV)/.pipeline

$(VENV)/.pipeline: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[daemon,plot,spark]'
	touch $@ $(VENV)/.user

demo: $(VENV)/.user
	$(BIN)/kafka-quotas demo

pipeline-demo: $(VENV)/.pipeline
	$(BIN)/kafka-quotas pipeline demo --broker-jars .cache/kafka-4.3.1

# Unit and property tests, which start no servers, but for those that compute for long: two minutes on two idle cores.
LONG := property/pipeline property/test_declarative_round_trip.py property/test_group_shares.py \
        property/test_other_tools_round_trip.py unit/enforcement/session/test_held_fetches.py \
        unit/loadtest/measurement/test_day.py unit/loadtest/verdict/test_analysis.py unit/pipeline/engine \
        unit/pipeline/ingest/test_commits.py unit/pipeline/jobs/recommend/test_known_demand.py \
        unit/pipeline/jobs/test_validate.py unit/pipeline/stream
quick: $(VENV)/.dev
	$(BIN)/python -m pytest --quiet --numprocesses 2 -m "not integration and not measuring" \
	    $(LONG:%=--ignore=tests/%) tests/unit tests/property

# A few rates or times that were missed (exit code 1: all ran, some failed) are measured once more, with nothing beside them.
test: $(VENV)/.dev
	rm -f .pytest_cache/v/cache/lastfailed
	$(BIN)/python -m pytest --numprocesses 5 --durations 25 $(ADDED) || { [ $$? = 1 ] && $(BIN)/python -m pytest --alone; }

# With what is marked `long`, then on the other Pythons that there are, and some of the pipeline's tests on a newer Spark.
test-long: ADDED := --long
test-long: test
	.ci/other-pythons
	.ci/newer-spark

check: $(VENV)/.dev
	$(MAKE) --no-print-directory --jobs 2 --output-sync mypy pyright style

# Twice: the daemon is for Linux, and everything else for macOS as well, which has fewer calls.
mypy: $(VENV)/.dev
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin

pyright: $(VENV)/.dev
	$(BIN)/pyright

style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m generators.documentation --check
	$(BIN)/python -m generators.budget

docs: $(VENV)/.dev
	$(BIN)/python -m generators.documentation --write

site: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000   # shows it, with its search"

clean:
	rm -rf $(VENV) .cache dist build pipeline-demo-output
