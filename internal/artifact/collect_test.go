package artifact_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

var now = time.Date(2026, 11, 21, 10, 0, 0, 123456789, time.UTC)

type kit struct {
	*artifact.Keeper
	store   *store.Store
	now     time.Time
	dropped notes // by Save
}

func newKit(t *testing.T, cfg artifact.Config) *kit {
	t.Helper()
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: filepath.Join(t.TempDir(), "state")}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	k := &kit{store: s, now: now}
	cfg.Now = func() time.Time { return k.now }
	k.Keeper = artifact.NewKeeper(s, cfg)
	return k
}

func (k *kit) collect(t *testing.T, src artifact.Source) artifact.Collection {
	t.Helper()
	if src.RequestID == "" {
		src.RequestID = "req"
	}
	src.Now = now
	c, err := k.Collect(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func artifactNames(c artifact.Collection) []string {
	names := []string{}
	for _, a := range c.Artifacts {
		names = append(names, a.Name)
	}
	return names
}

func reasons(c artifact.Collection) map[string]string {
	m := map[string]string{}
	for _, s := range c.Skipped {
		m[s.Name] = s.Reason
	}
	return m
}

func TestCollect(t *testing.T) {
	k, root := newKit(t, artifact.Config{}), t.TempDir()
	fill(t, root, map[string]string{"b.txt": "häl\n", "sub/dir/c d#?.csv": "a,b\n1,2\n", "empty": "", ".hidden": "x", ".git/config": "x", "sub/.env": "x"})
	c := k.collect(t, artifact.Source{Files: &dir{root: root}, RequestID: "r1"})
	sum := func(s string) string {
		h := sha256.Sum256([]byte(s))
		return hex.EncodeToString(h[:])
	}
	want := []sandboxmcp.Artifact{
		{Name: "b.txt", ContentB64: []byte("häl\n"), SizeBytes: 5, SHA256: sum("häl\n"), CreatedAt: now, Path: "/mnt/data/b.txt", MIMEType: "text/plain; charset=utf-8", URI: "artifact://r1/b.txt"},
		{Name: "empty", ContentB64: []byte{}, SHA256: sum(""), CreatedAt: now, Path: "/mnt/data/empty", MIMEType: "application/octet-stream", URI: "artifact://r1/empty"},
		{Name: "sub/dir/c d#?.csv", ContentB64: []byte("a,b\n1,2\n"), SizeBytes: 8, SHA256: sum("a,b\n1,2\n"), CreatedAt: now, Path: "/mnt/data/sub/dir/c d#?.csv", MIMEType: "text/csv; charset=utf-8", URI: "artifact://r1/sub/dir/c%20d%23%3F.csv"},
	}
	if d := cmp.Diff(want, c.Artifacts); d != "" {
		t.Error(d)
	}
	if len(c.Skipped) != 0 {
		t.Errorf("skipped: got %v, want no row for hidden files", c.Skipped)
	}
	if _, err := k.store.ReadBlob(t.Context(), want[0].SHA256); err != nil {
		t.Fatalf("the blob of the artifact: got %v, want its bytes", err)
	}
	id := sandboxmcp.SessionID("s1")
	if c := k.collect(t, artifact.Source{Files: &dir{root: root}, SessionID: &id}); c.Artifacts[0].URI != "artifact://s1/b.txt" {
		t.Errorf("URI of a session's artifact: got %s, want artifact://s1/b.txt", c.Artifacts[0].URI)
	}
	if c := k.collect(t, artifact.Source{Files: &dir{root: t.TempDir()}}); c.Artifacts == nil || len(c.Artifacts) != 0 {
		t.Errorf("artifacts of an empty directory = %v, want none and not nil", c.Artifacts)
	}
}

// TestCollectTraps: links, devices, giants and hostile names that a program leaves harm
// neither the server nor the list of artifacts.
func TestCollectTraps(t *testing.T) {
	k, root, outside := newKit(t, artifact.Config{}), t.TempDir(), t.TempDir()
	fill(t, outside, map[string]string{"canary": "CANARY", "d/canary": "CANARY"})
	fill(t, root, map[string]string{
		"good.txt": "good", "a b.txt": "x", "ümlaut.txt": "x", "it's.txt": "x", "-rf": "x", strings.Repeat("é", 100): "x", "$(id);.txt": "x", "日本.txt": "x",
		"ta\tb.txt": "x", "new\nline.txt": "x", "q\"uote.txt": "x", "back\\slash": "x", "bidi\u202egnp.exe": "x", "zero\u200bwidth": "x", "fill\u3164er": "x", "braille\u2800": "x", "line\u2028sep": "x", "bell\a": "x", "esc\x1b[31m": "x", "bad\xff": "x", "c1\u0085": "x",
		"evil\ndir/inside.txt": "x", "linked": "x",
	})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Symlink(filepath.Join(outside, "canary"), filepath.Join(root, "link.txt")))
	must(os.Symlink("/", filepath.Join(root, "rootdir")))
	must(os.Symlink("loop", filepath.Join(root, "loop")))
	must(os.Symlink(filepath.Join(outside, "d"), filepath.Join(root, "dirlink")))
	must(os.Symlink("good.txt", filepath.Join(root, "inner")))
	must(os.Link(filepath.Join(root, "linked"), filepath.Join(root, "linked2")))
	must(syscall.Mkfifo(filepath.Join(root, "fifo"), 0o600))
	t.Chdir(root)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", "sock")
	must(err)
	t.Cleanup(func() { _ = l.Close() })
	must(os.WriteFile(filepath.Join(root, "sparse"), nil, 0o600))
	must(os.Truncate(filepath.Join(root, "sparse"), 1<<40))
	must(os.WriteFile(filepath.Join(root, "small-sparse"), nil, 0o600))
	must(os.Truncate(filepath.Join(root, "small-sparse"), 1<<20))
	if os.Geteuid() == 0 && syscall.Mknod(filepath.Join(root, "null"), syscall.S_IFCHR|0o666, 1<<8|3) != nil {
		t.Log("no device could be made: not tried")
	}
	d := &dir{root: root}
	start := time.Now()
	c := k.collect(t, artifact.Source{Files: d})
	if took := time.Since(start); took > time.Minute {
		t.Errorf("got %v to collect, want that the holes of files are not read", took)
	}
	want := []string{"$(id);.txt", "-rf", "a b.txt", "good.txt", "it's.txt", "small-sparse", strings.Repeat("é", 100), "ümlaut.txt", "日本.txt"}
	if d := cmp.Diff(want, artifactNames(c)); d != "" {
		t.Error(d)
	}
	got := reasons(c)
	for name, reason := range map[string]string{
		"link.txt": "symbolic link", "rootdir": "symbolic link", "loop": "symbolic link", "dirlink": "symbolic link", "inner": "symbolic link",
		"linked": "hard link", "linked2": "hard link", "fifo": "FIFO", "sock": "socket", "sparse": "larger than 33554432 bytes",
		`ta\tb.txt`: "its name holds a control character", `new\nline.txt`: "its name holds a control character", `evil\ndir`: "its name holds a control character",
		`bell\a`: "its name holds a control character", `esc\x1b[31m`: "its name holds a control character", `c1\u0085`: "its name holds a control character",
		`q"uote.txt`: "its name holds a double quote or a backslash", `back\\slash`: "its name holds a double quote or a backslash",
		`bidi\u202egnp.exe`: "its name holds an invisible or unknown character", `zero\u200bwidth`: "its name holds an invisible or unknown character",
		"fill\u3164er": "its name holds an invisible or unknown character", "braille\u2800": "its name holds an invisible or unknown character",
		`line\u2028sep`: "its name holds an invisible or unknown character", `bad\xff`: "its name is not UTF-8",
	} {
		if got[name] != reason {
			t.Errorf("%s: reason %q, want %q", name, got[name], reason)
		}
	}
	if _, err := os.Lstat(filepath.Join(root, "null")); err == nil && got["null"] != "device" {
		t.Errorf("device: %q", got["null"])
	}
	for name := range d.opened {
		if strings.ContainsAny(name, "\n\t\"\\") || name == "fifo" || name == "link.txt" || name == "sparse" {
			t.Errorf("got %q opened, want only regular files with plain names", name)
		}
	}
	for _, a := range c.Artifacts {
		if strings.Contains(string(a.ContentB64), "CANARY") {
			t.Errorf("got a file of outside in %s, want only files of the sandbox", a.Name)
		}
	}
}

func TestCollectChangedWhileRead(t *testing.T) {
	for what, change := range map[string]func(string) error{
		"grown":     func(p string) error { return os.WriteFile(p, make([]byte, 100), 0o600) },
		"cut":       func(p string) error { return os.Truncate(p, 1) },
		"rewritten": func(p string) error { return os.Chtimes(p, now, now) },
		"linked":    func(p string) error { return os.Link(p, filepath.Join(filepath.Dir(p), ".other")) },
	} {
		k, root := newKit(t, artifact.Config{}), t.TempDir()
		fill(t, root, map[string]string{"a": "steady", "b": "moving"})
		d := &dir{root: root}
		d.onRead = func(p string) {
			if filepath.Base(p) == "b" {
				d.onRead = nil
				if err := change(p); err != nil {
					t.Error(err)
				}
			}
		}
		c := k.collect(t, artifact.Source{Files: d})
		if cmp.Diff([]string{"a"}, artifactNames(c)) != "" || reasons(c)["b"] != "changed while it was read" {
			t.Errorf("%s: got artifacts %v, skipped %v; want a, and b skipped because it changed", what, artifactNames(c), c.Skipped)
		}
	}
}

func TestCollectBounds(t *testing.T) {
	k, root := newKit(t, artifact.Config{}), t.TempDir()
	files := map[string]string{"1/2/3/4": "deep", "big": strings.Repeat("x", 101), "fits": strings.Repeat("x", 100)}
	for i := range 6 {
		files[fmt.Sprintf("n%d", i)] = strings.Repeat("y", 60)
	}
	fill(t, root, files)
	c := k.collect(t, artifact.Source{Files: &dir{root: root}, Bounds: artifact.Bounds{Depth: 3, FileBytes: 100, TotalBytes: 230, Files: 4}})
	if d := cmp.Diff([]string{"fits", "n0", "n1"}, artifactNames(c)); d != "" {
		t.Error(d)
	}
	if c.Beyond != 4 || !c.Large || c.Partial || c.Skipped[0].SizeBytes != 101 {
		t.Errorf("got %d files beyond, large %v, partial %v, %+v; want 4, a large file with its size, and all looked at", c.Beyond, c.Large, c.Partial, c.Skipped[0])
	}
	want := map[string]string{"1/2/3/": "deeper than 3 levels", "big": "larger than 100 bytes", "n2": "all files together are larger than 230 bytes"}
	got := reasons(c)
	for name, reason := range want {
		if got[name] != reason {
			t.Errorf("%s: %q, want %q", name, got[name], reason)
		}
	}
	c = k.collect(t, artifact.Source{Files: &dir{root: root}, Bounds: artifact.Bounds{Files: 2}})
	if len(c.Artifacts) != 2 || reasons(c)["n0"] != "more than 2 files" {
		t.Errorf("got artifacts %v, skipped %v; want 2, and the others skipped as more than 2 files", artifactNames(c), c.Skipped)
	}
	c = k.collect(t, artifact.Source{Files: &dir{root: root}, Bounds: artifact.Bounds{Entries: 5}})
	if !c.Partial {
		t.Error("got that all entries were looked at, want that more than 5 are there")
	}
	if len(c.Artifacts)+len(c.Skipped) > 8 || !strings.Contains(fmt.Sprint(c.Skipped), "more than 5 entries") {
		t.Errorf("got artifacts %v, skipped %v; want at most 8 rows, one of them for more than 5 entries", artifactNames(c), c.Skipped)
	}
}

func TestCollectNamesAtMostAHundredSkipped(t *testing.T) {
	k, root := newKit(t, artifact.Config{}), t.TempDir()
	for i := range 250 {
		if err := os.Symlink("/etc/passwd", filepath.Join(root, fmt.Sprintf("l%03d", i))); err != nil {
			t.Fatal(err)
		}
	}
	c := k.collect(t, artifact.Source{Files: &dir{root: root}})
	if len(c.Skipped) != 101 || c.Skipped[100].Reason != "and 150 more" {
		t.Errorf("skipped: got %d rows, the last %v; want 101, the last for 150 more", len(c.Skipped), c.Skipped[len(c.Skipped)-1])
	}
}

func TestMIMEType(t *testing.T) {
	png := "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"
	k, root := newKit(t, artifact.Config{}), t.TempDir()
	files := map[string][2]string{
		"t.txt": {"words", "text/plain; charset=utf-8"}, "p.py": {"import os\n", "text/x-python; charset=utf-8"}, "m.md": {"# head\n", "text/markdown; charset=utf-8"},
		"c.csv": {"a,b\n1,2\n", "text/csv; charset=utf-8"}, "j.json": {`{"a":1}`, "application/json"}, "n.ipynb": {`{"cells":[],"nbformat":4}`, "application/x-ipynb+json"},
		"s.svg": {`<svg xmlns="http://www.w3.org/2000/svg"></svg>`, "image/svg+xml"}, "i.png": {png, "image/png"}, "liar.png": {"<!DOCTYPE html><html></html>", "text/html; charset=utf-8"},
		"liar.txt": {"<!DOCTYPE html><html></html>", "text/plain; charset=utf-8"}, "liar.html": {png, "image/png"}, "h.html": {"<html></html>", "text/html; charset=utf-8"},
		"a.npy": {"\x93NUMPY\x01\x00", "application/x-npy"}, "a.pkl": {"\x80\x04\x95\x00", "application/x-pickle"}, "noext": {"\x00\x01\x02", "application/octet-stream"},
		"pdf": {"%PDF-1.7\n", "application/pdf"}, "z.zip": {"PK\x03\x04\x14\x00\x00\x00", "application/zip"}, "e.md": {"", "text/markdown; charset=utf-8"},
	}
	content := map[string]string{}
	for name, f := range files {
		content[name] = f[0]
	}
	fill(t, root, content)
	for _, a := range k.collect(t, artifact.Source{Files: &dir{root: root}}).Artifacts {
		if want := files[a.Name][1]; a.MIMEType != want {
			t.Errorf("%s: %s, want %s", a.Name, a.MIMEType, want)
		}
	}
}

// coarse is a file system on which all changes have one time.
type coarse struct{ *dir }

func (c coarse) List(ctx context.Context, name string, limit int) ([]backend.FileInfo, bool, error) {
	list, more, err := c.dir.List(ctx, name, limit)
	for i := range list {
		list[i].ModTime, list[i].Mark = now, "1"
	}
	return list, more, err
}

// A file that two runs of a session write within one tick of the file system's clock is a file of
// both runs. Once its time is past, it is read once more, and then not again.
func TestChangesWithinOneTickAreSeen(t *testing.T) {
	k, root := newKit(t, artifact.Config{}), t.TempDir()
	files := coarse{&dir{root: root, opened: map[string]int{}}}
	known := map[string]artifact.State{}
	run := func(what string, at time.Time, want ...string) {
		t.Helper()
		known, _ = artifact.Survey(t.Context(), files, known, artifact.Bounds{})
		if what != "" {
			fill(t, root, map[string]string{"a": what})
		}
		c, err := k.Collect(t.Context(), artifact.Source{Files: files, RequestID: "r", Known: known, Now: at})
		if err != nil {
			t.Fatal(err)
		}
		if got := artifactNames(c); !slices.Equal(got, want) || len(c.Skipped) > 0 {
			t.Errorf("a run that writes %q: got the files %v, skipped %v; want %v", what, got, c.Skipped, want)
		}
		maps.Copy(known, c.States)
	}
	run("1", now, "a")
	run("2", now, "a")
	later := now.Add(time.Second)
	run("", later)
	read := files.opened["a"]
	run("", later)
	if got := files.opened["a"]; got != read {
		t.Errorf("a file that was read long after its change: got it read %d times more, want 0", got-read)
	}
}
