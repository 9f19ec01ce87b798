package session

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
)

// far is a sandbox whose other calls return only after Usage was called.
type far struct {
	backend.Sandbox

	channel net.Conn
	asked   [2]chan struct{} // closed when usage is asked for: before the cell, and after it
	usages  atomic.Int32
}

func (f *far) Usage(context.Context) (backend.Usage, error) {
	n := f.usages.Add(1)
	close(f.asked[n-1])
	return backend.Usage{CPU: time.Duration(n) * time.Second}, nil
}

// await waits until usage was asked for.
func (f *far) await(which int) error {
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	select {
	case <-f.asked[which]:
		return nil
	case <-late.C:
		return fmt.Errorf("usage %d was not asked for", which)
	}
}

func (f *far) Isolation(context.Context) (sandboxmcp.Isolation, error) {
	return sandboxmcp.Isolation{Tier: sandboxmcp.TierL1}, nil
}

func (f *far) Files() backend.Files { return farFiles{nil, f} }

func (f *far) Start(context.Context, backend.Process) (backend.Running, error) {
	return farProgram{nil, f}, nil
}

type farFiles struct {
	backend.Files
	f *far
}

func (x farFiles) List(context.Context, string, int) ([]backend.FileInfo, bool, error) {
	return nil, false, x.f.await(0)
}

type farProgram struct {
	backend.Running
	f *far
}

func (x farProgram) Channel(int) io.ReadWriteCloser { return x.f.channel }

func (farProgram) Wait(ctx context.Context) (backend.Exit, error) {
	<-ctx.Done()
	return backend.Exit{}, ctx.Err()
}

func (x farProgram) Flush(context.Context) error {
	return x.f.await(1)
}

// drive plays the interpreter: it answers each cell.
func drive(c net.Conn) {
	say := func(text string) {
		_, _ = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	}
	say(`{"type":"ready"}`)
	for {
		var size uint32
		if binary.Read(c, binary.BigEndian, &size) != nil {
			return
		}
		body := make([]byte, size)
		var cell struct{ ID int }
		if _, err := io.ReadFull(c, body); err != nil || json.Unmarshal(body, &cell) != nil {
			return
		}
		say(fmt.Sprintf(`{"type":"start","id":%d}`, cell.ID))
		say(fmt.Sprintf(`{"type":"done","id":%d,"ok":true}`, cell.ID))
	}
}

func cellOf(code string) Cell {
	return Cell{
		Language: sandboxmcp.Python, Cell: kernel.Cell{Code: code},
		Preload: func() ([]string, backend.LoadCheck) { return nil, nil }, Stopping: func() bool { return false },
	}
}

// TestUsageIsReadBesideOtherThings: a run reads the usage of its sandbox at the same time as other things, both before the
// cell and after it.
func TestUsageIsReadBesideOtherThings(t *testing.T) {
	ours, theirs := net.Pipe()
	defer func() { _ = ours.Close() }()
	go drive(theirs)
	f := &far{channel: ours, asked: [2]chan struct{}{make(chan struct{}), make(chan struct{})}}
	program := kernel.Program{Language: sandboxmcp.Python, Interpreter: "/usr/bin/python3"}
	l := NewLive(&Session{}, LiveConfig{Sandbox: f, Program: program})
	l.Survey(t.Context())
	if err := f.await(0); err != nil { // Survey keeps no error
		t.Fatal(err)
	}
	r, ctx := run.Begin(t.Context(), run.Config{Limits: sandboxmcp.Limits{TimeoutSeconds: 60, MaxOutputBytes: 100}, Now: time.Now})
	defer r.Close()
	o, err := l.Execute(t.Context(), ctx, r, cellOf("1"))
	if err != nil || o.Usage.CPU != time.Second {
		t.Errorf("got %+v, %v, want a CPU time of 1s", o.Usage, err)
	}
}

// held is a sandbox in which a program keeps the output from being read until it is ended.
type held struct {
	backend.Sandbox

	channel net.Conn
	cleared chan struct{}
}

func (*held) Usage(context.Context) (backend.Usage, error) { return backend.Usage{}, nil }

func (*held) Isolation(context.Context) (sandboxmcp.Isolation, error) {
	return sandboxmcp.Isolation{Tier: sandboxmcp.TierL1}, nil
}

func (h *held) Start(context.Context, backend.Process) (backend.Running, error) {
	return heldProgram{farProgram{nil, &far{channel: h.channel}}, h}, nil
}

func (h *held) Clear(context.Context) error {
	close(h.cleared)
	return nil
}

type heldProgram struct {
	farProgram
	h *held
}

