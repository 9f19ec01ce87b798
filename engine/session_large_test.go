package engine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestLargeFilesOfASession: a file of any size that fits into a session can be opened, in
// constant memory, also in part and by two at once. One with a secret in its last bytes cannot.
// Nothing of it stays in the state directory.
func TestLargeFilesOfASession(t *testing.T) {
	dir := t.TempDir()
	e := openReal(t, at(dir))
	needs(t, e, sandboxmcp.Python)
	addSecret(t, e, "TOKEN", secret)
	id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Python, Limits: sandboxmcp.Limits{MaxRAMMB: 1024}})
	const size = 200 << 20
	res := execute(t, e, in(id, fmt.Sprintf(`import os
with open('big', 'wb') as f:
    for i in range(200): f.write(bytes([i]) * (1 << 20))
with open('bad', 'wb') as f:
    f.write(b'x' * (40 << 20)); f.write(os.environ['TOKEN'].encode())
print(os.path.getsize('big') == %d)`, size)))
	if res.Stdout != "True\n" || !strings.Contains(res.Note, "Files above 32 MiB are in the session only") {
		t.Fatalf("got %q %q and the note %q, want two files and where they are", res.Stdout, res.Stderr, res.Note)
	}
	before := allocated()
	info, f, err := e.OpenFile(t.Context(), sandboxmcp.Caller{}, id, "big", size)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, other, err := e.OpenFile(t.Context(), sandboxmcp.Caller{}, id, "/mnt/data/big", size)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err = other.Seek(150<<20, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	part := make([]byte, 2)
	if _, err = io.ReadFull(other, part); err != nil || part[0] != 150 {
		t.Errorf("got %v and %v at 150 MiB, want 150", part, err)
	}
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil || n != size || info.SizeBytes != size || info.SHA256 != hex.EncodeToString(h.Sum(nil)) {
		t.Errorf("got %d bytes, %+v and %v; want %d with their hash", n, info, err, size)
	}
	if more := allocated() - before; more > 16<<20 {
		t.Errorf("got %d MiB of memory allocated for it, want a few", more>>20)
	}
	_, _, err = e.OpenFile(t.Context(), sandboxmcp.Caller{}, id, "big", size-1)
	wantCode(t, err, sandboxmcp.CodeArtifactTooLarge)
	_, _, err = e.OpenFile(t.Context(), sandboxmcp.Caller{}, id, "bad", size)
	wantCode(t, err, sandboxmcp.CodeAccessDenied)
	_, _, err = e.OpenFile(t.Context(), of("other"), id, "big", size)
	wantCode(t, err, sandboxmcp.CodeSessionNotFound)
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if i, err := d.Info(); err == nil && i.Size() > 8<<20 {
			t.Errorf("%s has %d bytes, want no copy with a name", path, i.Size())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// allocated returns how many bytes this process has ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
