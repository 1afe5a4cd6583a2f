# `make run` serves on an embedded SQLite file; `make test` proves everything. Both install what
# they need first.

.PHONY: help run demo test test-unit test-fuzz fuzz test-model test-it test-api test-rules test-postgres-versions test-etcd-versions test-chart test-image \
	test-chaos chaos mutants picture bench bench-micro profile lint deny fmt setup

# Each target says what it does after its `##`.
help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-23s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Serve on an embedded SQLite file, on 127.0.0.1:7420
	@scripts/setup run
	cargo run --release --locked -- serve

demo: ## Tell the story of the paused holder, in a few seconds
	@scripts/setup run
	cargo run --release --locked -- demo

# Everything that a change must pass.
test: lint deny test-unit test-fuzz test-model test-it test-chaos test-api test-rules test-postgres-versions test-etcd-versions test-chart test-image ## Prove everything

# The rule, the parsers, the cache: no servers needed.
test-unit: setup ## The fast part of it
	cargo test --locked --lib --bins

# The protocol in small, in every order of its steps; and atomics under every order of memory.
test-model: setup ## The model, searched to its end, in a minute
	cargo test --locked --manifest-path model/Cargo.toml --target-dir target/model

# The same properties that `test-unit` tries for a moment.
test-fuzz: setup ## Two minutes of random input for the parsers and the fold of a batch
	scripts/fuzz 2

# And for as long as you like.
fuzz: setup ## Random input for the parsers and the fold of a batch; MINUTES=5
	scripts/fuzz $(or $(MINUTES),1)

# The real binary against real servers.
test-it: setup ## The part with real servers
	cargo test --locked --test it

# Seven short rounds, and the checks themselves against stores that are broken on purpose. Needs root: it has
# a network and mounts of its own.
test-chaos: setup ## Three minutes of faults, and the checks that judge them
	cargo test --locked --test chaos

# Prints seeds; one of them alone plays that round once more.
chaos: setup ## Faults for MINUTES=10, written to docs/proof.md; SEED=7 for one round
	MINUTES=$(MINUTES) SEED=$(SEED) cargo test --locked --test chaos -- long

# Hours for all of it: the tests of the tests. It goes on where it was left.
mutants: setup ## What no test notices when it is broken: docs/mutants.md; FILES=src/fence.rs, JOBS=2, BUDGET=600 s each
	JOBS=$(JOBS) scripts/mutants $(FILES)

# The same against its own OpenAPI document: what it says is what happens.
test-api: setup ## The part that Schemathesis proves
	scripts/test-api

# The alerts fire when they should, and ask for nothing that is not counted.
test-rules: setup ## The alert rules, their runbooks and the dashboard
	scripts/test-rules

# What depends on the server, against each Postgres that is promised to work.
test-postgres-versions: setup ## The part that depends on Postgres, on 14 to 18
	scripts/postgres-versions

# The installed release is Debian's 3.4; the others are built from their Go modules, and kept outside the checkout.
test-etcd-versions: setup ## The part that depends on etcd, on 3.5 to 3.7
	scripts/etcd-versions

picture: setup ## Renew the picture of the page in the README, in two minutes
	FENCEPOST_PICTURE=docs/page.png cargo test --locked --test it page::portrait

# The charts by two Helms, against the schemas of Kubernetes 1.29 to 1.36, and run by the real binary.
test-chart: setup ## The Helm charts
	scripts/test-chart

# Needs root: containers without a daemon.
test-image: setup ## The container image, built and run
	scripts/test-image

# Apart from the tests: a ratio measured in one run says something, a time alone does not.
# Without QUICK it takes twenty minutes, and writes docs/benchmarks.md. Locks first: that page shows them too.
bench: ## What it costs, side by side with its peers; QUICK=1 for a first impression
	@scripts/setup bench
	QUICK=$(QUICK) cargo bench --locked --bench locks
	QUICK=$(QUICK) cargo bench --locked --bench engine

# After a change of the compiler, or of what most requests do: a profile that is too old does no harm, and less good.
profile: ## Count what a busy server does, for the builds to come: pgo/
	@scripts/setup profile
	pgo/train

# The parts that need no servers, with Criterion.
bench-micro: ## What the parser, the mark cache and the batch builder cost
	@scripts/setup run
	cargo bench --locked --bench micro

lint: setup ## Formatting and clippy
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	cargo fmt --check --manifest-path model/Cargo.toml
	cargo clippy --locked --manifest-path model/Cargo.toml --target-dir target/model --all-targets -- -D warnings

# Not the advisories: they come from GitHub, and a build must not depend on it.
deny: setup ## Licences, sources, bans and duplicates of the dependencies
	cargo deny --locked check --show-stats bans licenses sources

fmt: setup ## Format the code
	cargo fmt

setup: ## Install what is missing
	@scripts/setup test
