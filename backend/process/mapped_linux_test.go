package process_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

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

// TestMappedFilesOfTheHostAreNoMemory: a program may map a file that is larger than its limit.
func TestMappedFilesOfTheHostAreNoMemory(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	dir := t.TempDir()
	for d := dir; d != filepath.Dir(filepath.Dir(dir)); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	var system unix.Statfs_t
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "f"), nil, 0o600), os.Chmod(filepath.Join(dir, "f"), 0o644), os.Truncate(filepath.Join(dir, "f"), 200<<20), unix.Statfs(dir, &system)); err != nil {
		t.Fatal(err)
	}
	testkit.Need(t, "a disk", system.Type != unix.TMPFS_MAGIC, "pages of a file in memory count otherwise")
	b := newBackend(process.WithoutCgroup)(t)
	defer func() { _ = b.Close(t.Context()) }()
	const program = `
import mmap, sys, time
f = open("` + backend.PackageDir + `/shown/f", "rb")
m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
for i in range(0, len(m), 4096): m[i]
time.sleep(.3)
`
	sp := spec("mapped-host")
	sp.Trees = []backend.Tree{{Host: dir, Inside: backend.PackageDir + "/shown"}}
	sb, err := b.Open(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	var errs bytes.Buffer
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{python(), "-S", "-I", "-c", program}, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := r.Wait(t.Context()); err != nil || e.Signal != 0 || e.Code != 0 {
		t.Errorf("a file of 200 MiB under 96 MiB: got %+v, %v, %q, want that the program goes on", e, err, errs.String())
	}
}

// TestThreadsHaveRoomForTheirStacks: each reserves 8 MiB, and uses little of it.
func TestThreadsHaveRoomForTheirStacks(t *testing.T) {
	testkit.Need(t, "python", python() != "", "no interpreter that a sandbox can see")
	b := newBackend(process.WithoutCgroup)(t)
	defer func() { _ = b.Close(t.Context()) }()
	sp := spec("stacks")
	sb, err := b.Open(t.Context(), sp)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sb.Close(t.Context()) }()
	const program = `
import sys, threading
threads = int(sys.argv[1])
all = threading.Barrier(threads, timeout=20)
ts = [threading.Thread(target=all.wait) for _ in range(threads)]
for t in ts: t.start()
for t in ts: t.join()
`
	var errs bytes.Buffer
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{python(), "-S", "-I", "-c", program, strconv.Itoa(sp.MaxTasks - 2)}, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := r.Wait(t.Context()); err != nil || e.Signal != 0 || e.Code != 0 {
		t.Errorf("%d threads: got %+v, %v, %q", sp.MaxTasks-2, e, err, errs.String())
	}
}
