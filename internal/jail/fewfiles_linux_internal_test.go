package jail

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestErrorsNameTheLimitOfOpenFiles: an error names the limit only if the limit is low and may be the cause.
func TestErrorsNameTheLimitOfOpenFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		errno unix.Errno
		limit int64
		want  bool
	}{{unix.EBADF, 64, true}, {unix.EMFILE, 64, true}, {unix.EPERM, 64, false}, {unix.EBADF, 1024, false}} {
		err := withLimit(fmt.Errorf("keep /: %w", c.errno), c.limit)
		if got := strings.Contains(err.Error(), fmt.Sprintf("%d open files (RLIMIT_NOFILE)", c.limit)); got != c.want {
			t.Errorf("%v with a limit of %d: got %v, want the limit: %v", c.errno, c.limit, err, c.want)
		}
	}
}
