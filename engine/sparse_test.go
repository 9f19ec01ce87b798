package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// Sparse files cost nothing to make and much to read. What is read of all of them together is
// bounded, and the rest is listed without its hash.
func TestSparseFilesAreNotAllRead(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	id := create(t, e, sandboxmcp.SessionSpec{})
	made := execute(t, e, in(id, "import os\nfor i in range(64):\n    with open('sparse%02d' % i, 'wb') as f: f.truncate(60 << 20)\nwith open('small.txt', 'w') as f: _ = f.write('x')\nos.makedirs('.bridge', exist_ok=True)\nfor i in range(20):\n    with open('.bridge/k%d.json' % i, 'wb') as f: f.truncate(4 << 20)\n"))
	if !made.Success {
		t.Fatal(made.Stderr)
	}
	files, err := e.SessionFiles(t.Context(), sandboxmcp.Caller{}, id)
	if err != nil || len(files) != 65 {
		t.Fatalf("got %d files, %v; want 65", len(files), err)
	}
	hashed := int64(0)
	for _, f := range files {
		if f.SHA256 != "" {
			hashed += f.SizeBytes
		}
		if f.SizeBytes != 60<<20 && (f.Filename != "small.txt" || f.SHA256 == "") {
			t.Errorf("got %+v", f)
		}
	}
	if hashed > 256<<20 {
		t.Errorf("read for a list: got %d MiB, want at most 256", hashed>>20)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.SessionFiles(ctx, sandboxmcp.Caller{}, id); !errors.Is(err, context.Canceled) && sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled {
		t.Errorf("SessionFiles whose caller left: got %v, want cancelled", err)
	}
	_, err = e.Bridge(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Bridge{From: id})
	wantCode(t, err, sandboxmcp.CodeFileTooLarge)
	var many []string
	for i := range 101 {
		many = append(many, fmt.Sprint("k", i))
	}
	_, err = e.Bridge(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Bridge{From: id, Keys: many})
	wantCode(t, err, sandboxmcp.CodeInvalidArgument)
}
