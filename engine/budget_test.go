package engine_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// costly are files that are cheap to make, dear to read, and refused when they have
// been read to their end.
const costly = "import os\nfor i in range(12):\n    with open('f%02d' % i, 'wb') as f:\n        f.truncate(32 << 20)\n        f.seek(-100, 2)\n        _ = f.write(os.environ['TOKEN'].encode())\n"

// A program cannot make the server read without end: files that are refused count towards the
// budget of reading.
func TestRefusedFilesAreReadWithinTheBudget(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	addSecret(t, e, "TOKEN", secret)
	id := create(t, e, sandboxmcp.SessionSpec{})
	for what, req := range map[string]sandboxmcp.Request{"one-shot": {Language: sandboxmcp.Python, Code: costly}, "session": in(id, costly)} {
		res := execute(t, e, req)
		if !res.Success {
			t.Fatalf("%s: got stderr %s, want success", what, res.Stderr)
		}
		skipped, _ := res.Metadata["skipped"].([]sandboxmcp.SkippedFile)
		read := 0
		for _, s := range skipped {
			if strings.Contains(s.Reason, "holds the secret") {
				read++
			} else if want := "not read: at most 134217728 bytes of files are read"; s.Reason != want {
				t.Errorf("%s: got %+v, want the reason %q", what, s, want)
			}
		}
		if len(skipped) != 12 || read > 4 {
			t.Errorf("%s: got %d files read and %d skipped, want at most 4 and 12", what, read, len(skipped))
		}
	}
}

// endlessFile is a file whose end never comes.
type endlessFile struct{ read func() }

func (f endlessFile) Read([]byte) (int, error) { f.read(); return 0, nil }
func (f endlessFile) Close() error             { return nil }

func (f endlessFile) Stat(context.Context) (backend.FileInfo, error) {
	return backend.FileInfo{Name: "endless", Size: 1 << 20, Links: 1, Mode: 0o644}, nil
}

// endlessFiles have one file, which is endless.
type endlessFiles struct {
	backend.Files

	file endlessFile
}

func (f endlessFiles) List(ctx context.Context, _ string, _ int) ([]backend.FileInfo, bool, error) {
	info, err := f.file.Stat(ctx)
	return []backend.FileInfo{info}, false, err
}

func (f endlessFiles) Open(context.Context, string) (backend.File, error) { return f.file, nil }

// Cancelling a request also ends the reading of its files. The result holds what the program
// did and names the files that were left out. The same holds for a list of a session's files
// and for a single file.
func TestCancelEndsTheReadingOfFiles(t *testing.T) {
	reads, cancel := 0, func() {}
	file := endlessFile{func() {
		if reads++; reads == 3 {
			cancel()
		}
	}}
	again := func() (ctx context.Context) {
		reads = 0
		ctx, cancel = context.WithCancel(t.Context())
		return ctx
	}
	f := &fake{onFiles: func(x backend.Files) backend.Files { return endlessFiles{x, file} }}
	e := open(t, f)
	res, err := e.Execute(again(), sandboxmcp.Caller{}, shell("x"))
	if err != nil {
		t.Fatal(err)
	}
	want := []sandboxmcp.SkippedFile{{Name: "endless", Reason: "not read: the run was cancelled"}}
	if got := res.Metadata["skipped"]; res.Status != sandboxmcp.StatusCompleted || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %s and %v, want completed and %v", res.Status, got, want)
	}
	id := create(t, e, sandboxmcp.SessionSpec{})
	_, err = e.SessionFiles(again(), sandboxmcp.Caller{}, id)
	wantCode(t, err, sandboxmcp.CodeCancelled)
	_, _, err = e.ReadFile(again(), sandboxmcp.Caller{}, id, "endless", 1<<20)
	wantCode(t, err, sandboxmcp.CodeCancelled)
	_, err = e.Bridge(again(), sandboxmcp.Caller{}, sandboxmcp.Bridge{From: id, Keys: []string{"k"}})
	wantCode(t, err, sandboxmcp.CodeCancelled)
}

