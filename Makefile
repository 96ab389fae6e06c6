# The one front door. Needs cargo and a C compiler, nothing else; `make help` lists the rest.
CARGO ?= cargo
OUT   ?= out

.DEFAULT_GOAL := help
.PHONY: help demo papers test fmt lint docs check hostile bench-simulator bench-dataplane bench-decision setup

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## checks what a new machine needs, and says how to get it
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust 1.90 or newer (https://rustup.rs)"; exit 1; }
	@command -v cc >/dev/null || { echo "a C compiler is missing (ring needs one): apt-get install gcc, or the like"; exit 1; }

demo: setup ## builds, then shows a service under four times its capacity, with and without protection
	$(CARGO) build --release --bin tidegate
	$(CARGO) run --release --quiet --bin tidegate -- demo

papers: setup ## builds, then reproduces the papers' figures; the report is out/report.html
	$(CARGO) build --release --bin tidegate
	$(CARGO) run --release --quiet --bin tidegate -- sim papers --out $(OUT)

test: setup ## runs all tests
	$(CARGO) test --workspace --locked

fmt: ## formats all code
	$(CARGO) fmt --all

lint: ## format check and clippy; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

docs: ## builds the API documentation; broken links are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

hostile: setup ## hostile requests through the proxy; CORPUS=DIR adds vectors of others
	$(CARGO) run --quiet -p tidegate-hostile --locked -- $(if $(CORPUS),--corpus $(CORPUS))

check: test lint docs ## what CI runs

bench-simulator: ## events per second against ciw and simpy
	bench/simulator/run

bench-dataplane: ## CPU per request against nginx and HAProxy
	bench/dataplane/run

bench-decision: ## nanoseconds of an admission decision, with and without contention
	$(CARGO) bench -p tidegate-sentry --bench decision
