# The one front door. Needs cargo and a C compiler, nothing else; `make help` lists the rest.
CARGO ?= cargo
OUT   ?= out

.DEFAULT_GOAL := help
.PHONY: help kubernetes kubernetes-check bench-envoy check-envoy bench-tower demo papers papers-mutate test fmt lint docs check hostile bench-simulator bench-dataplane bench-decision bench-arena bench-classes setup bench-channel bench-policing fuzz bench-faults bench-shop compat bench-refusal gossip nats parquet bench-fleet bench-plane bench-recording bench-whatif supply-chain dist package test-deb dashboard dashboard-optional dashboard-test check-monitoring packages book publish-check image-check

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## checks what a new machine needs, and says how to get it
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust 1.90 or newer (https://rustup.rs)"; exit 1; }
	@command -v cc >/dev/null || { echo "a C compiler is missing (ring needs one): apt-get install gcc, or the like"; exit 1; }

# Rebuilt only when its sources are newer; without Node the binary says on the page how to get it.
DASHBOARD := dashboard/dist/index.html
dashboard: ## builds the web page that the next cargo build puts into the binary; needs Node 20
	@command -v npm >/dev/null || { echo "npm is missing: install Node 20 or newer"; exit 1; }
	@$(MAKE) --no-print-directory $(DASHBOARD)

$(DASHBOARD): $(wildcard dashboard/src/*) dashboard/index.html dashboard/package.json dashboard/vite.config.js
	cd dashboard && npm ci --no-audit --no-fund && npm run build

dashboard-optional:
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(DASHBOARD) || echo "the web page was not built; going on without"; fi

dashboard-test: dashboard ## the web page under a real overload, in headless Chromium
	$(CARGO) build --bin tidegate
	cd dashboard && TIDEGATE="$$($(CARGO) metadata --format-version 1 --no-deps | sed -E 's/.*"target_directory":"([^"]+)".*/\1/')/debug/tidegate" npm test

check-monitoring: setup ## Grafana's queries and the alert rules against a real Prometheus that scrapes a proxy under load
	promtool test rules dist/prometheus/tidegate.test.yml
	$(CARGO) build --bin tidegate
	dist/check-monitoring "$$($(CARGO) metadata --format-version 1 --no-deps | sed -E 's/.*"target_directory":"([^"]+)".*/\1/')/debug/tidegate"

demo: setup dashboard-optional ## builds, then shows a service under four times its capacity, with and without protection
	$(CARGO) build --release --bin tidegate
	$(CARGO) run --release --quiet --bin tidegate -- demo

papers: setup ## builds, then reproduces the papers' figures; the report is out/report.html
	$(CARGO) build --release --bin tidegate
	$(CARGO) run --release --quiet --bin tidegate -- sim papers --out $(OUT)

papers-mutate: ## the papers' experiments with each mechanism off and gains three times off: who notices
	$(CARGO) run --release --bin tidegate -- sim papers --mutate

# The gate tries the same random cases each time; `make fuzz`, and cargo by itself, always try new ones.
test: export PROPTEST_RNG_SEED ?= 1
test: setup ## runs all tests
	$(CARGO) test --workspace --locked

fmt: ## formats all code
	$(CARGO) fmt --all

lint: ## format check and clippy; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --locked --manifest-path bench/applications/route/Cargo.toml -- -D warnings

docs: ## builds the API documentation; broken links are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

publish-check: setup ## checks that the libraries can be published, and build without serde
	$(CARGO) publish --dry-run --locked -p tidegate-config -p tidegate-control -p tidegate-http1 -p tidegate-sentry -p tidegate-tower
	$(CARGO) check --locked --no-default-features -p tidegate-sentry -p tidegate-control

book: setup ## builds the book of docs/ as out/book/index.html; its tool is built once
	.ci/book

hostile: setup ## hostile requests through the proxy; CORPUS=DIR adds vectors of others
	$(CARGO) run --quiet -p tidegate-hostile --locked -- $(if $(CORPUS),--corpus $(CORPUS))

fuzz: setup ## random input for two hours or so; CASES=N and SECONDS_EACH=N set how much
	PROPTEST_CASES=$(or $(CASES),1000000) $(CARGO) test --release -p tidegate-proxy -p tidegate-lab -p tidegate --locked fuzz_
	$(CARGO) run --release --quiet -p tidegate-hostile --locked -- --mutations $(or $(CASES),1000000)
	fuzz/run $(or $(SECONDS_EACH),600)

supply-chain: setup ## licences and sources of dependencies, and advisories where their database can be reached
	.ci/supply-chain

dist: setup dashboard-optional ## packages of the binary for production, optimised by a profile of its own work; a quarter of an hour
	dist/package "$$(dist/run | tail -n 1)"

package: setup dashboard-optional ## the same packages with a plain release build; minutes
	$(CARGO) build --release --locked -p tidegate --features full
	dist/package "$$($(CARGO) metadata --format-version 1 --no-deps | sed -E 's/.*"target_directory":"([^"]+)".*/\1/')/release/tidegate"

test-deb: package ## installs, runs and removes the Debian package in a root of its own; needs root and debootstrap
	dist/test-deb out/dist/tidegate_*.deb

image-check: package ## lints the Dockerfile, runs its steps without an engine, starts the image; needs root and Debian 12
	dist/docker/check --binary "$$($(CARGO) metadata --format-version 1 --no-deps | sed -E 's/.*"target_directory":"([^"]+)".*/\1/')/release/tidegate"

bench-faults: ## deaths, reloads, slow clients and signals through the real binary, under load
	bench/faults/run

nats: setup ## builds what needs a client of NATS, and tests it against a real server where one is to be had; minutes
	CARGO=$(CARGO) .ci/nats

gossip: setup ## builds and tests what needs libp2p, which the rest does without; minutes
	$(CARGO) test -p tidegate-channel --features gossip --test gossip --locked
	$(CARGO) build -p tidegate --features gossip --locked

parquet: setup ## builds and tests the export of recordings to Apache Parquet, which the rest does without; minutes
	$(CARGO) test -p tidegate-record --features parquet --test parquet --locked
	$(CARGO) build -p tidegate --features parquet --locked

kubernetes-check: setup ## lints and tests what needs a client of Kubernetes, without one; a minute when warm
	$(CARGO) clippy -p tidegate-kubernetes -p tidegate-plane-k8s --features tidegate-kubernetes/client,tidegate-plane-k8s/client --all-targets --locked -- -D warnings
	$(CARGO) test -p tidegate-kubernetes -p tidegate-plane-k8s --features tidegate-kubernetes/client,tidegate-plane-k8s/client --locked

kubernetes: setup kubernetes-check ## builds and tests what needs a client of Kubernetes, then runs it in a real one where its cache is; 15 minutes
	$(CARGO) build -p tidegate --features kubernetes --locked
	dist/helm/check
	bench/kubernetes/run --binary "$$($(CARGO) metadata --format-version 1 --no-deps | sed -E 's/.*"target_directory":"([^"]+)".*/\1/')/debug/tidegate"

check: test lint docs ## what CI runs

packages: ## a wheel and npm tarballs of the nucleus and the browser client, in out/packages; needs Python and Node
	packages/build

compat: ## clients in Go, Java, Python and Node, curl, Chromium, gRPC; nginx, HAProxy and Envoy in front and behind
	bench/compat/run
	packages/test/run

bench-policing: ## decisions per second, in batches and by the threshold
	$(CARGO) bench -p tidegate-sentry --bench policing

bench-classes: ## figure 3 of paper 003, live: who is refused when gold, silver and bronze want too much
	bench/classes/run

bench-envoy: setup ## the real Envoy under three times overload: none, adaptive concurrency, and Tidegate by each interface
	bench/envoy/run

check-envoy: setup ## each interface of `tidegate envoy` under the real Envoy, in short; an error where goodput or reason is missing
	bench/envoy/run --check --rounds 1 --seconds 15

bench-tower: setup ## limiters for tower in one process: ours, tower, tower-resilience, little-loadshedder
	cd bench/tower && $(CARGO) run --quiet --locked

bench-refusal: ## CPU of a refusal by class through the proxy, against nginx and HAProxy
	bench/classes/refuse

bench-simulator: ## events per second against ciw and simpy
	bench/simulator/run

bench-dataplane: ## CPU per request against nginx, HAProxy and Envoy; a first look by DATAPLANE="--quick"
	bench/dataplane/run $(DATAPLANE)

bench-channel: ## delivery of control messages, and an auction's peak with and without them
	bench/channel/run

bench-decision: ## nanoseconds of an admission decision, with and without contention
	$(CARGO) bench -p tidegate-sentry --bench decision

bench-fleet: ## two live proxies in front of one service against one: goodput, guarantees, quotas, a death
	bench/fleet/run

bench-plane: ## figure 7 of paper 003, live: two applications divide a pool of servers that the control plane starts
	bench/plane/run

bench-recording: ## CPU per request with a recording and without, interleaved; RECORDING="--decisions"
	bench/recording/run $(RECORDING)

bench-whatif: ## forecasts from live recordings against live runs; ten minutes, on a quiet machine
	bench/whatif/run $(WHATIF)

bench-shop: ## three replicas of the shop behind mode ilac, under the load of paper 004's figure 3
	bench/shop/run

bench-arena: ## real proxies in front of the same overloaded service; --quick by ARENA="--quick"
	bench/arena/run $(ARENA)
