# Every target sets up what it needs; `make` alone says what there is.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
RUN_STAMP := $(VENV)/.ready-to-run
DEPLOY_STAMP := $(VENV)/.ready-to-deploy
SEEDS ?= 2000

# Otherwise every process compiles its imports again, which takes half of its start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help setup lock run test test-runtime test-bare test-twin test-spark test-deploy test-data test-world test-schema test-generators test-all check hooks docs fmt sim synth destroy deploy-smoke sandbox fuzz localstack test-localstack bench bench-large waiting soak real-dump kills oracle layers release clean

help:  ## what can be done here
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(STAMP)  ## put everything into .venv

# Compiling what is installed would take half the time; Python does it when it first imports a file.
# Nothing is installed whose sum is not in a lock: also what makes wheels comes from there, and our
# own package brings nothing along.
PIP = $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --no-deps
LOCKED = $(PIP) --require-hashes --no-build-isolation -r
OURS = $(PIP) --no-build-isolation -e .

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tidings needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.13 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(RUN_STAMP): $(VENV)/.made pyproject.toml requirements-run.lock
	@echo "installing what the feed needs into $(VENV) ..."
	@$(LOCKED) requirements-run.lock
	@$(OURS)
	@touch $@

$(DEPLOY_STAMP): $(RUN_STAMP) requirements-deploy.lock
	@echo "installing what a deployment needs into $(VENV) ..."
	@$(LOCKED) requirements-deploy.lock
	@touch $@

$(STAMP): $(RUN_STAMP) requirements.lock
	@echo "installing everything into $(VENV), a minute or two ..."
	@$(LOCKED) requirements.lock
	@touch $@

# The sums are those of every file of a version, for all machines and Pythons. What is locked stays
# (UPGRADE=--upgrade: the newest; UPGRADE="--upgrade-package boto3": of one).
UPGRADE ?=
COMPILE = $(BIN)/uv pip compile pyproject.toml --quiet --universal --generate-hashes --no-header \
	--no-annotate --no-emit-index-url --no-emit-find-links

lock: $(STAMP)  ## renew the locks after pyproject.toml (UPGRADE=--upgrade: the newest of all)
	$(COMPILE) $(UPGRADE) --extra dev --output-file requirements.lock
	$(COMPILE) --extra serve --extra build --constraint requirements.lock --output-file requirements-run.lock
	$(COMPILE) --extra infra --constraint requirements.lock --output-file requirements-deploy.lock

run: $(RUN_STAMP)  ## the feed on this machine, with a demo to watch
	@echo "when it is ready: open http://127.0.0.1:8042/, or run $(BIN)/tidings tail --from 0; Ctrl-C ends it"
	@$(BIN)/tidings serve --demo

# Most tests of the first lane wait for sockets and time limits, so that four of them share two cores
# well; a JVM wants a core for itself. A file stays with one worker, because its tests share a host.
PYTEST = $(BIN)/pytest -q --durations 15 --durations-min 5 --dist loadfile -n $(or $(WORKERS),$(1)) --lane

test: $(STAMP)  ## what needs Python alone, in minutes
	$(call PYTEST,4) fast

test-twin: $(STAMP)  ## what the functions of a stage show; it needs Java 17 and Maven
	$(call PYTEST,2) twin

test-runtime:  ## core, wire and functions on Python 3.13, the Lambda runtime, warnings as errors
	@$(PYTHON) -m tests.runtime

test-spark: $(STAMP)  ## jobs, tables and sources on Spark; it needs Java 17
	$(call PYTEST,2) spark

test-deploy: $(STAMP)  ## templates, roles, releases; it needs Node.js 22, Java 17 and Maven
	$(call PYTEST,2) deploy

test-world: $(STAMP)  ## against proxies, Prometheus and clients of others; it needs Node.js 20, npm, Go and tests/packages/world.txt
	$(call PYTEST,2) world

test-data: $(STAMP)  ## pipelines with real databases, queues and indices; it needs Java 17, Maven and tests/packages/data.txt
	$(call PYTEST,2) data

BARE ?= bookworm trixie
test-bare:  ## `make run`, starts and `make test` in minimal Debian roots; it needs root and debootstrap
	tests/bare.sh $(BARE)

EXAMPLES ?= 100
test-schema: $(STAMP)  ## requests from the served OpenAPI document, 100 of them an operation: some minutes (EXAMPLES=)
	SCHEMA_EXAMPLES=$(EXAMPLES) $(BIN)/pytest -q -n 2 --lane world tests/world/test_schema.py

test-generators: $(STAMP)  ## clients that generators make of the served OpenAPI document; it needs Node.js, npm, Go, Java 17 and Maven
	GENERATORS=all $(BIN)/pytest -q -n 2 --lane world tests/world/test_generators.py

test-all:  ## every lane, one after another
	$(MAKE) test
	$(MAKE) test-runtime
	$(MAKE) test-world
	$(MAKE) test-data
	$(MAKE) test-twin
	$(MAKE) test-deploy
	$(MAKE) test-spark

check: $(STAMP)  ## style, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

hooks: $(STAMP)  ## run the checks before each commit, by a hook of Git
	$(BIN)/pre-commit install

