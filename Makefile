# A fresh machine needs git, cargo, python3 with venv, node with npm, make and a C compiler.
# Everything else goes below target/.

PYTHON ?= python3
CARGO ?= cargo
ARGS ?=
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
LINT := $(TARGET)/lint
RUFF := ruff==0.17.6
MYPY := mypy==2.4.1
MYPY_HERE = MYPY_CACHE_DIR=$(abspath $(LINT))/cache $(abspath $(LINT))/bin/mypy --strict
# Python sources that are checked; folders appear here as soon as they exist.
PYTHON_SOURCES := $(wildcard tests bindings-python)

.PHONY: help servers demo test lint lint-rust lint-licences lint-python bench soak mutants clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 16

servers: ## Install the Redis and Valkey servers of the tests below target/
	@$(PYTHON) tests/servers.py $(TARGET)/servers

# Without a server to be had, the demo runs on the embedded store.
demo: ## Show what it does, on a cluster of real servers
	@[ -n "$$GRIFO_URL" ] || $(PYTHON) tests/servers.py $(TARGET)/servers || true
	@$(CARGO) run --release --quiet -p grifo-tests --bin demo -- $(ARGS)

test: servers ## Run every suite; ARGS="--only NAME" runs one
	@$(PYTHON) tests/suites.py $(ARGS)

lint: lint-rust lint-licences lint-python ## Check format, lints, documentation, licences and Python

lint-rust:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings
	$(CARGO) clippy --locked -p grifo -- -D warnings
	$(CARGO) clippy --locked -p grifo --no-default-features --features cli -- -D warnings
	$(CARGO) clippy --locked -p grifo --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --all-features

# Building cargo-deny takes longer than everything else here together, so its equal stands in for it.
lint-licences:
	@if command -v cargo-deny >/dev/null 2>&1; then \
		$(CARGO) deny --locked check bans licenses sources; \
	else \
		$(PYTHON) tests/licences.py; \
	fi

lint-python: $(LINT)/$(RUFF)-$(MYPY)
	$(LINT)/bin/ruff check $(PYTHON_SOURCES)
	$(LINT)/bin/ruff format --check $(PYTHON_SOURCES)
	$(MYPY_HERE) $(wildcard tests/*.py)
	cd tests/reference && $(MYPY_HERE) .

$(LINT)/$(RUFF)-$(MYPY):
	$(PYTHON) -m venv --clear $(LINT)
	$(LINT)/bin/python -m pip install --quiet --disable-pip-version-check $(RUFF) $(MYPY)
	@touch $@

bench: servers ## Measure it side by side with other rate limiters; ARGS="--help" tells the options
	@$(CARGO) run --release --quiet -p grifo-bench -- $(ARGS)

soak: servers ## Compare a million random operations with the reference, from a new seed
	@GRIFO_OPERATIONS=1000000 GRIFO_SEED=$${GRIFO_SEED:-$$(date +%s)} \
		$(CARGO) test --release --quiet -p grifo-tests --test properties -- --nocapture $(ARGS)

mutants: servers ## Break the algorithms in every way that cargo-mutants knows; every break must be noticed
	@GRIFO_TEST_SERVER=$$(find $(abspath $(TARGET)/servers) -name valkey-server -type f | head -n 1) \
		$(CARGO) mutants --baseline skip --output $(TARGET) $(ARGS)

clean: ## Remove everything that was built
	rm -rf $(TARGET)
