# The one front door: people and CI call these targets and nothing else.
# `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory --no-builtin-rules

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
ARGS ?=

MEMBERS := sdk/python worker_runtime server
EDITABLE := $(addprefix -e ,$(MEMBERS))
PYPROJECTS := $(addsuffix /pyproject.toml,$(MEMBERS))

# --- Environment -----------------------------------------------------------
# Three stamps, each made from the one before: the installer, the runtime set
# with the three packages (all that `make run` needs), the development set.

UV := $(BIN)/uv pip install --quiet --python $(PY)

$(VENV)/.stamp-uv: requirements/uv.txt requirements/bootstrap.sh
	@bash requirements/bootstrap.sh "$(PYTHON)" $(VENV)
	@touch $@

$(VENV)/.stamp-run: requirements/run.txt $(PYPROJECTS) $(VENV)/.stamp-uv
	@echo "setup: runtime dependencies"
	@$(UV) --require-hashes -r requirements/run.txt
	@$(UV) --no-deps --no-build-isolation $(EDITABLE)
	@touch $@

$(VENV)/.stamp-dev: requirements/dev.txt $(VENV)/.stamp-run
	@echo "setup: development dependencies"
	@$(UV) --require-hashes -r requirements/dev.txt
	@touch $@

.PHONY: setup
setup: $(VENV)/.stamp-dev ## Make .venv with everything: three packages, tests, tools
	@:

.PHONY: lock
lock: $(VENV)/.stamp-dev ## Compile requirements/*.txt again from the pyprojects (ARGS=--upgrade for newer releases)
	@$(LOCK) $(LOCK_OMIT) --group pyproject.toml:dev $(ARGS) -o requirements/dev.txt $(PYPROJECTS) >/dev/null
	@$(LOCK) $(LOCK_OMIT) -c requirements/dev.txt --group pyproject.toml:build -o requirements/run.txt $(PYPROJECTS) >/dev/null
	@$(LOCK) -c requirements/dev.txt --group pyproject.toml:bootstrap -o requirements/uv.txt >/dev/null
	@$(LOCK) --group pyproject.toml:peers $(ARGS) -o requirements/peers.txt >/dev/null
	@$(LOCK:3.11=3.12) --group pyproject.toml:peers-oban $(ARGS) -o requirements/peers-oban.txt >/dev/null
	@git diff --stat -- requirements

LOCK = $(BIN)/uv pip compile --quiet --generate-hashes --universal --python-version 3.11
LOCK_OMIT = $(addprefix --no-emit-package ,mainspring-sdk mainspring-worker mainspring-server)

# --- Run -------------------------------------------------------------------

.PHONY: run
run: $(VENV)/.stamp-run ## Start a server and index a folder of real files with it (ARGS="--once --folder DIR --out FILE")
	@$(PY) examples/file_index/main.py $(ARGS)

.PHONY: stack stack-stop services
stack: $(VENV)/.stamp-run ## Run a whole cluster with PostgreSQL, Redis and Kafka until stopped; it writes .stack/stack.json
	@$(PY) deploy/stack.py start $(ARGS)

stack-stop: $(VENV)/.stamp-run ## Stop what `make stack` started, wherever it runs
	@$(PY) deploy/stack.py stop

services: $(VENV)/.stamp-run ## Install PostgreSQL, Redis and Kafka for the tests, where they are missing
	@$(PY) deploy/services.py install

.PHONY: bench
WORKLOAD ?=
RUNG ?= distributed
bench: $(VENV)/.stamp-dev ## Measure (WORKLOAD=name RUNG=embedded|postgres|distributed); the last line is JSON
	@$(PY) -m bench --workload "$(WORKLOAD)" --rung "$(RUNG)" $(ARGS)

# --- Check -----------------------------------------------------------------

.PHONY: test
test: check services ## Everything that CI runs: check, then the whole suite (ARGS go to pytest)
	@$(BIN)/pytest tests $(ARGS)

.PHONY: unit
unit: $(VENV)/.stamp-dev ## The unit tests alone: seconds
	@$(BIN)/pytest tests/unit $(ARGS)

.PHONY: conformance
conformance: $(VENV)/.stamp-dev ## Compare every calendar rule with cronsim: 5,000 expressions, 12 zones, 10 years
	@$(PY) -m tests.conformance $(ARGS)

.PHONY: check
check: lint types breaking gen-check ## Lint, types, import arrows, protos, and that generated code is current

.PHONY: lint
lint: $(VENV)/.stamp-dev ## ruff, import-linter, buf lint and format; changes nothing
	@echo "check: ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@echo "check: import contracts"
	@$(BIN)/lint-imports $(QUIET_IMPORTS)
	@echo "check: protos"
	@$(BIN)/buf lint
	@$(BIN)/buf format --diff --exit-code proto $(BUF_OURS)

# import-linter draws its logo on every run: show its report only when it fails.
QUIET_IMPORTS = > $(VENV)/.imports.log || { cat $(VENV)/.imports.log; exit 1; }
BUF_OURS = --exclude-path proto/google

.PHONY: types
types: $(VENV)/.stamp-dev ## mypy, strict, on the three packages and tests/typing
	@echo "check: types"
	@$(BIN)/mypy

.PHONY: fmt
fmt: $(VENV)/.stamp-dev ## Format Python and protos, and fix what ruff can
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .
	@$(BIN)/buf format --write proto $(BUF_OURS)

# --- Protos ----------------------------------------------------------------

STUBS := sdk/python/src/mainspring/v1
RELEASED := proto/released.binpb
PROTOS = $(sort $(wildcard proto/mainspring/v1/*.proto))
# $(1): the folder that gets mainspring/v1/*_pb2*. The vendored google.rpc is
# only read: its Python comes with googleapis-common-protos.
PROTOC = PATH="$(CURDIR)/$(BIN):$$PATH" $(PY) -m grpc_tools.protoc -I proto \
	--python_out=$(1) --grpc_python_out=$(1) --mypy_out=quiet:$(1) --mypy_grpc_out=quiet:$(1) $(PROTOS)

.PHONY: gen
gen: $(VENV)/.stamp-dev ## Generate the stubs of proto/ into the SDK
	@rm -f $(STUBS)/*_pb2*
	@$(call PROTOC,sdk/python/src)

.PHONY: gen-check
gen-check: $(VENV)/.stamp-dev ## Fail if the checked-in stubs are not what `make gen` makes
	@echo "check: generated code is current"
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	$(call PROTOC,"$$out"); \
	diff -r --exclude=__init__.py --exclude=__pycache__ "$$out/mainspring/v1" $(STUBS) \
		|| { echo "The stubs are out of date: run 'make gen' and commit the result." >&2; exit 1; }

.PHONY: breaking
breaking: $(VENV)/.stamp-dev ## Fail if proto/ breaks the image of the last release
	@echo "check: no breaking change since the last release"
	@$(BIN)/buf breaking --against $(RELEASED)

.PHONY: release-image
release-image: $(VENV)/.stamp-dev ## Record proto/ as the last release, for `make breaking`
	@$(BIN)/buf build --exclude-source-info -o $(RELEASED)

# --- Docs ------------------------------------------------------------------

.PHONY: docs
docs: $(VENV)/.stamp-dev ## Build the documentation into site/; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {split($$1, t, ":"); printf "  \033[1m%-14s\033[0m %s\n", t[1], $$2}' $(MAKEFILE_LIST)