REPOSITORY ?=
docs: $(STAMP)  ## the documentation as a site, into site/ (REPOSITORY=https://host/owner/name/blob/main)
	@$(BIN)/python -m docs.site $(if $(REPOSITORY),--repository $(REPOSITORY))

fmt: $(STAMP)  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

sim: $(STAMP)  ## the simulation, long (SEEDS=2000), and whether it notices each broken rule
	MUTATIONS=all $(BIN)/pytest -q -n 2 tests/simulation/test_mutations.py
	$(BIN)/python -m bench.simulation --seeds $(SEEDS)

STAGE ?=
synth: $(DEPLOY_STAMP)  ## CloudFormation templates of all stages, linted; it needs Node.js 22 (STAGE=dev: of one)
	$(BIN)/python -m infra.synth $(STAGE)

destroy: $(DEPLOY_STAMP)  ## delete a stage of your own with its data (STAGE=ann)
	@$(BIN)/python -m infra.sandbox --destroy $(STAGE)

deploy-smoke: $(STAMP)  ## `make sandbox` on MiniStack, an emulator, without an AWS account
	$(BIN)/python -m infra.sandbox --emulator --load-seconds 60 --load-rate 5

CDKLOCAL = npx --yes -p aws-cdk@2.1148.1 -p aws-cdk-local@3.0.4 cdklocal
localstack: $(DEPLOY_STAMP)  ## the stage dev in LocalStack's container; it needs Docker, Node.js and LOCALSTACK_AUTH_TOKEN
	@test -n "$$LOCALSTACK_AUTH_TOKEN" || { echo "set LOCALSTACK_AUTH_TOKEN: LocalStack's image does not start without one" >&2; exit 1; }
	@command -v docker >/dev/null || { echo "Docker is needed; without it: make test-localstack" >&2; exit 1; }
	$(BIN)/python -m infra.synth dev
	docker run --rm -d --name tidings-localstack -p 127.0.0.1:4566:4566 -p 127.0.0.1:4510-4559:4510-4559 \
		-e LOCALSTACK_AUTH_TOKEN -v /var/run/docker.sock:/var/run/docker.sock localstack/localstack-pro
	curl -s --retry 60 --retry-delay 1 --retry-all-errors -o /dev/null http://127.0.0.1:4566/_localstack/health
	$(CDKLOCAL) bootstrap --app cdk.out
	$(CDKLOCAL) deploy tidings-dev --app cdk.out --require-approval never

test-localstack: $(STAMP)  ## the stage in LocalStack, without Docker, and what runs there
	$(BIN)/pytest -m localstack tests/localstack

SANDBOX ?=
sandbox: $(STAMP)  ## deploy a stage to your AWS account, test and delete it (SANDBOX="--emulator", pytest options)
	@$(BIN)/python -m infra.sandbox $(SANDBOX)

fuzz: $(STAMP)  ## requests and bytes nobody thought of: 20 minutes; crash-* is what was found
	FUZZ_EXAMPLES=100 $(BIN)/pytest tests/fuzz/test_http.py
	AGREEMENT_BODIES=1000000 $(BIN)/pytest -n 2 tests/unit/core/model/test_typed.py
	$(BIN)/python -m tests.fuzz --seconds 20

oracle: $(STAMP)  ## every promise of PROTOCOL against a server with faults (SECONDS=3600)
	$(BIN)/python -m tests.oracle --seconds $(or $(SECONDS),120)

kills: $(STAMP)  ## 20 kill -9 of a pipeline with each source and store; Spark: kills of queries, and at every step of a batch into tables
	KILLS=all $(BIN)/pytest -k kill tests/unit/pipelines
	KILLS=all $(BIN)/pytest tests/unit/lake/test_killed.py \
		tests/unit/spark/test_killed.py tests/unit/spark/test_batches.py

bench: $(STAMP)  ## measure; writes bench/RESULTS.md (ONLY="serve units": prints some)
	$(BIN)/python -m bench $(ONLY)

waiting: $(STAMP)  ## how long the worst inputs let another client wait, in 8 minutes; fails above 250 ms
	$(BIN)/python -m bench.waiting --save

bench-large: $(STAMP)  ## compare a dump of 100,000,000 objects: minutes, and 40 GB of disk
	$(BIN)/python -m bench.diff

SOAK ?=
soak: $(STAMP)  ## half an hour of load on a server with faults (SOAK="--seconds 120 --every 10")
	$(BIN)/python -m bench.soak $(SOAK)

real-dump: $(STAMP)  ## sync a feed with two suites of Debian, 20 MB each, and check every package
	$(BIN)/python -m tests.real_dumps

layers: $(STAMP)  ## the wheels a deployed function needs, for arm64
	$(BIN)/python -m infra.builds

KEY ?=
release: $(STAMP)  ## packages, layers, container context, SBOM and sums into dist/ (KEY=~/.ssh/id_ed25519: signed)
	$(BIN)/python -m infra.build_release $(KEY)

clean:  ## remove what was built
	rm -rf $(VENV) .venv-runtime cdk.out build dist site layers/vendor .pytest_cache .mypy_cache .ruff_cache
