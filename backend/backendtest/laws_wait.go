package backendtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

func closedStreams(t *testing.T, s *suite) {
	x := s.open(t)
	begin := time.Now()
	r, out, _ := x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", "echo before; exec 0<&- 1>&- 2>&-; sleep 0.3; exit 5"}})
	if err := r.Drain(t.Context()); err != nil || out.String() != "before\n" {
		t.Errorf("Drain of closed streams: %v, %q", err, out.String())
	}
	if e, err := r.Wait(t.Context()); err != nil || e != (backend.Exit{Code: 5}) {
		t.Errorf("Wait: %+v, %v", e, err)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}

func waitNotDelayed(t *testing.T, s *suite) {
	x := s.open(t)
	marker := "daemon-" + rand.Text()
	begin := time.Now()
	r, out, _ := x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", "(setsid sh -c 'sleep 150; :' " + marker + " &) ; echo main; exit 6"}})
	e, err := r.Wait(t.Context())
	if err != nil || e != (backend.Exit{Code: 6}) {
		t.Errorf("Wait: %+v, %v", e, err)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("a daemon that holds the streams delayed Wait by %v", took)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := r.Drain(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Drain while a daemon holds the streams: %v", err)
	}
	if err := x.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := Alive(marker); len(left) > 0 {
		t.Errorf("the daemon outlived Kill: %v", left)
	}
	if err := r.Drain(t.Context()); err != nil || out.String() != "main\n" {
		t.Errorf("after Kill: %q, %v", out.String(), err)
	}
}

// stuck is a writer whose Write blocks until word is closed or receives a value.
type stuck struct {
	word  chan struct{}
	began atomic.Bool // Write was called
	n     int
}

func (w *stuck) Write(p []byte) (int, error) {
	w.began.Store(true)
	<-w.word
	w.n += len(p)
	return len(p), nil
}

// waitSlowWriter: a writer that blocks delays neither Wait nor Clear and Kill. Drain waits for it.
func waitSlowWriter(t *testing.T, s *suite) {
	x := s.open(t)
	w := &stuck{word: make(chan struct{})}
	free := sync.OnceFunc(func() { close(w.word) })
	defer free()
	r, err := x.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", "head -c 30000 /dev/zero"}, Env: x.environment(nil), Stdout: w})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := r.Wait(ctx); err != nil {
		t.Errorf("Wait behind a slow writer: %v", err)
	}
	free()
	if err := r.Drain(ctx); err != nil || w.n != 30000 {
		t.Errorf("Drain: %d bytes, %v", w.n, err)
	}
	for name, end := range endings {
		y, w := s.open(t), &stuck{word: make(chan struct{})}
		free := sync.OnceFunc(func() { close(w.word) })
		defer free()
		late := time.AfterFunc(endLimit, free) // for a backend that waits for the writer
		if _, err := y.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", "yes"}, Env: y.environment(nil), Stdout: w}); err != nil {
			t.Fatal(err)
		}
		if !soon(t, patience, w.began.Load) {
			t.Fatal("the program writes nothing")
		}
		limited, cancel := context.WithTimeout(t.Context(), endLimit)
		defer cancel()
		if err := end(y.Sandbox, limited); err != nil || !late.Stop() {
			t.Errorf("%s behind a slow writer: got %v, want nil within %v", name, err, endLimit)
		}
	}
}

func waitContext(t *testing.T, s *suite) {
	x := s.open(t)
	r, out, _ := x.start(t, backend.Process{Argv: []string{"/bin/sh", "-c", "while :; do echo drip; sleep 0.05; done"}})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := r.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait: %v", err)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("a slow drip held Wait for %v", took)
	}
	n := len(out.String())
	if !soon(t, patience, func() bool { return len(out.String()) > n }) {
		t.Error("the process did not go on, or its output is held back until its end")
	}
	for range 2 { // Kill and the waits may be repeated
		if err := x.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e, err := r.Wait(t.Context()); err != nil || e != (backend.Exit{Signal: 9, Lost: true}) {
			t.Errorf("Wait after Kill: %+v, %v, want signal 9, and that it is lost", e, err)
		}
	}
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) { c.n += int64(len(p)); return len(p), nil }

func flood(t *testing.T, s *suite) {
	x := s.open(t)
	before := rss()
	var c counter
	r, err := x.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", "head -c 268435456 /dev/zero"}, Env: x.environment(nil), Stdout: &c})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Drain(t.Context()); err != nil || c.n != 256*mib {
		t.Errorf("%d bytes arrived, want %d: %v", c.n, 256*mib, err)
	}
	if grown := rss() - before; grown > 64*mib {
		t.Errorf("the flood made this process grow by %d MiB", grown/mib)
	}
}

func severalProcesses(t *testing.T, s *suite) {
	x := s.open(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			var out text
			r, err := x.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", "for i in 1 2 3 4 5; do echo $0; sleep 0.02; done; exit $0", fmt.Sprint(i)}, Env: x.environment(nil), Stdout: &out})
			if err != nil {
				t.Errorf("Start %d: %v", i, err)
				return
			}
			if e, err := r.Wait(t.Context()); err != nil || e != (backend.Exit{Code: i}) {
				t.Errorf("Wait %d: %+v, %v", i, e, err)
			}
			want := strings.Repeat(fmt.Sprint(i)+"\n", 5)
			if err := r.Drain(t.Context()); err != nil || out.String() != want {
				t.Errorf("output %d: %q, %v", i, out.String(), err)
			}
		})
	}
	all.Wait()
}
