package artifact_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
)

// sparseFiles makes files that take no disk and a lot of time to read.
func sparseFiles(t *testing.T, root string, count int, size int64) {
	t.Helper()
	for i := range count {
		p := filepath.Join(root, fmt.Sprintf("f%03d", i))
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(p, size); err != nil {
			t.Fatal(err)
		}
	}
}

// The files of a program cost the server a bounded number of bytes, also those that
// are read and then not kept.
func TestBytesReadAreBoundedForFilesThatAreNotKept(t *testing.T) {
	const size, readBytes, slack = 1 << 20, 8 << 20, 100
	bounds := artifact.Bounds{ReadBytes: readBytes}
	for what, src := range map[string]func(d *dir, root string) artifact.Source{
		"refused": func(d *dir, _ string) artifact.Source {
			return artifact.Source{Files: d, Refuse: func(string, []byte) string { return "it holds a secret" }}
		},
		"changed while they are read": func(d *dir, _ string) artifact.Source {
			d.onRead = func(p string) {
				if err := os.Chtimes(p, now, time.Unix(0, d.bytes)); err != nil {
					t.Error(err)
				}
			}
			return artifact.Source{Files: d}
		},
		"the same as before but for their attributes": func(d *dir, root string) artifact.Source {
			first := newKit(t, artifact.Config{}).collect(t, artifact.Source{Files: &dir{root: root}, Bounds: artifact.Bounds{TotalBytes: 1 << 30}})
			return artifact.Source{Files: d, Known: first.States}
		},
	} {
		k, root := newKit(t, artifact.Config{}), t.TempDir()
		sparseFiles(t, root, 40, size)
		d := &dir{root: root}
		s := src(d, root)
		s.Bounds = bounds
		c := k.collect(t, s)
		if d.bytes > readBytes+slack {
			t.Errorf("%s: got %d bytes read, want at most %d", what, d.bytes, readBytes)
		}
		if got, want := reasons(c)["f039"], "not read: at most 8388608 bytes of files are read"; got != want {
			t.Errorf("%s: got the reason %q for the last file, want %q", what, got, want)
		}
	}
}

// When the caller goes away, at most the part that is being read is finished; what
// was taken before stays, and the rest is named.
func TestCollectReadsNothingMoreAfterItsContext(t *testing.T) {
	k, root := newKit(t, artifact.Config{}), t.TempDir()
	fill(t, root, map[string]string{"a": "whole", "sub/b": "below"})
	sparseFiles(t, root, 5, 16<<20)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d := &dir{root: root}
	d.onRead = func(p string) {
		if strings.HasSuffix(p, "f001") {
			cancel()
		}
	}
	c, err := k.Collect(ctx, artifact.Source{Files: d, RequestID: "r", Now: now})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(artifactNames(c)), "[a f000]"; got != want {
		t.Errorf("got the artifacts %s, want %s", got, want)
	}
	const most = 5 + 16<<20 + 1<<20
	if d.bytes > most {
		t.Errorf("got %d bytes read, want at most %d", d.bytes, most)
	}
	for _, name := range []string{"f001", "f004", "sub/"} {
		if got, want := reasons(c)[name], "not read: the run was cancelled"; got != want {
			t.Errorf("%s: got the reason %q, want %q", name, got, want)
		}
	}
}

func TestCollectReadsNothingMoreWhenItsTimeIsUp(t *testing.T) {
	k, root := newKit(t, artifact.Config{}), t.TempDir()
	fill(t, root, map[string]string{"a": "x", "sub/b": "y"})
	d := &dir{root: root}
	c := k.collect(t, artifact.Source{Files: d, Bounds: artifact.Bounds{Time: time.Nanosecond}})
	want := []sandboxmcp.SkippedFile{{Name: "./", Reason: "not read: the files took longer than 1ns"}}
	if len(c.Artifacts) != 0 || d.bytes != 0 || fmt.Sprint(c.Skipped) != fmt.Sprint(want) {
		t.Errorf("got %v, %d bytes, skipped %v; want none, 0 bytes and %v", artifactNames(c), d.bytes, c.Skipped, want)
	}
}

func TestCollectFailsWithoutAWorkingDirectory(t *testing.T) {
	k := newKit(t, artifact.Config{})
	if c, err := k.Collect(t.Context(), artifact.Source{Files: &dir{root: "/nonexistent/x"}, RequestID: "r"}); err == nil {
		t.Errorf("got %+v, want an error", c)
	}
}
