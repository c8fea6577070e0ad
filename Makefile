# Everything a person does with this checkout. `make help` lists it; longer recipes are scripts in hack/.

SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Where programs go: bin/, or the user's cache when the checkout is someone else's.
BIN ?= $(shell if [ -w bin ] || { [ ! -e bin ] && [ -w . ]; }; then echo bin; else echo "$${XDG_CACHE_HOME:-$$HOME/.cache}/aks-flex-node/bin"; fi)

# The version is stamped from git. Without a readable history (a tarball, someone else's checkout) nothing is stamped and
# the program says what the Go toolchain knows.
VERSION ?= $(shell git describe --tags --always --dirty --match 'v*' 2>/dev/null)
BUILDVCS := $(shell git rev-parse -q --verify HEAD >/dev/null 2>&1 && echo true || echo false)
GO_BUILD = CGO_ENABLED=0 go build -trimpath -buildvcs=$(BUILDVCS) \
	-ldflags '-s -w -X github.com/aks-flex-node/agent/internal/version.version=$(VERSION)'

PLATFORMS := linux/amd64 linux/arm64

##@ To see it work

.PHONY: run
run: build ## build, run the agent here in the foreground, only observing, and show what it sees
	@hack/run $(BIN)/aks-flex-node

.PHONY: lab
lab: ## bring a real cluster with two nodes up on this machine, and leave it up (as root)
	@go run ./test/lab/cmd/lab up

.PHONY: lab-down
lab-down: ## stop and remove the cluster of make lab
	@go run ./test/lab/cmd/lab down

.PHONY: build
build: ## build bin/aks-flex-node
	@mkdir -p $(BIN)
	$(GO_BUILD) -o $(BIN)/aks-flex-node ./cmd/aks-flex-node

.PHONY: build-all
build-all: $(addprefix build-,$(subst /,-,$(PLATFORMS))) ## build the static programs of every platform

build-linux-%:
	@mkdir -p $(BIN)
	GOOS=linux GOARCH=$* $(GO_BUILD) -o $(BIN)/aks-flex-node-linux-$* ./cmd/aks-flex-node

##@ To hold it to its word

# Tests on hosts mostly wait, so that many can run at once on few cores: hence -parallel.
#
# Runs hack/gotest with what follows, after installing what tests need; what can't be had is told at the end.
define gotest
left_out=$$(mktemp) && trap 'rm -f "$$left_out"' EXIT && \
	hack/install-packages "$$left_out" && LEFT_OUT="$$left_out" hack/gotest
endef

.PHONY: test
test: ## install what tests need, then run all but the end-to-end tests, with the race detector
	@go test -count 1 -timeout 15m -run TestADayOfRandomFaults ./internal/agent # 50 seeds; the race detector leaves time for few
	@$(gotest) -tags lab -timeout 20m -parallel 8 ./...

.PHONY: e2e
e2e: ## run the end-to-end tests on real hosts and a real cluster made here (as root)
	@# One package at a time: a machine has inotify instances (fs.inotify.max_user_instances) for about eight hosts.
	@go run ./test/lab/cmd/lab tools
	@$(gotest) -tags e2e -timeout 32m -parallel 4 -p 1 ./test/e2e/... ./test/lab/...

.PHONY: soak
soak: ## run the long simulations, 1,000 seeds, by hand
	@go test -tags soak -count 1 -timeout 60m ./internal/decision ./internal/agent

.PHONY: check
check: ## format, go vet, linters, rooms, API lock, tidy go.mod, known vulnerabilities
	@hack/check

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME=120s; FUZZ=REGEXP chooses
	@hack/fuzz '$(or $(FUZZ),.)'

.PHONY: bench
bench: ## measure a look on a real host beside the straightforward way, as in docs/benchmarks.md (as root)
	@go test -tags bench -count 1 -v ./test/bench

.PHONY: ci
ci: ## what runs on every change: check, test, e2e
	@bash .ci/run

##@ To change it

.PHONY: fmt
fmt: ## format the source and its imports
	@"$$(hack/tool goimports)" -w -local github.com/aks-flex-node/agent .

.PHONY: clean
clean: ## remove what was built here; the cache of tools stays
	rm -rf bin

.PHONY: help
help: ## list this
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
