// Package testkit holds what tests of several rooms need. It is for tests only;
// no package of the product imports it.
//
// # What a machine must offer
//
// A test that lacks something (root, an interpreter, a cgroup) skips, so that
// the suite is green on a laptop. On a machine that is known to offer it, a
// skip would hide a fault: the environment variable SANDBOXMCP_MUST_RUN lists,
// with commas, the words of what must be there, and [Need] turns the skip into
// a failure. The words in use:
//
//	root       the test process is root
//	user       the test process is not root
//	userns     an unprivileged user namespace can be made
//	cgroup     cgroups can be made by this process
//	python     a Python interpreter
//	pip        its package installer, for the system's python3
//	node       Node.js
//	bash       bash
//	browser    Chromium
//	pdf        pdftotext of Poppler
//	docker     the container engine that scripts/engine.sh starts for its command
//	clients    the MCP clients of scripts/clients.sh
//	registry   the package indexes of this machine's pip configuration
//	mcpmodule  the module of the MCP registry, in the module cache
//	initbytes  the compilers that made the bytes of the small init
package testkit

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// MustRun is the environment variable that lists the words whose tests may not
// be skipped.
const MustRun = "SANDBOXMCP_MUST_RUN"

// Need goes on when ok. Else it skips the test, or fails it when the word is
// among those of [MustRun]. why says what is missing, for the reader of the
// report.
func Need(t testing.TB, word string, ok bool, why string) {
	t.Helper()
	if ok {
		return
	}
	if Demanded(word) {
		t.Fatalf("%s is demanded by %s and is not there: %s", word, MustRun, why)
	}
	t.Skipf("needs %s: %s", word, why)
}

// Demanded reports whether the word is among those of [MustRun].
func Demanded(word string) bool {
	return slices.Contains(strings.FieldsFunc(os.Getenv(MustRun), func(r rune) bool {
		return r == ',' || r == ' '
	}), word)
}

// Root goes on when the test runs as root; see [Need].
func Root(t testing.TB) {
	t.Helper()
	Need(t, "root", os.Geteuid() == 0, "the test runs as an ordinary user")
}

// User goes on when the test runs as an ordinary user; see [Need].
func User(t testing.TB) {
	t.Helper()
	Need(t, "user", os.Geteuid() != 0, "the test runs as root")
}

// Sandbox goes on when ok, which says whether a sandbox can be built here. That takes root or
// user namespaces; see [Need].
func Sandbox(t testing.TB, ok bool, why string) {
	t.Helper()
	word := "userns"
	if os.Geteuid() == 0 {
		word = "root"
	}
	Need(t, word, ok, why)
}
