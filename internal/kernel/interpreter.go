package kernel

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Cell is one piece of code for an interpreter that stays.
type Cell struct {
	Code    string
	Display sandboxmcp.Display // where the value of the last expression goes, in python and node; a shell has none
	Stdin   []byte             // what the cell reads; nil: end of file at once
	Env     map[string]string  // set for the cell and taken back after it; see CheckEnv
}

// ErrGone tells that the interpreter ended, or its channel did, before the cell
// was done.
var ErrGone = errors.New("the interpreter has ended")

// Interpreter is the near side of an interpreter that keeps its state from one
// cell to the next. It runs one cell at a time; the caller sees to that.
//
// The two sides speak over the private channel, a stream, in frames of 4 bytes of
// length, big-endian, and a JSON object of so many bytes (a language whose driver
// cannot read those may be sent cells in another form; it answers in frames).
//
//	driver  {"type":"ready"}                                       once: it takes cells from now on
//
//	near    {"type":"execute","id","code","display","stdin","env"} one cell: display is none, stdout or results;
//	                                                               stdin is base64, or absent for none
//	driver  {"type":"start","id"}                                  the cell was compiled and now begins
//	driver  {"type":"display","id","data":{mime: form, "is_main_result"}}
//	                                                               a value to show, any number of them
//	driver  {"type":"syntax","id","name","message","line","col"}   it was not compiled; no start then
//	driver  {"type":"error","id","name","value","traceback"}       it ended by an exception, that of its syntax too
//	driver  {"type":"done","id","ok","exit"}                       it ended, and its output is flushed; exit, where
//	                                                               there is one, is the code that it wanted to end with
//
// Ids count up from 1. What has another id than the cell that is going is not
// for anybody and is dropped: the words of a cell that was given up, or of a
// thread that outlived its own. SIGINT to the process interrupts the cell that
// is going and does nothing between two.
//
// The program shares the channel with its driver, and what was said of forged
// words at MaxFrame holds: it can end its cell early or say that it failed, and
// later output then is that of a later cell, all of which are its own. What is no
// frame, is larger than its type allows, or comes without end, ends the
// conversation. Displays beyond MaxReport bytes of one cell are dropped.
type Interpreter struct {
	channel io.ReadWriteCloser
	send    func(id uint64, c Cell) ([]byte, error) // how a cell looks on the channel
	last    uint64                                  // id of the last cell that was sent; Execute's own
	written chan struct{}                           // closed when its text is on the channel; Execute's own
	gone    chan struct{}                           // closed when no more words will come
	end     error                                   // why: ErrGone, or ErrUnread with its cause; after gone

	mu      sync.Mutex
	ready   bool
	pending uint64    // the cell that has been sent and is not done; 0: none
	ear     *listener // who listens; nil: nobody
}

// listener is one wait for words. The reader gives up handing them over when
// its gone is closed.
type listener struct {
	words chan word
	gone  chan struct{}
}

// PlanInterpreter says how to start the interpreter of p's language so that it
// takes cells. Code and FileName of p mean nothing. The interpreter is
// interrupted by SIGINT to the process. One that comes just before the process
// begins to wait in the kernel is seen by python only when something wakes it:
// SIGURG does that, any number of times, and nothing else, in every language. So
// whoever interrupts sends one every now and then until the cell is done.
func PlanInterpreter(p Program) (backend.Process, error) {
	if p.Language == "" {
		p.Language = sandboxmcp.Python
	}
	if err := checkEnv(p.Env, wholeEnv); err != nil {
		return backend.Process{}, err
	}
	if !path.IsAbs(p.Interpreter) {
		return backend.Process{}, sandboxmcp.Errorf(sandboxmcp.CodeInternal, "the interpreter %s has no absolute path", sandboxmcp.Quote(p.Interpreter))
	}
	switch p.Language {
	case sandboxmcp.Python:
		return planPythonInterpreter(p)
	case sandboxmcp.Node:
		return planNodeInterpreter(p)
	case sandboxmcp.Shell:
		return planShellInterpreter(p)
	}
	return backend.Process{}, sandboxmcp.Errorf(sandboxmcp.CodeUnsupportedLanguage, "language %s is not supported", sandboxmcp.Quote(string(p.Language)))
}

// Attach begins to speak with an interpreter over its private channel. The
// channel stays the caller's to close, which ends everything here. A process
// that ended may have left children that hold the other end, so that nothing is
// heard of it here: the caller watches the process, and ends ctx of Execute.
func Attach(channel io.ReadWriteCloser, l sandboxmcp.Language) *Interpreter {
	i := &Interpreter{channel: channel, send: frameOf, written: make(chan struct{}), gone: make(chan struct{}), end: ErrGone}
	close(i.written)
	if l == sandboxmcp.Shell {
		i.send = shellCell
	}
	go i.read()
	return i
}

