package kernel_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// Whoever starts the tests may ignore SIGINT, and that is inherited; what is
// handled is not. A sandbox's init sees to it for real programs.
func init() { signal.Notify(make(chan os.Signal, 1), os.Interrupt) }

// live is an interpreter that takes cells, started without a sandbox: its
// directories are temporary, and their names in what comes back are the real ones.
type live struct {
	*kernel.Interpreter
	at             places
	cmd            *exec.Cmd
	channel        channel
	stdout, stderr *os.File
	read           map[*os.File]int // how much of it has been taken
	names          *strings.Replacer
}

// said is what one cell came to.
type said struct {
	Stdout, Stderr string
	Shown          []sandboxmcp.RichResult // by show, which is the report's as well
	kernel.Report
	Err error
}

// begin starts an interpreter.
func begin(t testing.TB, p kernel.Program) *live {
	t.Helper()
	return beginIn(t, p, places{t.TempDir(), t.TempDir()})
}

func beginIn(t testing.TB, p kernel.Program, at places) *live {
	t.Helper()
	if p.Language == "" && p.Version == "" {
		p.Version = knownVersion(t, p.Interpreter)
	}
	plan, err := kernel.PlanInterpreter(p)
	if err != nil {
		t.Fatal(err)
	}
	l := &live{at: at, read: map[*os.File]int{}}
	l.cmd, l.names = at.command(t.Context(), t, plan)
	var theirs []*os.File
	l.channel, theirs = channelPipes(t)
	l.stdout, l.stderr = scratch(t), scratch(t)
	l.cmd.Env = append(l.cmd.Env, "SANDBOX_BRIDGE_DIR="+filepath.Join(at.program, "bridge"), "HOME="+filepath.Join(at.program, "home"))
	l.cmd.Stdout, l.cmd.Stderr, l.cmd.ExtraFiles = l.stdout, l.stderr, theirs
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	t.Cleanup(func() {
		_ = l.channel.Close()
		_ = l.cmd.Process.Kill()
		_ = l.cmd.Wait()
	})
	l.Interpreter = kernel.Attach(l.channel, p.Language)
	return l
}

var versions sync.Map // by path of the interpreter

// knownVersion is versionOf, asked once.
func knownVersion(t testing.TB, python string) string {
	t.Helper()
	known, ok := versions.Load(python)
	if !ok {
		known, _ = versions.LoadOrStore(python, versionOf(t, python))
	}
	version, _ := known.(string)
	return version
}

// channel is the near end of an interpreter's two pipes.
type channel struct{ from, to *os.File }

func (c channel) Read(p []byte) (int, error)  { return c.from.Read(p) }
func (c channel) Write(p []byte) (int, error) { return c.to.Write(p) }
func (c channel) Close() error                { return errors.Join(c.from.Close(), c.to.Close()) }

// channelPipes makes a channel and the descriptors 3 and 4 of its interpreter.
func channelPipes(t testing.TB) (ours channel, theirs []*os.File) {
	t.Helper()
	from, theirTo, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	theirFrom, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return channel{from, to}, []*os.File{theirTo, theirFrom}
}

// scratch is a file that takes a stream, so that all that was written before a
// word on the channel is there when the word is heard.
func scratch(t testing.TB) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "stream"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// taken returns what was added to a stream since the last time.
func (l *live) taken(t testing.TB, f *os.File) string {
	t.Helper()
	data, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	more := data[l.read[f]:]
	l.read[f] = len(data)
	return l.names.Replace(string(more))
}

// do runs a cell to its end.
func (l *live) do(t testing.TB, c kernel.Cell) said {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var s said
	s.Report, s.Err = l.Execute(ctx, c, func(r sandboxmcp.RichResult) { s.Shown = append(s.Shown, r) })
	s.Stdout, s.Stderr = l.taken(t, l.stdout), l.taken(t, l.stderr)
	return s
}

// awaitBegun waits until a cell, whose end comes on done, has made the file "begun". If the
// cell ends before, it returns that end.
func (l *live) awaitBegun(done <-chan said) (early *said) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(filepath.Join(l.at.work, "begun")); err == nil {
			return nil
		}
		select {
		case s := <-done:
			return &s
		case <-tick.C:
		}
	}
}

// py runs code of which the value is wanted, as a session does.
func (l *live) py(t testing.TB, code string) said {
	t.Helper()
	return l.do(t, kernel.Cell{Code: code, Display: sandboxmcp.DisplayResults})
}

// interrupt sends SIGINT to the process.
func (l *live) interrupt(t testing.TB) {
	t.Helper()
	if err := l.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
}
