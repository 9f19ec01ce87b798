package process_test

import (
	"bytes"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestMappedFilesCountOnce: a file of the sandbox counts once, by its size. If a program maps it, its pages do not count again.
func TestMappedFilesCountOnce(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend(process.WithoutCgroup)(t)
	defer func() { _ = b.Close(t.Context()) }()
	const program = `
import mmap, os, sys, time
f = os.open("/mnt/data/f", os.O_RDWR | os.O_CREAT)
os.ftruncate(f, 40 << 20)
m = mmap.mmap(f, 40 << 20)
for i in range(0, 40 << 20, 4096): m[i] = 1
b = bytearray(int(sys.argv[1]) << 20)
for i in range(0, len(b), 4096): b[i] = 1
time.sleep(.5)
`
	for more, killed := range map[string]bool{"25": false, "60": true} { // MiB of memory besides the file
		sp := spec("mapped-" + more)
		sp.WorkBytes = 48 << 20
		sb, err := b.Open(t.Context(), sp)
		if err != nil {
			t.Fatal(err)
		}
		var errs bytes.Buffer
		r, err := sb.Start(t.Context(), backend.Process{Argv: []string{python(), "-S", "-I", "-c", program, more}, Stderr: &errs})
		if err != nil {
			t.Fatal(err)
		}
		e, err := r.Wait(t.Context())
		if err != nil || (e.Signal == 9) != killed || !killed && e.Code != 0 {
			t.Errorf("a file of 40 MiB and %s MiB under 96 MiB: got %+v, %v, %q, want killed %v", more, e, err, errs.String(), killed)
		}
		_ = sb.Close(t.Context())
	}
}