// Execute runs a cell and returns when its driver says that it is done. show is
// called for each value to show, as it comes, from one goroutine and never after
// Execute has returned; it may be nil, the values are in the Report as well. The
// error is ErrGone, ErrUnread when the channel could not be read, or ctx's: then
// the cell still runs, and the next Execute first waits for its end.
func (i *Interpreter) Execute(ctx context.Context, c Cell, show func(sandboxmcp.RichResult)) (Report, error) {
	none := Report{Results: []sandboxmcp.RichResult{}}
	ear := &listener{words: make(chan word), gone: make(chan struct{})}
	i.listen(ear)
	defer func() {
		i.listen(nil)
		close(ear.gone)
	}()
	// What is heard until the cell is sent is of the one before.
	if err := i.hear(ctx, ear, i.idle, func(word) {}); err != nil {
		return none, err
	}
	select { // the text of the one before may still be on its way, if its end was forged
	case <-ctx.Done():
		return none, ctx.Err()
	case <-i.gone:
		return none, i.end
	case <-i.written:
	}
	text, err := i.send(i.last+1, c)
	if err != nil {
		return none, err
	}
	i.begin()
	// The writing may take as long as the driver likes; it ends with the channel.
	written := make(chan struct{})
	i.written = written
	go func() {
		defer close(written)
		_, _ = i.channel.Write(text)
	}()
	rep, left := none, MaxReport
	err = i.hear(ctx, ear, func() bool { return rep.Done }, func(w word) {
		if w.Type == "display" {
			if left -= w.size; left < 0 {
				return
			}
		}
		if v := rep.take(w); v != nil && show != nil {
			show(v)
		}
	})
	return rep, err
}

// hear hands the words of the last cell to take until wanted says that it is enough.
func (i *Interpreter) hear(ctx context.Context, ear *listener, wanted func() bool, take func(word)) error {
	for !wanted() {
		select { // first, so that no flood of words holds them up
		case <-i.gone:
			return i.end
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-i.gone:
			return i.end
		case w := <-ear.words:
			if w.ID == i.last {
				take(w)
			}
		}
	}
	return nil
}

// idle reports whether a cell can be sent.
func (i *Interpreter) idle() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ready && i.pending == 0
}

func (i *Interpreter) begin() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last++
	i.pending = i.last
}

func (i *Interpreter) listen(l *listener) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ear = l
}

// maxUnasked bounds what is said where no cell goes, or where nobody waits for
// the one that does: more than an honest driver says of a cell that was given up.
// maxAsked bounds what is said of a cell that is waited for: the time to read it is
// ours and not the sandbox's. A driver stops at MaxReport.
const (
	maxUnasked = 2 * MaxReport
	maxAsked   = 4 * MaxReport
)

// read reads words until the channel ends or what comes is none.
func (i *Interpreter) read() {
	defer close(i.gone)
	unasked, answer := maxUnasked, maxAsked
	for {
		w, err := readWord(i.channel, MaxFrame)
		if err != nil {
			if lost := unread(err); lost != nil && !errors.Is(err, errNoFrame) && !errors.Is(err, os.ErrClosed) {
				i.end = lost
			}
			return
		}
		i.mu.Lock()
		ear, asked := i.ear, i.pending != 0
		i.ready = i.ready || w.Type == "ready"
		if asked && w.Type == "done" && w.ID == i.pending {
			i.pending, unasked, answer = 0, maxUnasked, maxAsked
		}
		i.mu.Unlock()
		if asked && ear != nil {
			answer -= w.size + 4
		} else {
			unasked -= w.size + 4
		}
		if unasked < 0 || answer < 0 {
			return
		}
		if ear != nil {
			select {
			case ear.words <- w:
			case <-ear.gone:
			}
		}
	}
}

// frameOf is a cell as a frame.
func frameOf(id uint64, c Cell) ([]byte, error) {
	display := c.Display
	if display == sandboxmcp.DisplayNone {
		display = "none"
	}
	m := map[string]any{"type": "execute", "id": id, "code": c.Code, "display": display}
	if c.Stdin != nil {
		m["stdin"] = base64.StdEncoding.EncodeToString(c.Stdin)
	}
	if len(c.Env) > 0 {
		m["env"] = c.Env
	}
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}
