# One command for each thing that a maintainer does. docs/testing.md says what
# the test targets run and how to read a skip.

export CGO_ENABLED = 0

BIN     := bin/netsandbox
GO      ?= go
# Two packages at a time: the tests are bound by the kernel, not by the processor.
PARALLEL ?= 2
FUZZTIME ?= 30s

.PHONY: all build demo deps test test-unit test-kernel mutate fuzz bench lint golden darwin release clean

all: build

build: ## the binary, bin/netsandbox
	$(GO) build -trimpath -o $(BIN) ./cmd/netsandbox

demo: build ## the whole story in a throw-away network; nothing on the host is touched
	$(BIN) demo

deps: ## programs that tests and benchmarks need and that are missing (apt, as root)
	./tools/deps

test: ## everything: what needs no privilege first, then, as root, the kernel tests
	PARALLEL=$(PARALLEL) ./tools/test all

test-unit: ## the first half of test
	PARALLEL=$(PARALLEL) ./tools/test unit

test-kernel: ## the second half of test; needs root
	PARALLEL=$(PARALLEL) ./tools/test kernel

mutate: ## remove every edge, guard and condition in turn; a named test must fail
	$(GO) run ./tools/mutate

fuzz: ## each fuzz target for FUZZTIME
	FUZZTIME=$(FUZZTIME) ./tools/fuzz

bench: deps ## the bars of docs/benchmarks.md, as a table; BENCH=REGEXP for some, ROUNDS=PERCENT
	$(GO) run ./tools/bench -bench '$(or $(BENCH),.)' -rounds $(or $(ROUNDS),100)

lint: ## formatting, vet, golangci-lint, govulncheck, a tidy go.mod
	./tools/lint

golden: ## rewrite what is generated: drawings, diagrams in documents, script expectations
	./tools/golden

darwin: ## what must at least build and vet elsewhere
	GOOS=darwin GOARCH=arm64 $(GO) vet ./...
	GOOS=darwin GOARCH=amd64 $(GO) vet ./...
	GOOS=linux GOARCH=arm64 $(GO) vet ./...
	GOOS=darwin GOARCH=arm64 $(GO) build ./...
	GOOS=darwin GOARCH=amd64 $(GO) build ./...
	GOOS=linux GOARCH=arm64 $(GO) build ./...

release: ## the same bytes on every machine, with checksums, in dist/
	./tools/release

clean:
	rm -rf bin dist
