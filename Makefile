# The verbs of this project. Logic lives in scripts/.
#   DEVICE=cpu|cuda  for setup: which vLLM (default: that of the existing .venv, else cpu)
#   ARGS="..."       passed on to serve, test, bench and lock
.DEFAULT_GOAL := help
.PHONY: help setup setup-dev serve test lint bench gpu-check lock

DEVICE ?=
ARGS ?=
SETUP := scripts/setup.sh $(if $(DEVICE),--device $(DEVICE))
BIN := .venv/bin

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make or repair .venv (DEVICE=cuda for NVIDIA GPUs)
	@$(SETUP)

setup-dev:
	@$(SETUP) --dev

serve: setup ## start the service (ARGS="--port 9000")
	$(BIN)/voxserve serve $(ARGS)

test: setup-dev ## run every test that needs no GPU (ARGS="-k wav -x")
	$(BIN)/python -m pytest -m "not gpu" $(ARGS)

lint: setup-dev ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@if command -v shellcheck >/dev/null; then shellcheck scripts/*.sh .ci/run; \
	else echo "shellcheck is not installed: shell scripts not checked"; fi

bench: setup ## measure latency and throughput
	$(BIN)/python -m bench $(ARGS)

gpu-check: ## on a machine with an NVIDIA GPU: golden numbers, concurrency, then the benchmark
	@scripts/setup.sh --device cuda --dev
	$(BIN)/python -m pytest tests/engine --ignore tests/engine/test_tensor_parallel.py $(ARGS)
	$(BIN)/python -m pytest tests/engine_llm -m gpu $(ARGS)
	$(BIN)/python -m bench

lock: ## resolve requirements/*.lock anew (ARGS=--upgrade for newer versions)
	@scripts/lock.sh $(ARGS)
