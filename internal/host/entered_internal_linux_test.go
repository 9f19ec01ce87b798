package host

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// TestWriteAfterItsTime: a write that goes on after its call has ended replaces nothing, and leaves no file.
func TestWriteAfterItsTime(t *testing.T) {
	dir := plainfile.Unlinked(t.TempDir())
	if err := os.WriteFile(filepath.Join(dir, "old"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, name := range []string{"old", "new"} {
		err := put(ctx, place{newTree(dir), name}, name, strings.NewReader("new"), name == "old")
		if sandboxmcp.AsError(err).Code != sandboxmcp.CodeCancelled {
			t.Errorf("%s: got %v, want that the call is cancelled", name, err)
		}
	}
	all, err := os.ReadDir(dir)
	text, failed := os.ReadFile(filepath.Join(dir, "old"))
	if err != nil || failed != nil || len(all) != 1 || string(text) != "old" {
		t.Errorf("got %v, %q, %v, %v, want the old file alone", all, text, err, failed)
	}
}

// TestThreadEntersDirectory: the command's thread enters the directory, so the child that Go makes with vfork need not. The rest of the server stays where it is.
func TestThreadEntersDirectory(t *testing.T) {
	before, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := plainfile.Unlinked(t.TempDir())
	if err = unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	seen := make(chan int)
	go func() {
		threads := 0
		f, err := os.OpenFile(filepath.Join(dir, "fifo"), os.O_WRONLY, 0) // the command reads it now
		if err != nil {
			t.Error(err)
		}
		links, _ := filepath.Glob("/proc/self/task/*/cwd") // the pattern is a constant
		for _, link := range links {
			if there, err := os.Readlink(link); err == nil && there == dir {
				threads++
			}
		}
		_ = f.Close()
		seen <- threads
	}()
	runWith(t, "cat", job{words: []string{"cat", "fifo"}, dir: dir, last: true})
	if threads := <-seen; threads != 1 {
		t.Errorf("%d threads of the server are in the directory, want that of the command alone", threads)
	}
	if now, err := os.Readlink("/proc/self/cwd"); err != nil || now != before {
		t.Errorf("the server is in %s, %v, want %s", now, err, before)
	}
}
