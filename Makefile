# make demo   builds the program and shows it at work
# make test   runs every test
# make test-all  runs also the slow tests that go test -short leaves out
# make check  runs exactly what CI runs
#
# Go 1.26 or newer is taken for granted. As root, the targets install what else
# they need from Debian's packages; as another user they say what is missing.

SHELL := /bin/bash
.DEFAULT_GOAL := build
.PHONY: demo build test test-all test-clients lint generate check bench tools fuzz race fmt clean

export CGO_ENABLED ?= 0
VERSION := $(shell scripts/version.sh)
LDFLAGS := -s -w -X github.com/sandboxmcp/sandboxmcp/internal/app.buildVersion=$(VERSION)

demo: build
	@scripts/setup.sh run science
	@bin/sandboxmcp demo --science --out bin/demo

build:
	@mkdir -p bin
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/sandboxmcp ./cmd/sandboxmcp

test:
	@scripts/setup.sh run kit science user
	@scripts/science.sh || echo 'the tests go without the package set'
	@scripts/test.sh

test-all:
	@TEST_ALL=1 $(MAKE) --no-print-directory test

# Stock MCP clients against the program: installs them, and fails without them.
test-clients:
	@scripts/setup.sh run clients
	@scripts/clients.sh
	SANDBOXMCP_MUST_RUN=clients go test -count=1 -v ./internal/clients

lint: tools
	scripts/modules.sh $(CURDIR)/.tools/bin/golangci-lint run ./...

# Formats every file in place.
fmt: tools
	scripts/modules.sh $(CURDIR)/.tools/bin/golangci-lint fmt ./...

# The documents that the sources hold, and the tables of the seccomp compiler.
generate:
	scripts/modules.sh go generate ./...

check:
	@scripts/check.sh

# Writes docs/benchmarks.md and docs/dev/benchmarks.md.
bench: build
	@scripts/setup.sh run bench
	@scripts/peers.sh || echo 'the benchmark goes without what is missing'
	go build -C bench -o ../bin/bench .
	bin/bench

tools:
	@scripts/setup.sh lint

# Every fuzz test for FUZZTIME (30s).
fuzz:
	@scripts/fuzz.sh

# The rooms above the seam with the race detector; needs a C compiler.
race:
	CGO_ENABLED=1 go test -race -shuffle=on $$(go list ./... | grep -vE '/(backend|internal/(jail|cgroup))(/|$$)')

clean:
	rm -rf bin dist
