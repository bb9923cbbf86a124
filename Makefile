# `make help` lists the targets. Everything runs in .venv, which the first target that needs it makes.
PYTHON ?= python3
BIN := .venv/bin
KEEP ?=
SERVED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

.PHONY: install
install: .venv/.installed ## Make .venv with everything pinned in requirements.lock

.venv/.installed: requirements.lock pyproject.toml tools/install.py tools/bytecode.py
	@$(PYTHON) -c '$(SERVED)' || { \
	  echo "error: Brimful needs Python 3.11, 3.12 or 3.13: make install PYTHON=python3.12"; exit 1; }
	@echo "Installing into .venv (3 GB; 30 to 70 s, longer over a slow network) ..."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv 2>/dev/null \
	  || $(PYTHON) -m venv --clear .venv || { rm -rf .venv; exit 1; }
	@$(BIN)/python -c '$(SERVED)' || { \
	  echo "error: .venv has $$($(BIN)/python --version), not 3.11 to 3.13: remove it and run this again"; \
	  exit 1; }
	@$(BIN)/python -m tools.install
	@touch $@

.PHONY: demo
demo: install ## Two vLLM replicas here: the same requests without and with control, and what clients saw (KEEP=1: stay up)
	$(BIN)/brimful demo $(if $(KEEP),--keep)

.PHONY: test
test: install lint typecheck ## Lint, types, and every test (20 minutes on 2 idle cores)
	@failed=0; \
	$(BIN)/python -m pytest -n auto -m "not alone" || failed=1; \
	$(BIN)/python -m pytest -n 2 --dist loadgroup --max-worker-restart 0 -m alone || failed=1; \
	exit $$failed

.PHONY: test-fast
test-fast: install ## The tests without vLLM's scheduler, an engine or a cluster (75 s on 2 cores)
	$(BIN)/python -m pytest -n auto tests/unit tests/property tests/monitoring

.PHONY: test-thorough
test-thorough: install ## The property tests with 3,000 examples each in place of 100 (minutes)
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest tests/property

.PHONY: fuzz
fuzz: install .venv-fuzz/.installed ## schemathesis against a replica's API: no 5xx, no hang (10 minutes; ARGS='--seconds 60')
	$(BIN)/python -m tests.fuzz $(ARGS)

.venv-fuzz/.installed: tests/fuzz/requirements.txt
	@$(BIN)/python -m venv .venv-fuzz
	@.venv-fuzz/bin/python -m pip install --quiet -r tests/fuzz/requirements.txt
	@touch $@

.PHONY: upstream
upstream: install ## vLLM's own scheduler tests with ours in place of theirs, four settings (10 minutes; ARGS='--only static')
	$(BIN)/python -m tests.upstream $(ARGS)

.PHONY: versions
versions: install ## Each private thing of vLLM that is leaned on, in the oldest, pinned and newest vLLM: there, moved, gone (ARGS='--changed 0.31.0')
	$(BIN)/python -m tools.versions $(ARGS)

.PHONY: lives
lives: install ## 1,000 random lives of ours beside vLLM's own scheduler (50 in make test)
	$(BIN)/python -m pytest -n auto --lives 1000 tests/vllm/replicas/test_differential.py

.PHONY: mutants
mutants: install ## Share of small changes to the controller that tests notice (an hour; ARGS='--sample 200')
	$(BIN)/python -m tests.mutants $(ARGS)

.PHONY: lint
lint: install ## Formatting and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

.PHONY: format
format: install ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: typecheck
typecheck: install ## mypy, strict
	$(BIN)/mypy

.PHONY: check
check: install ## Find every mistake in the shipped configs and manifests
	$(BIN)/brimful model --kind llama .cache/tiny-llama
	$(BIN)/brimful check configs/*.yaml k8s/base/rayservice.yaml

.PHONY: check-k8s
check-k8s: install ## Every overlay and the Helm chart: rendered, held against KubeRay's schema, checked; misspelt fields refused
	$(BIN)/python -m pytest tests/unit/k8s tests/unit/serve_app/checks/test_manifest.py

.PHONY: chart
chart: install ## The Helm chart's files anew from the overlays
	$(BIN)/python -m tools.kubernetes chart

.PHONY: check-plan
check-plan: install ## `brimful plan`: KV memory versus vLLM's own allocator, its Serve config through `check`, capacity versus the replay (3 minutes; part of make test)
	$(BIN)/python -m pytest tests/unit/serve_app/planning tests/unit/simulator/plan tests/vllm/serve_app tests/vllm/benchmarks/test_plan_capacity.py

.PHONY: docs
docs: install ## The page that is made from the code: docs/configuration.md
	$(BIN)/python -m tools.configuration

.PHONY: site
site: install .venv-site/.installed ## The pages of docs as one site in build/site; a broken link is an error (a minute)
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build

.venv-site/.installed: tools/site.lock
	@$(BIN)/python -m venv .venv-site
	@.venv-site/bin/python -m pip install --quiet -r tools/site.lock
	@touch $@

.PHONY: bench-scheduler
bench-scheduler: install ## Scheduler overhead per step, in microseconds
	$(BIN)/python -m benchmarks scheduler

.PHONY: bench-controller
bench-controller: install ## Cost of the controller with 1,000 replicas: CPU share, time of a report
	$(BIN)/python -m benchmarks controller $(ARGS)

.PHONY: bench-path
bench-path: install ## The serving path versus bare vLLM: tokens/s, TTFT, ITL, CPU (25 minutes, idle machine)
	$(BIN)/python -m benchmarks path $(ARGS)

.PHONY: bench-overload
bench-overload: install ## Up to ten times what a fleet carries, three classes, versus Ray's and vLLM's own limits (25 minutes; ARGS='--only NAME' makes a part)
	$(BIN)/python -m benchmarks overload $(ARGS)

.PHONY: bench-faults
bench-faults: install ## What becomes of requests when processes are killed under them (under 15 minutes; ARGS='--only router')
	$(BIN)/python -m benchmarks faults $(ARGS)

.PHONY: bench-elastic
bench-elastic: install ## Replicas that follow demand: ours and the best rivals over 16 days (hours; ARGS='--only step' takes a part)
	$(BIN)/python -m benchmarks elastic $(ARGS)

.PHONY: bench-pd
bench-pd: install ## Prefill and decode apart in virtual time: aggregated, fixed ratios, roles by the controller (hours; ARGS='--engines 4 --only 257/62' takes a part)
	$(BIN)/python -m benchmarks pd $(ARGS)

.PHONY: bench-gpu
OUT ?= .cache/gpu
bench-gpu: ## Step times and control on a GPU, with the Python and vLLM that are there (9 minutes; ARGS='--budget-s 900')
	$(PYTHON) -m benchmarks gpu --out $(OUT) $(ARGS)

.PHONY: tables
tables: install ## Tables and figures of the paper whose method this is, rebuilt, into docs/results (about 10 minutes; ARGS='--only II' prints a part)
	$(BIN)/python -m benchmarks tables $(ARGS)

.PHONY: results
results: install ## The policy adaptive versus static engines and published schedulers, each tuned for the scenario (hours; ARGS='--only capacity:azure' takes a part; ARGS=--search: settings searched anew)
	$(BIN)/python -m benchmarks results $(ARGS)
