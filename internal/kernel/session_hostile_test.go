package kernel_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// during runs a cell, and calls f when the cell has come to begun(), which may
// be left out where it is the beginning.
func (l *live) during(t *testing.T, code string, f func()) said {
	t.Helper()
	done := make(chan said)
	if !strings.Contains(code, "begun()") {
		code = "begun()\n" + code
	}
	go func() {
		done <- l.do(t, kernel.Cell{Code: strings.ReplaceAll(code, "begun()", "open('begun', 'w').close()"), Display: sandboxmcp.DisplayResults})
	}()
	if early := l.awaitBegun(done); early != nil {
		return *early
	}
	f()
	for {
		select {
		case s := <-done:
			_ = os.Remove(filepath.Join(l.at.work, "begun"))
			return s
		case <-time.NewTimer(50 * time.Millisecond).C:
			_ = l.cmd.Process.Signal(syscall.SIGURG)
		}
	}
}

func TestPythonInterrupt(t *testing.T) {
	forever := []string{
		"while True: pass",
		"import time\ntime.sleep(60)",
		"import subprocess\nsubprocess.run(['sleep', '60'])",
		"!sleep 60",
		"import asyncio\nawait asyncio.sleep(60)",
		"import asyncio\nasync def f():\n    while True: pass\nawait f()",
		"while True: display('x' * 100000)",
		"import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nwhile True: pass",
		"while True: print('x' * 10)",
	}
	eachPython(t, func(t *testing.T, python string) {
		for _, code := range forever {
			t.Run(strings.ReplaceAll(code, "\n", " "), func(t *testing.T) {
				t.Parallel()
				l := begin(t, kernel.Program{Interpreter: python})
				if s := l.py(t, "x = 5"); s.Err != nil {
					t.Fatal(s.Err)
				}
				s := l.during(t, code, func() { l.interrupt(t) })
				if s.Err != nil || s.Error == nil || s.Error.Name != "KeyboardInterrupt" || s.Exit != 130 || !strings.HasSuffix(strings.TrimSpace(s.Stderr), "KeyboardInterrupt") {
					t.Fatalf("got %v %d %.300s %+v, want KeyboardInterrupt and 130", s.Err, s.Exit, s.Stderr, s.Error)
				}
				l.interrupt(t) // harmless: nothing runs
				if s := l.py(t, "x"); s.Err != nil || len(s.Results) != 1 || s.Results[0]["text/plain"] != "5" {
					t.Errorf("the cell after it: got %+v, want 5", s)
				}
			})
		}
		l := begin(t, kernel.Program{Interpreter: python})
		s := l.during(t, "import time\ntry:\n    begun()\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('caught')", func() { l.interrupt(t) })
		if s.Err != nil || s.Exit != 0 || s.Stdout != "caught\n" {
			t.Errorf("an interrupt that the cell catches: got %+v, want caught and 0", s)
		}
		s = l.during(t, "import asyncio\nasync def f():\n    try:\n        begun()\n        await asyncio.sleep(60)\n    finally: print('finally')\nawait f()", func() { l.interrupt(t) })
		if s.Err != nil || s.Exit != 130 || s.Stdout != "finally\n" {
			t.Errorf("an interrupt under finally: got %+v, want finally and 130", s)
		}
		for range 300 { // between two and in any part of one
			l.interrupt(t)
			if s := l.py(t, "1"); s.Err != nil {
				t.Fatalf("interrupted at random: got %+v, want no error", s)
			}
		}
		if s := l.py(t, "import signal; signal.getsignal(signal.SIGINT) is signal.default_int_handler"); len(s.Results) != 1 || s.Results[0]["text/plain"] != "True" {
			t.Errorf("the handler that a program sees: got %+v, want Python's default", s)
		}
	})
}

// A cell whose caller leaves goes on. The next cell waits for its end.
func TestPythonGivenUp(t *testing.T) {
	l := begin(t, kernel.Program{Interpreter: pythons(t)[0]})
	ctx, cancel := context.WithCancel(t.Context())
	rep, err := l.Execute(ctx, kernel.Cell{Code: "display('first')\nimport time\ntime.sleep(.2)\nx = 'late'\ndisplay('late')"}, func(sandboxmcp.RichResult) { cancel() })
	if !errors.Is(err, context.Canceled) || rep.Done || len(rep.Results) != 1 || !rep.Started {
		t.Fatalf("got %+v, %v; want canceled with one result, not done", rep, err)
	}
	if _, err := l.Execute(ctx, kernel.Cell{Code: "never = 1"}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a cell whose caller has left: got %v, want canceled", err)
	}
	s := l.py(t, "x, 'never' in globals()")
	if s.Err != nil || len(s.Results) != 1 || s.Results[0]["text/plain"] != "('late', False)" {
		t.Errorf("the next cell: got %+v, want the first cell finished, and the second not run", s)
	}
}

// TestPythonHostileCells: whatever a cell does to the channel of its interpreter, the server
// gets the cell's end or sees that the interpreter is gone. It reads no more than its limit,
// and does not take a report for that of another cell.
func TestPythonHostileCells(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		for name, c := range map[string]struct {
			gone bool
			exit int
		}{
			"closed":               {gone: true},
			"closed-and-failed":    {gone: true},
			"another-in-its-place": {gone: true},
			"a-file-in-its-place":  {gone: true},
			"ended":                {gone: true},
			"killed":               {gone: true},
			"a-child-holds-it":     {gone: true},
			"garbage":              {gone: true},
			"not-json":             {gone: true},
			"large-done":           {gone: true},
			"another-id":           {},
			"unknown":              {},
			"forged-end":           {exit: 64},
			"too-many-displays":    {},
			"too-many-forged":      {},
			"steals-the-words":     {},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := begin(t, kernel.Program{Interpreter: python})
				s := l.py(t, testkit.Hostile(t, name+".py"))
				size := 0
				for _, r := range s.Results {
					for _, v := range r {
						if text, ok := v.(string); ok {
							size += len(text)
						}
					}
				}
				if errors.Is(s.Err, kernel.ErrGone) != c.gone || s.Err == nil && s.Exit != c.exit || size > kernel.MaxReport {
					t.Fatalf("got %v, exit %d, %d bytes, stderr %.300s; want gone %v, exit %d, at most %d bytes", s.Err, s.Exit, size, s.Stderr, c.gone, c.exit, kernel.MaxReport)
				}
				if name == "steals-the-words" {
					return
				}
				if name == "closed" || name == "another-in-its-place" { // it cannot report, so it ends and says why
					_ = l.cmd.Wait()
					if code, err := l.cmd.ProcessState.ExitCode(), l.taken(t, l.stderr); code != 1 || !strings.Contains(s.Stderr+err, "descriptors 3 and 4") {
						t.Errorf("its interpreter: got exit %d, stderr %q; want 1 and the descriptors named", code, s.Stderr+err)
					}
				}
				next := l.py(t, "5")
				if c.gone != errors.Is(next.Err, kernel.ErrGone) || !c.gone && !next.Done {
					t.Errorf("the next cell: got %+v, want gone %v", next, c.gone)
				}
			})
		}
	})
}