// A list of a session's files reads a bounded number of bytes of those that grow
// while they are read.
func TestFilesThatGrowAreListedWithinTheBudget(t *testing.T) {
	f := &fake{}
	grown := &growingFiles{}
	f.onFiles = func(x backend.Files) backend.Files { grown.Files = x; return grown }
	e := open(t, f)
	id := create(t, e, sandboxmcp.SessionSpec{})
	list, err := e.SessionFiles(t.Context(), sandboxmcp.Caller{}, id)
	if err != nil || len(list) != 5000 {
		t.Fatalf("got %d files and %v, want 5000", len(list), err)
	}
	if list[0].More || list[4999].More {
		t.Error("5000 files are all that there are, but the list says that there are more")
	}
	if most := int64(256<<20 + 5000); grown.bytes > most {
		t.Errorf("got %d bytes read, want at most %d", grown.bytes, most)
	}
}

// TestASessionIsListedByOneCallAtATime: a list may hash 256 MiB, and a caller may ask for any number of
// lists at once.
func TestASessionIsListedByOneCallAtATime(t *testing.T) {
	var now, most atomic.Int32
	f := &fake{onFiles: func(x backend.Files) backend.Files { return slowFiles{x, &now, &most} }}
	e := open(t, f)
	ids := []sandboxmcp.SessionID{create(t, e, sandboxmcp.SessionSpec{}), create(t, e, sandboxmcp.SessionSpec{})}
	var lists sync.WaitGroup
	for i := range 20 {
		lists.Go(func() {
			if _, err := e.SessionFiles(t.Context(), sandboxmcp.Caller{}, ids[i%2]); err != nil {
				t.Error(err)
			}
		})
	}
	lists.Wait()
	if n := most.Load(); n != 2 {
		t.Errorf("%d lists of two sessions were made at once, want 2", n)
	}
	stuck, release := context.WithCancel(t.Context())
	now.Store(-1000) // the next list waits for its caller
	lists.Go(func() { _, _ = e.SessionFiles(stuck, sandboxmcp.Caller{}, ids[0]) })
	eventually(t, "a list is stuck", func() bool { return now.Load() == -999 })
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := e.SessionFiles(over, sandboxmcp.Caller{}, ids[0])
	wantCode(t, err, sandboxmcp.CodeCancelled)
	release()
	lists.Wait()
}

// slowFiles are listed slowly, or, if now is negative, not before their caller has gone.
type slowFiles struct {
	backend.Files

	now, most *atomic.Int32
}

func (f slowFiles) List(ctx context.Context, _ string, _ int) ([]backend.FileInfo, bool, error) {
	n := f.now.Add(1)
	defer f.now.Add(-1)
	if n < 0 {
		<-ctx.Done()
		return nil, false, ctx.Err()
	}
	for m := f.most.Load(); n > m && !f.most.CompareAndSwap(m, n); m = f.most.Load() {
	}
	time.Sleep(20 * time.Millisecond)
	return nil, false, nil
}

// growingFiles are 5 000 files that are longer than they say.
type growingFiles struct {
	backend.Files

	bytes int64
}

func (f *growingFiles) info(name string) backend.FileInfo {
	return backend.FileInfo{Name: name, Size: 1 << 18, Links: 1, Mode: 0o644}
}

func (f *growingFiles) List(context.Context, string, int) (list []backend.FileInfo, more bool, err error) {
	for i := range 5000 {
		list = append(list, f.info(fmt.Sprint("g", i)))
	}
	return list, false, nil
}

func (f *growingFiles) Open(_ context.Context, name string) (backend.File, error) {
	return &growing{f, f.info(name), 0}, nil
}

type growing struct {
	in   *growingFiles
	info backend.FileInfo
	at   int64
}

func (f *growing) Close() error                                   { return nil }
func (f *growing) Stat(context.Context) (backend.FileInfo, error) { return f.info, nil }

func (f *growing) Read(p []byte) (int, error) {
	n := min(int64(len(p)), 1<<20-f.at)
	if n == 0 {
		return 0, io.EOF
	}
	f.at += n
	f.in.bytes += n
	return int(n), nil
}