func (p heldProgram) Flush(ctx context.Context) error {
	select {
	case <-p.h.cleared:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (heldProgram) Drain(context.Context) error { return nil }

// TestOutputThatCannotBeReadEndsTheInterpreter: what a cell has left behind does not keep the cell from its end.
func TestOutputThatCannotBeReadEndsTheInterpreter(t *testing.T) {
	ours, theirs := net.Pipe()
	defer func() { _ = ours.Close() }()
	go drive(theirs)
	h := &held{channel: ours, cleared: make(chan struct{})}
	l := NewLive(&Session{}, LiveConfig{Sandbox: h, Program: kernel.Program{Language: sandboxmcp.Python, Interpreter: "/usr/bin/python3"}})
	r, ctx := run.Begin(t.Context(), run.Config{Limits: sandboxmcp.Limits{TimeoutSeconds: 60, MaxOutputBytes: 100}, Now: time.Now})
	defer r.Close()
	_, err := l.Execute(t.Context(), ctx, r, cellOf("1"))
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeExecutionFailed {
		t.Errorf("got %v, want the code %s", err, sandboxmcp.CodeExecutionFailed)
	}
	select {
	case <-h.cleared:
	default:
		t.Error("the programs were not ended")
	}
}

// lockedFiles cannot be listed.
type lockedFiles struct{ backend.Files }

func (lockedFiles) List(ctx context.Context, _ string, _ int) ([]backend.FileInfo, bool, error) {
	<-ctx.Done()
	return nil, false, ctx.Err()
}

type locked struct {
	held
}

func (*locked) Files() backend.Files { return lockedFiles{} }

// TestFilesThatCannotBeListedDelayNoRun: Survey does without them after a time.
func TestFilesThatCannotBeListedDelayNoRun(t *testing.T) {
	l := NewLive(&Session{}, LiveConfig{Sandbox: &locked{}, Program: kernel.Program{Language: sandboxmcp.Python, Interpreter: "/usr/bin/python3"}})
	l.Survey(t.Context())
	if known := l.Known(); len(known) > 0 {
		t.Errorf("got %v, want none", known)
	}
}

// stuck is a channel that cannot be closed before the programs of the sandbox have ended.
type stuck struct {
	net.Conn
	h *held
}

func (s stuck) Close() error {
	<-s.h.cleared
	return s.Conn.Close()
}

type stuckProgram struct {
	heldProgram
}

func (p stuckProgram) Channel(int) io.ReadWriteCloser { return stuck{p.h.channel, p.h} }

// TestAChannelThatCannotBeClosedEndsThePrograms: what another interpreter has started does not keep a cell from its end.
func TestAChannelThatCannotBeClosedEndsThePrograms(t *testing.T) {
	ours, theirs := net.Pipe()
	defer func() { _ = ours.Close() }()
	go drive(theirs)
	h := &held{channel: ours, cleared: make(chan struct{})}
	l := NewLive(&Session{}, LiveConfig{Sandbox: h})
	p := stuckProgram{heldProgram{farProgram{nil, &far{channel: ours}}, h}}
	if err := l.release(t.Context(), &interpreter{proc: p}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-h.cleared:
	default:
		t.Error("the programs were not ended")
	}
}

// unlisted is a sandbox whose files cannot be listed before over is closed, not even if the caller's context ends.
type unlisted struct {
	held
	over <-chan struct{}
}

func (u *unlisted) Files() backend.Files { return unlistedFiles{nil, u.over} }

type unlistedFiles struct {
	backend.Files
	over <-chan struct{}
}

func (f unlistedFiles) List(context.Context, string, int) ([]backend.FileInfo, bool, error) {
	<-f.over
	return nil, false, nil
}

// TestFilesAreLearnedAfterAListingThatDoesNotEnd: the first run of a session learns its files even if none were known.
func TestFilesAreLearnedAfterAListingThatDoesNotEnd(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	l := NewLive(&Session{}, LiveConfig{Sandbox: &unlisted{over: over}})
	l.Survey(t.Context())
	l.Learn(map[string]artifact.State{"a": {}})
	if len(l.Known()) != 1 {
		t.Errorf("got %v, want one file", l.Known())
	}
}

// tardy is a sandbox in which the output of a cell is read while the run is ended.
type tardy struct {
	held
	stop func()
}

func (x *tardy) Start(context.Context, backend.Process) (backend.Running, error) {
	return tardyProgram{farProgram{nil, &far{channel: x.channel}}, x.stop}, nil
}

type tardyProgram struct {
	farProgram
	stop func()
}

func (p tardyProgram) Flush(context.Context) error {
	p.stop()
	return nil
}

// TestACellThatIsDoneIsNotStopped: what ends a run while the output of its cell is read does not change its result.
func TestACellThatIsDoneIsNotStopped(t *testing.T) {
	ours, theirs := net.Pipe()
	defer func() { _ = ours.Close() }()
	go drive(theirs)
	ctx, stop := context.WithCancel(t.Context())
	program := kernel.Program{Language: sandboxmcp.Python, Interpreter: "/usr/bin/python3"}
	l := NewLive(&Session{}, LiveConfig{Sandbox: &tardy{held{channel: ours}, stop}, Program: program})
	r, ctx := run.Begin(ctx, run.Config{Limits: sandboxmcp.Limits{TimeoutSeconds: 60, MaxOutputBytes: 100}, Now: time.Now})
	defer r.Close()
	o, err := l.Execute(t.Context(), ctx, r, cellOf("1"))
	if err != nil || o.Stopped || o.Cause != nil {
		t.Errorf("got %+v, %v, want a cell that ended by itself", o, err)
	}
}

// deaf is a sandbox whose output cannot be read before its programs are ended, not even if the caller's context ends.
type deaf struct {
	held
	clear sync.Once
}

func (d *deaf) Clear(context.Context) error {
	d.clear.Do(func() { close(d.cleared) })
	return nil
}

func (d *deaf) Start(context.Context, backend.Process) (backend.Running, error) {
	return deafProgram{heldProgram{farProgram{nil, &far{channel: d.channel}}, &d.held}}, nil
}

type deafProgram struct{ heldProgram }

func (p deafProgram) Flush(context.Context) error {
	<-p.h.cleared
	return nil
}

// TestOutputThatBlocksItsReaderEndsTheInterpreter: the caller of a cell leaves the goroutine behind that reads its output,
// and the result is that the output is lost.
func TestOutputThatBlocksItsReaderEndsTheInterpreter(t *testing.T) {
	ours, theirs := net.Pipe()
	defer func() { _ = ours.Close() }()
	go drive(theirs)
	d := &deaf{held: held{channel: ours, cleared: make(chan struct{})}}
	l := NewLive(&Session{}, LiveConfig{Sandbox: d, Program: kernel.Program{Language: sandboxmcp.Python, Interpreter: "/usr/bin/python3"}})
	r, ctx := run.Begin(t.Context(), run.Config{Limits: sandboxmcp.Limits{TimeoutSeconds: 60, MaxOutputBytes: 100}, Now: time.Now})
	defer r.Close()
	o, err := l.Execute(t.Context(), ctx, r, cellOf("1"))
	if !errors.Is(err, errLate) || o.Stopped {
		t.Errorf("got %+v, %v, want %v", o, err, errLate)
	}
	if i := l.interps[sandboxmcp.Python]; i.kernel != nil || !i.lost {
		t.Error("the interpreter is kept")
	}
}

// patient is a sandbox whose shell ends a cell when it is interrupted.
type patient struct {
	held
	interrupts chan struct{}
}

func (x *patient) Start(context.Context, backend.Process) (backend.Running, error) {
	return patientProgram{farProgram{nil, &far{channel: x.channel}}, x.interrupts}, nil
}

type patientProgram struct {
	farProgram
	interrupts chan struct{}
}

func (p patientProgram) Interrupt(context.Context) error {
	p.interrupts <- struct{}{}
	return nil
}

func (patientProgram) Flush(context.Context) error { return nil }

// driveShell plays a shell. It ends each cell with the code "wait" when it is interrupted, and passes on the first line of
// each cell.
func driveShell(c net.Conn, interrupts <-chan struct{}, ids chan<- string) {
	say := func(text string) {
		_, _ = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	}
	say(`{"type":"ready"}`)
	lines := bufio.NewScanner(c)
	for {
		var cell [4]string // id, code, input, number of variables
		for n := range cell {
			if !lines.Scan() {
				return
			}
			cell[n] = lines.Text()
		}
		ids <- cell[0]
		id := strings.TrimSuffix(cell[0], "!")
		say(`{"type":"start","id":` + id + `}`)
		if cell[1] == "wait" {
			<-interrupts
		}
		say(`{"type":"done","id":` + id + `,"ok":true}`)
	}
}

// TestAShellHearsOfAnInterruptOfItsLastCell: its driver then waits for a signal that is still on its way.
func TestAShellHearsOfAnInterruptOfItsLastCell(t *testing.T) {
	ours, theirs := net.Pipe()
	defer func() { _ = ours.Close() }()
	x := &patient{held{channel: ours}, make(chan struct{}, 1)}
	ids := make(chan string, 1)
	go driveShell(theirs, x.interrupts, ids)
	l := NewLive(&Session{}, LiveConfig{Sandbox: x, Program: kernel.Program{Language: sandboxmcp.Shell, Interpreter: "/usr/bin/bash"}})
	for n, want := range []string{"1", "2!", "3"} {
		r, ctx := run.Begin(t.Context(), run.Config{Limits: sandboxmcp.Limits{TimeoutSeconds: 60, MaxOutputBytes: 100}, Now: time.Now})
		c := cellOf(":")
		if c.Language = sandboxmcp.Shell; n == 0 {
			c.Code = "wait"
			r.Stop()
		}
		o, err := l.Execute(t.Context(), ctx, r, c)
		if interrupted := n == 0; err != nil || o.Stopped != interrupted || (o.Cause != nil) != interrupted {
			t.Errorf("cell %d: got %v, %+v; only the first cell was interrupted", n+1, err, o)
		}
		r.Close()
		if got := <-ids; got != want {
			t.Errorf("cell %d: got the id %s, want %s", n+1, got, want)
		}
	}
}
