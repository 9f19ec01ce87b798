package jail

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpensUnderAnyUmask: the root of sandboxes does not depend on the server's umask, by which the sandbox's user could not
// pass its directories.
func TestOpensUnderAnyUmask(t *testing.T) {
	for _, mask := range []int{0o077, 0o777} {
		cfg := testConfig(t)
		old := unix.Umask(mask)
		j, err := Open(cfg)
		unix.Umask(old)
		if err != nil {
			t.Fatalf("umask %#o: %v", mask, err)
		}
		_ = made(t, j).Close()
		_ = j.Close()
	}
}
