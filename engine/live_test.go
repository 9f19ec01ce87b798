package engine_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// live gathers what a run puts out while it runs. It is a writer of both streams
// and of what is shown.
type live struct {
	mu    sync.Mutex
	text  strings.Builder
	shown []sandboxmcp.RichResult
	news  chan struct{}
}

func newLive() *live { return &live{news: make(chan struct{}, 1)} }

func (l *live) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.text.Write(p)
	l.mu.Unlock()
	l.wake()
	return len(p), nil
}

func (l *live) WriteResult(r sandboxmcp.RichResult) {
	l.mu.Lock()
	l.shown = append(l.shown, r)
	l.mu.Unlock()
	l.wake()
}

func (l *live) wake() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// await waits for a text, and for so many values to be shown.
func (l *live) await(t *testing.T, text string, shown int) {
	t.Helper()
	end := timeUp(t, backstop)
	for {
		l.mu.Lock()
		got, n := l.text.String(), len(l.shown)
		l.mu.Unlock()
		if strings.Contains(got, text) && n >= shown {
			return
		}
		select {
		case <-l.news:
		case <-end:
			t.Fatalf("while it runs there came %q and %d values; want %q and %d", got, n, text, shown)
		}
	}
}

const backstop = time.Minute // a test that works does not come near it

// TestOutputIsLiveInSessions: the caller gets what a cell writes and displays during the cell.
// The cell waits for a file that is put only then, so output that comes late would hang the
// test.
func TestOutputIsLiveInSessions(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	for name, c := range map[string]struct {
		lang  sandboxmcp.Language
		fresh bool
		code  string
		shown int
	}{
		"Python": {"python", false, "import os, sys, time\nimport sandbox\nprint('out'); print('err', file=sys.stderr); sandbox.display({'a': 1})\nwhile not os.path.exists('go'): time.sleep(.01)\nprint('end')", 1},
		"Fresh":  {"python", true, "import os, sys, time\nprint('out'); print('err', file=sys.stderr)\nwhile not os.path.exists('go'): time.sleep(.01)\nprint('end')", 0},
		"Node":   {"node", false, "const fs = require('fs'), sandbox = require('sandbox')\nconsole.log('out'); console.error('err'); sandbox.display({a: 1})\nawait new Promise(done => { const t = setInterval(() => { if (fs.existsSync('go')) { clearInterval(t); done() } }, 10) })\nconsole.log('end')", 1},
		"Shell":  {"shell", false, "echo out; echo err >&2\nuntil [ -e go ]; do sleep .01; done\necho end", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needs(t, e, c.lang)
			id := create(t, e, sandboxmcp.SessionSpec{Language: c.lang, Fresh: c.fresh})
			req, out, errs := in(id, c.code), newLive(), newLive()
			req.Stdout, req.Stderr, req.Shown = out, errs, out
			req.Limits.TimeoutSeconds = 60
			wait := executeIn(t.Context(), t, e, req)
			out.await(t, "out\n", c.shown)
			errs.await(t, "err\n", 0)
			if _, _, err := e.Upload(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Upload{SessionID: id, Name: "go", Content: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			res, err := wait()
			if err != nil || !res.Success || res.Stdout != "out\nend\n" || res.Stderr != "err\n" || len(res.Results) != c.shown {
				t.Errorf("got %s, %q, %q, %v, %v", res.Status, res.Stdout, res.Stderr, res.Results, err)
			}
			if out.text.String() != res.Stdout || errs.text.String() != res.Stderr {
				t.Errorf("live output: got %q and %q, want that of the result", out.text.String(), errs.text.String())
			}
		})
	}
}

// TestOutputIsLiveInSingleRuns: the caller gets what a program writes while it runs. The
// program does not end by itself.
func TestOutputIsLiveInSingleRuns(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	for lang, code := range map[sandboxmcp.Language]string{
		"python": "import sys, time\nprint('out'); print('err', file=sys.stderr)\nwhile True: time.sleep(1)",
		"node":   "console.log('out'); console.error('err'); setInterval(() => {}, 1000)",
		"shell":  "echo out; echo err >&2; while :; do sleep 1; done",
	} {
		t.Run(string(lang), func(t *testing.T) {
			t.Parallel()
			needs(t, e, lang)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out, errs := newLive(), newLive()
			wait := executeIn(ctx, t, e, sandboxmcp.Request{Language: lang, Code: code, Stdout: out, Stderr: errs})
			out.await(t, "out\n", 0)
			errs.await(t, "err\n", 0)
			cancel()
			if res, err := wait(); err != nil || res.Status != sandboxmcp.StatusCancelled || res.Stdout != "out\n" {
				t.Errorf("got %s, %q, %v", res.Status, res.Stdout, err)
			}
		})
	}
}

// slowEye takes a value only when it is let.
type slowEye struct {
	let  chan struct{}
	seen []sandboxmcp.RichResult
}

func (s *slowEye) WriteResult(r sandboxmcp.RichResult) {
	<-s.let
	s.seen = append(s.seen, r)
}

// TestShownHoldsNothingUp: the program and its sandbox end although the caller's writer does
// not take the displayed values. The answer comes once it took them. It holds all values in
// order, and shares no memory with those that the writer got.
func TestShownHoldsNothingUp(t *testing.T) {
	t.Parallel()
	const n = 300 // more than a report keeps
	f := &fake{program: func(r *fakeRun) backend.Exit {
		r.Frame(map[string]any{"type": "start"})
		for range n {
			r.Frame(map[string]any{"type": "display", "data": map[string]any{"text/plain": "v"}})
		}
		return backend.Exit{}
	}}
	eye := &slowEye{let: make(chan struct{})}
	wait := executeIn(t.Context(), t, open(t, f), sandboxmcp.Request{Code: "x", Shown: eye})
	eventually(t, "the sandbox is closed", func() bool { return slices.Contains(f.seen(), "close") })
	close(eye.let)
	res, err := wait()
	if err != nil || !res.Success || len(res.Results) != 256 || len(eye.seen) != len(res.Results) {
		t.Fatalf("got %s, %d results, %d shown, %v; want 256 of both", res.Status, len(res.Results), len(eye.seen), err)
	}
	for i, r := range res.Results {
		r["text/plain"] = "changed"
		if eye.seen[i]["text/plain"] != "v" {
			t.Fatalf("value %d: got %v, want v", i, eye.seen[i])
		}
	}
}

// TestShownIsLeftWhenTheCallerGoes: a run whose caller has left does not wait for the caller's
// writer.
func TestShownIsLeftWhenTheCallerGoes(t *testing.T) {
	t.Parallel()
	f := &fake{program: func(r *fakeRun) backend.Exit {
		r.Frame(map[string]any{"type": "display", "data": map[string]any{"text/plain": "v"}})
		return r.Hang()
	}}
	ctx, cancel := context.WithCancel(t.Context())
	eye := &slowEye{let: make(chan struct{})}
	wait := executeIn(ctx, t, open(t, f), sandboxmcp.Request{Code: "x", Shown: eye, Stdout: io.Discard})
	eventually(t, "it runs", func() bool { n, _ := f.starts(); return n == 1 })
	cancel()
	if res, err := wait(); err != nil || res.Status != sandboxmcp.StatusCancelled {
		t.Errorf("got %s, %v", res.Status, err)
	}
	close(eye.let)
}
