package session_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/session"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// disk counts the copies of a test.
type disk struct {
	t    *testing.T
	made atomic.Int64
	last *os.File
}

func (d *disk) temp(int64) (*os.File, error) {
	d.made.Add(1)
	f, err := os.Create(filepath.Join(d.t.TempDir(), "copy"))
	d.last = f
	return f, err
}

func (d *disk) closed() bool { return errors.Is(d.last.Close(), os.ErrClosed) }

// copies makes a live session with one file.
func copies(t *testing.T, text string, cfg session.CopiesConfig) (*session.Live, *box, *disk) {
	t.Helper()
	d := &disk{t: t}
	cfg.Temp = d.temp
	c := session.NewCopies(cfg)
	t.Cleanup(c.Close)
	l, b := newKit(t, t.TempDir(), 2).liveWith(t, "a", map[string]string{"f": text}, session.LiveConfig{Copies: c})
	b.mark = "1"
	return l, b, d
}

func copied(t *testing.T, f session.Files, want string) *session.Copy {
	t.Helper()
	info, c, err := f.Copy(t.Context(), path(t, "f"), 1<<20)
	if err != nil {
		t.Fatalf("got %v, want a copy", err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != want || info.SizeBytes != int64(len(want)) || len(info.SHA256) != 64 {
		t.Errorf("got %d bytes, %+v and %v; want the %d of the file", len(got), info, err, len(want))
	}
	return c
}

// TestCopiesAreUsedAgain: a second reader gets the same copy, a changed file another one, and a
// copy that nobody reads is gone after a while, or with its session.
func TestCopiesAreUsedAgain(t *testing.T) {
	l, b, d := copies(t, "text", session.CopiesConfig{Keep: time.Hour})
	f := l.Files(nil)
	first := copied(t, f, "text")
	second := copied(t, f, "text")
	if err := errors.Join(first.Close(), first.Close(), second.Close()); err != nil {
		t.Fatal(err)
	}
	copied(t, f, "text").Close()
	if n := d.made.Load(); n != 1 {
		t.Errorf("got %d copies of one file, want 1", n)
	}
	b.files["f"], b.mark = "more", "2"
	last := copied(t, f, "more")
	if n := d.made.Load(); n != 2 {
		t.Errorf("got %d copies after a change, want 2", n)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(io.NewSectionReader(last, 0, 4)); err != nil || string(got) != "more" {
		t.Errorf("a copy that is read when its session ends: got %q and %v, want it whole", got, err)
	}
	last.Close()
	if !d.closed() {
		t.Error("the copy of a closed session is kept after its last reader, want it closed")
	}
}

func TestUnusedCopiesAreDropped(t *testing.T) {
	l, _, d := copies(t, "text", session.CopiesConfig{Keep: time.Millisecond})
	f := l.Files(nil)
	testkit.Until(t, "a second copy", func() bool {
		copied(t, f, "text").Close()
		return d.made.Load() > 1
	})
}

// TestCopiesAreBounded: a file that does not fit beside the copies in use waits until one is
// released, or until its reader gives up. One that can never fit is refused.
func TestCopiesAreBounded(t *testing.T) {
	l, b, _ := copies(t, "12345678", session.CopiesConfig{Bytes: 10, Keep: time.Hour})
	f := l.Files(nil)
	first := copied(t, f, "12345678")
	b.mark = "2" // so that it is another file
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, _, err := f.Copy(soon, path(t, "f"), 1<<20)
	wantCode(t, "no room", err, sandboxmcp.CodeCancelled)
	go first.Close()
	copied(t, f, "12345678").Close()
	b.files["f"] = "12345678901"
	_, _, err = f.Copy(t.Context(), path(t, "f"), 1<<20)
	wantCode(t, "larger than all copies", err, sandboxmcp.CodeArtifactTooLarge)
	_, _, err = f.Copy(t.Context(), path(t, "f"), 3)
	wantCode(t, "larger than the limit", err, sandboxmcp.CodeArtifactTooLarge)
}

// TestCopiesHoldNoSecret: a secret in the last bytes of a file is found, and its copy is not kept.
func TestCopiesHoldNoSecret(t *testing.T) {
	const secret = "Kit-5up3r-s3cret-t0ken"
	masks := redact.New([]redact.Secret{{Name: "TOKEN", Value: secret}}, false)
	refuse := func(name, key string) error {
		return sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "%s holds %s", name, key)
	}
	text := strings.Repeat("x", 1<<20) + secret
	l, _, d := copies(t, text, session.CopiesConfig{Refuse: refuse})
	for range 2 {
		_, _, err := l.Files(masks).Copy(t.Context(), path(t, "f"), 4<<20)
		wantCode(t, "a secret at the end", err, sandboxmcp.CodeAccessDenied)
		if !d.closed() {
			t.Error("the refused copy is kept, want it closed")
		}
	}
	l, _, _ = copies(t, text, session.CopiesConfig{})
	if _, c, err := l.Files(masks).Copy(t.Context(), path(t, "f"), 4<<20); err != nil || c.Close() != nil {
		t.Errorf("where such files are let out: got %v, want a copy", err)
	}
}

// TestACopyOfAChangingFileIsRefused: a file that shrinks, grows or is written while it is copied
// is refused. Its copy is not kept.
func TestACopyOfAChangingFileIsRefused(t *testing.T) {
	for name, change := range map[string]func(b *box){
		"shorter": func(b *box) { b.claims = 20 },
		"longer":  func(b *box) { b.claims = 4 },
		"written": func(b *box) { b.marks = []string{"1", "2"} },
	} {
		l, b, d := copies(t, "ten bytes.", session.CopiesConfig{})
		change(b)
		_, _, err := l.Files(nil).Copy(t.Context(), path(t, "f"), 1<<20)
		wantCode(t, name, err, sandboxmcp.CodeSessionBusy)
		if !d.closed() {
			t.Errorf("%s: the copy is kept, want it closed", name)
		}
	}
}

// TestACancelledCopyIsMadeByTheNext: if the caller that makes a copy gives up, another one that
// waits for it makes it.
func TestACancelledCopyIsMadeByTheNext(t *testing.T) {
	l, b, _ := copies(t, strings.Repeat("x", 3<<20), session.CopiesConfig{})
	begun, goOn := make(chan struct{}), make(chan struct{})
	var reads atomic.Int64
	b.onRead = func() {
		if reads.Add(1) == 1 {
			close(begun)
			<-goOn
		}
	}
	f, given := l.Files(nil), path(t, "f")
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, _, err := f.Copy(ctx, given, 4<<20)
		first <- err
	}()
	<-begun
	second := make(chan error, 1)
	go func() {
		_, c, err := f.Copy(context.WithoutCancel(ctx), given, 4<<20)
		if err == nil {
			err = c.Close()
		}
		second <- err
	}()
	cancel()
	close(goOn)
	wantCode(t, "the caller that gave up", <-first, sandboxmcp.CodeCancelled)
	if err := <-second; err != nil {
		t.Errorf("the other caller: got %v, want a copy", err)
	}
}

// TestCopiesFailLikeReads: what is not there, and a full disk.
func TestCopiesFailLikeReads(t *testing.T) {
	l, _, _ := copies(t, "text", session.CopiesConfig{})
	_, _, err := l.Files(nil).Copy(t.Context(), path(t, "none"), 9)
	wantCode(t, "none", err, sandboxmcp.CodeNotFound)
	full := session.NewCopies(session.CopiesConfig{Temp: func(int64) (*os.File, error) { return os.Open(os.DevNull) }})
	l, _ = newKit(t, t.TempDir(), 2).liveWith(t, "a", map[string]string{"f": "text"}, session.LiveConfig{Copies: full})
	_, _, err = l.Files(nil).Copy(t.Context(), path(t, "f"), 9)
	wantCode(t, "a disk that cannot be written", err, sandboxmcp.CodeBackendUnavailable)
}
