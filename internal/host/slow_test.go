//go:build unix

package host_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
)

// TestWordsThatTakeLongToFollow: a repository may have links through thousands of directories. A command that names too many
// of them is refused, and a word is judged by what the kernel finds for it, or is refused.
func TestWordsThatTakeLongToFollow(t *testing.T) {
	b := open(t, func(c *host.Config) { c.Allowed = []string{"cat", "echo"} })
	hidden := b.file(".env", "hidden")
	at, deep := b.root, strings.Repeat("/d", 900)
	if err := os.MkdirAll(at+deep, 0o755); err != nil {
		t.Fatal(err)
	}
	link := func(i int) string { return at + deep + "/l" + strconv.Itoa(i) }
	for i := range 200 {
		if err := os.Symlink(link(i+1), link(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, to := range map[int]string{200: b.file("end", "end"), 198: link(200), 190: hidden} {
		_ = os.Remove(link(i)) // one may not be there
		if err := os.Symlink(to, link(i)); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"short": link(198), "secret": link(185), "long": link(0)} {
		if err := os.Symlink(to, filepath.Join(b.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	b.wantOutput("cat short", "end")
	b.wantRefused("cat secret", sandboxmcp.CodeHostPathDenied)
	b.wantRefused("echo secret", sandboxmcp.CodeHostPathDenied)
	many := make([]string, 1000)
	for i := range many {
		many[i] = "long"
	}
	_, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Argv: append([]string{"cat"}, many...), Timeout: time.Minute}, noMasks{})
	wantCode(t, "words that take too much to look at", err, sandboxmcp.CodeHostPathDenied)
}
