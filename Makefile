# SPDX-License-Identifier: Apache-2.0
# Everything a person does with this tree. `make` alone prints this list.
.DEFAULT_GOAL := help
SHELL := /bin/bash
JOBS ?= $(shell nproc)
BIN := build/release/bin

##@ Use
.PHONY: help setup build programs demo wheel
help: ## Print this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile

setup: ## Install the missing system packages (cmake/packages.txt)
	@cmake/setup/packages.sh

build/release/build.ninja: | setup
	@mkdir -p build && cmake --preset release >build/release.log || { cat build/release.log; exit 1; }

build: setup | build/release/build.ninja ## Build everything in build/release
	@cmake --build --preset release -j $(JOBS)

programs: setup | build/release/build.ninja ## Build what users run, without tests and benchmarks
	@cmake --build --preset release -j $(JOBS) --target programs

wheel: programs ## Pack the Python package, with its library, into dist/ for every Python from 3.10 on
	@python/wheel.sh $(BIN) dist

demo: programs ## Train digits with two workers, kill one on the way, print the story
	@examples/demo.sh $(BIN)

##@ A Kubernetes cluster on this machine
.PHONY: cluster cluster-down cluster-power-off cluster-power-on kube-setup
cluster: programs kube-setup ## Bring up a control plane and two nodes with real containers, and install the operator
	@tests/kube/cluster.py up --bin $(BIN) $(if $(NODE_GRACE),--node-grace $(NODE_GRACE))

cluster-down: ## Take the cluster down: nothing of it is left
	@tests/kube/cluster.py down

cluster-power-off: ## Cut the power of a node: make cluster-power-off NODE=node1
	@tests/kube/cluster.py power-off $(or $(NODE),$(error which node? make $@ NODE=node1))

cluster-power-on: ## Switch it on again and wait until it is Ready
	@tests/kube/cluster.py power-on $(or $(NODE),$(error which node? make $@ NODE=node1))

kube-setup: setup
	@cmake/setup/packages.sh cmake/packages-kube.txt

.PHONY: browser-setup
browser-setup: setup
	@cmake/setup/packages.sh cmake/packages-browser.txt

.PHONY: develop-setup
develop-setup: setup
	@cmake/setup/packages.sh cmake/packages-develop.txt

##@ Develop
.PHONY: test check generate format tidy cuda asan measures mutants
test: develop-setup check build asan kube-setup browser-setup ## Run the checks and all tests of the release build, parsers and transports under AddressSanitizer too
	@tests/run.sh release

check: develop-setup build ## Format, licence, layering, types of the page and of Python, generated files, the CUDA build
	@cmake/check/format.sh
	@cmake/check/licence.py
	@cmake/check/layers.py
	@cmake/check/types.sh
	@cmake/check/generated.sh $(BIN)
	@cmake/check/python.sh
	@tests/techniques/page.py --check docs/techniques.md
	@bench/origin.py --check docs/benchmarks.md
	@python3 -B dashboards/generate.py --check
	@$(MAKE) --no-print-directory cuda

generate: build ## Write crds/, docs/reference, Python's types and dashboards/ anew from what they are made of
	@$(BIN)/starling-schema-gen .
	@python3 -B dashboards/generate.py

format: develop-setup ## Let clang-format, and prettier for the page, rewrite the sources
	@cmake/check/format.sh --fix

measures: ## Print lines of code per folder, and types per 1,000 lines
	@cmake/check/measures.py trainer
	@for folder in controller api cli common; do cmake/check/measures.py $$folder | tail -n 1; done

mutants: setup | build/release/build.ninja ## Break lines one at a time: tests must notice 95 % (MUTANTS="trainer/consistency": of a folder; tests/mutation/mutants.py tells the rest)
	@python=$$(cmake/setup/mutants.sh) && cmake --build --preset release -j $(JOBS) --target \
	  $$($$python -B tests/mutation/mutants.py build/release --programs $(MUTANTS)) | tail -n 1 && \
	nice -n 19 $$python -B tests/mutation/mutants.py build/release --jobs $(JOBS) $(MUTANTS)

tidy: develop-setup build ## Run clang-tidy over what changed since it last passed (part of prove: it takes longer than the rest of check together)
	@cmake/check/tidy.py build/release

cuda: develop-setup ## Compile the CUDA kernels and link NCCL (installs both outside the tree)
	@root=$$(cmake/setup/cuda.sh) && \
	cmake -S . -B build/cuda -G Ninja -DCMAKE_BUILD_TYPE=Release -DSTARLING_TORCH=OFF -DSTARLING_CUDA=ON -DSTARLING_CUDA_ROOT=$$root >build/cuda.log && \
	cmake --build build/cuda -j $(JOBS) --target trainer_cuda_test | tail -n 1

asan: setup ## Build parsers and transports under AddressSanitizer and UndefinedBehaviorSanitizer
	@[ -f build/asan/build.ninja ] || { mkdir -p build && cmake --preset asan >build/asan.log; }
	@cmake --build --preset asan -j $(JOBS) --target hostile_input_tests

##@ Prove and measure
.PHONY: prove model bench techniques
prove: check tidy ## The long proofs: sanitizers over everything without libtorch, many seeds, many kills
	@tests/prove.sh

model: setup | build/release/build.ninja ## Search all states of the protocol's models, with every rule and without each (some minutes)
	@cmake --build --preset release -j $(JOBS) --target starling-model
	@$(BIN)/starling-model

techniques: develop-setup build ## Play the technique table with five seeds and write docs/techniques.md (installs cmake/packages-prove.txt)
	@cmake/setup/packages.sh cmake/packages-prove.txt
	@tests/techniques/prove.sh $(BIN)

bench: develop-setup build ## Measure beside the peers (installs cmake/packages-prove.txt)
	@cmake/setup/packages.sh cmake/packages-prove.txt
	@bench/run.sh $(BIN)
