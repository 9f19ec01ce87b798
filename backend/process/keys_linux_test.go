package process_test

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestKeysAreNotShown: neither the keys that the server's user has in the kernel nor how many.
func TestKeysAreNotShown(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	if _, err := os.Lstat("/proc/keys"); err != nil {
		t.Skip("this kernel has no keys")
	}
	runtime.LockOSThread() // the keyring belongs to this thread, and ends with the process
	defer runtime.UnlockOSThread()
	if _, err := unix.AddKey("user", "sandboxmcp-test-letters", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING); err != nil {
		t.Skipf("add a key: %v", err)
	}
	if text, err := os.ReadFile("/proc/keys"); err != nil || !strings.Contains(string(text), "sandboxmcp-test-letters") {
		t.Skipf("got %v, want the key in the host's own list", err)
	}
	b := newBackend()(t)
	defer func() { _ = b.Close(t.Context()) }()
	out, _ := tenant(t, b, "print([open('/proc/' + f).read() for f in ('keys', 'key-users')])")
	if want := "['', '']\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}
