# make demo   builds the program and shows it at work
# make install  installs it into PREFIX/bin (/usr/local/bin)
# make test   runs every test
# make test-all  runs also the slow tests that go test -short leaves out
# make check  runs exactly what CI runs
# make release  builds what a release publishes into dist/
#
# Go 1.26 or newer is taken for granted. As root, the targets install what else
# they need from Debian's packages; as another user they say what is missing.

SHELL := /bin/bash
.DEFAULT_GOAL := build
.PHONY: demo build man install release test test-all test-clients lint generate check bench tools fuzz race fmt clean

export CGO_ENABLED ?= 0
VERSION := $(shell scripts/version.sh)
LDFLAGS := -s -w -X github.com/sandboxmcp/sandboxmcp/internal/app.buildVersion=$(VERSION)

demo: build
	@scripts/setup.sh run science
	@bin/sandboxmcp demo --science --out bin/demo

# The linker writes its output through a mapping, so that the page cache holds it in single pages until it
# is read anew. The kernel maps the larger pages of a copy at less cost, as after an installation: a start
# takes 12 to 23 % less CPU time.
build:
	@mkdir -p bin
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/sandboxmcp.linked ./cmd/sandboxmcp
	@cp bin/sandboxmcp.linked bin/sandboxmcp.copy && mv bin/sandboxmcp.copy bin/sandboxmcp && rm bin/sandboxmcp.linked

# Manual pages of all commands, in bin/man. With -trimpath as above, libraries are not compiled twice.
man:
	cd tools && go run -trimpath ./docs -man ../bin/man/man1

# Installs the program with completions and manual pages, and links to it.
# DESTDIR is for packagers.
PREFIX ?= /usr/local
install: build man
	install -d '$(DESTDIR)$(PREFIX)/bin'
	install -m 0755 bin/sandboxmcp '$(DESTDIR)$(PREFIX)/bin/sandboxmcp'
	ln -sfn sandboxmcp '$(DESTDIR)$(PREFIX)/bin/mcp-code-sandbox'
	ln -sfn sandboxmcp '$(DESTDIR)$(PREFIX)/bin/sandboxmcp-api'
	install -d '$(DESTDIR)$(PREFIX)/share/man/man1' '$(DESTDIR)$(PREFIX)/share/bash-completion/completions' '$(DESTDIR)$(PREFIX)/share/zsh/site-functions' '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d'
	install -m 0644 bin/man/man1/*.1 '$(DESTDIR)$(PREFIX)/share/man/man1/'
	bin/sandboxmcp completion bash > '$(DESTDIR)$(PREFIX)/share/bash-completion/completions/sandboxmcp'
	bin/sandboxmcp completion zsh > '$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_sandboxmcp'
	bin/sandboxmcp completion fish > '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/sandboxmcp.fish'

# Programs for six systems, archives, Debian packages, MCP bundles, images and checksums.
release:
	@scripts/setup.sh --need release
	@scripts/release.sh

test:
	@scripts/setup.sh run kit science user browser pdf
	@scripts/science.sh || echo 'the tests go without the package set'
	@scripts/test.sh

test-all:
	@TEST_ALL=1 $(MAKE) --no-print-directory test
	@scripts/setup.sh engine
	@TEST_ALL=1 scripts/engine-test.sh || [ $$? = 77 ]
	@scripts/setup.sh kube
	@scripts/kube-test.sh -count=1 || [ $$? = 77 ]

# Stock MCP clients against the program: installs them, and fails without them.
test-clients:
	@scripts/setup.sh run clients
	@scripts/clients.sh
	SANDBOXMCP_MUST_RUN=clients go test -count=1 -v ./internal/clients

lint:
	@scripts/lint.sh

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
