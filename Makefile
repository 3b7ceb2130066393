# redislock: `make help` lists what there is to do.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
PORT ?= 6379
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
DEBUG_MODULE := $(TARGET)/debug/libredislock.so
RELEASE_MODULE := $(TARGET)/release/libredislock.so
# Where `make run` takes its server from: redis-6.2, redis-7.0, redis-8.2 or valkey-8.1.
SERVER ?= redis-8.2
# One more word for `make integration`, to run some tests only: `make integration TEST=b28`.
TEST ?=
SOAK_SECONDS ?= 600

.PHONY: help
help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

.PHONY: setup
setup: ## install what building and testing need (asks for root only where something is missing)
	@scripts/setup.sh

.PHONY: servers
servers: ## bring the servers of the tests to target/servers
	@scripts/servers.sh

.PHONY: build
build: ## build the module: target/release/libredislock.so
	$(CARGO) build --release --package redislock

.PHONY: run
run: setup build ## start a server with the module on port PORT (6379), in a scratch folder
	@scripts/run.sh "$(SERVER)" "$(PORT)" "$(RELEASE_MODULE)"

.PHONY: test
test: setup lint unit ## everything: format, lints, docs, unit tests, integration tests in debug and release
	$(MAKE) integration
	$(MAKE) integration-release

.PHONY: lint
lint: ## check format, lints and documentation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --all-features

.PHONY: unit
unit: ## run the tests that need no server: unit, property, exhaustive, simulation
	$(CARGO) test --package redislock --lib
	$(CARGO) test --package redislock-core
	$(CARGO) test --package redislock-testkit --lib
	$(CARGO) test --package redislock-client --all-features --lib

.PHONY: integration
integration: servers ## run the tests on every server, with the debug build (TEST=word for some of them)
	$(CARGO) build --package redislock
	REDISLOCK_MODULE=$(DEBUG_MODULE) $(CARGO) test --package redislock --package redislock-testkit --test '*' -- $(TEST)
	REDISLOCK_MODULE=$(DEBUG_MODULE) $(CARGO) test --package redislock-client --all-features --test '*' -- $(TEST)
	REDISLOCK_MODULE=$(DEBUG_MODULE) $(CARGO) test --package redislock-client --package redislock-testkit \
		--all-features --doc -- $(TEST)

.PHONY: integration-release
integration-release: servers build ## run the module's tests on every server, with the release build
	REDISLOCK_MODULE=$(RELEASE_MODULE) $(CARGO) test --package redislock --test '*' -- $(TEST)

.PHONY: demo
demo: servers build ## a flash sale on real servers: without a lock, with it, with fences
	REDISLOCK_MODULE=$(RELEASE_MODULE) $(CARGO) run --release --package redislock-client --example flash_sale

.PHONY: bench
bench: servers build ## measure the commands, the hand-off, crowds, and the client
	REDISLOCK_MODULE=$(RELEASE_MODULE) $(CARGO) bench --package redislock --bench commands --bench sharing
	# On one processor: else it measures on which of them the scheduler wakes whom.
	REDISLOCK_MODULE=$(RELEASE_MODULE) taskset --cpu-list 0 $(CARGO) bench --package redislock --bench handoff
	REDISLOCK_MODULE=$(RELEASE_MODULE) $(CARGO) bench --package redislock-client --bench bars

.PHONY: valgrind
valgrind: servers ## run the memory tests under valgrind, on the servers built on libc malloc
	$(CARGO) build --package redislock
	REDISLOCK_MODULE=$(DEBUG_MODULE) REDISLOCK_SERVERS=redis-6.2,valkey-8.1 \
		$(CARGO) test --package redislock --test '*' -- --ignored valgrind

.PHONY: soak
soak: servers build ## run the long tests, SOAK_SECONDS (600) each
	REDISLOCK_MODULE=$(RELEASE_MODULE) SOAK_SECONDS=$(SOAK_SECONDS) \
		$(CARGO) test --package redislock --package redislock-client --test '*' -- --ignored soak

.PHONY: clean
clean: ## remove what was built, and the servers
	$(CARGO) clean
