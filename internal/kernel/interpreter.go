package kernel

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"sync"
	"sync/atomic"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Cell is a piece of code for an interpreter that keeps its state.
type Cell struct {
	Code    string
	Display sandboxmcp.Display // how to show the value of the last expression; shells have no values
	Stdin   []byte             // standard input; nil: empty
	Env     map[string]string  // variables that are set during the cell and restored after it; see CheckEnv

	// Packages and Modules are directories of Python and of Node.js packages that were shown
	// since the interpreter was started. Modules of the cell, and of later ones, are found
	// there. Shells ignore them.
	Packages, Modules []string

	// Install installs packages that the cell asks for, in the way of "%pip install". The cell
	// waits for it. nil: the driver does without. The request comes from untrusted code. Install
	// is called in a goroutine of its own, once at a time, and may return after Execute.
	Install func(l sandboxmcp.Language, packages []string) Installed
}

// Installed is the answer to a cell that asked for packages.
type Installed struct {
	OK       bool              `json:"ok"`
	Output   string            `json:"output"`             // what the cell prints, or why it failed
	Packages []string          `json:"packages,omitempty"` // as in Cell, from now on
	Modules  []string          `json:"modules,omitempty"`
	Env      map[string]string `json:"env,omitempty"`     // set during the rest of the cell
	Missing  bool              `json:"missing,omitempty"` // nothing is installed here: the driver does without
}

// ErrGone means that the interpreter or its channel ended before the cell was done.
var ErrGone = errors.New("the interpreter has ended")

// Interpreter is the server's end of an interpreter that keeps its state from one cell
// to the next. It runs one cell at a time: Execute may not be called concurrently.
//
// Server and driver exchange frames over the private channel: a length of 4 bytes,
// big-endian, and a JSON object of that length. A driver that cannot read frames gets
// cells in another form, but answers in frames.
//
//	driver  {"type":"ready"}                                       once: it accepts cells from now on
//
//	server  {"type":"execute","id","code","display","stdin","env","packages","modules","plain"}
//	                                                               a cell; display is none, stdout or results;
//	                                                               stdin is base64, or absent if there is none;
//	                                                               with plain, no name is bound for the cell
//	driver  {"type":"fixed","id","fixes"}                          names were bound that the cell lacks; before start
//	driver  {"type":"try","id"}                                    the cell may run or may not compile
//	driver  {"type":"start","id"}                                  the cell was compiled and now starts
//	driver  {"type":"display","id","data":{mime: form, "is_main_result"}}
//	                                                               a value to show; any number of these
//	driver  {"type":"install","id","language","packages"}          the cell asks for packages, and waits for
//	server  {"type":"installed","id","ok","output","packages","modules","env","missing"}
//	                                                               the answer, one to each request
//	driver  {"type":"syntax","id","name","message","line","col"}   the cell was not compiled; instead of start
//	driver  {"type":"error","id","name","value","traceback"}       the cell ended by an exception, or after "syntax"
//	driver  {"type":"done","id","ok","exit"}                       the cell has ended and its output is flushed;
//	                                                               exit, if present, is its exit code
//
// Ids count from 1. Frames with another id than that of the running cell are dropped.
// They come from a cell whose caller has stopped waiting, or from a thread that has
// outlived its cell. SIGINT to the process interrupts the running cell and has no effect
// between cells.
//
// The program shares the channel with its driver, so it can forge frames; see MaxFrame.
// It can end its cell early or report a failure. Its later output then counts as that of
// the next cell of the same session. An invalid frame, a frame over the limit of its
// type, or too many bytes of frames end the interpreter. Display frames beyond MaxReport
// bytes of a cell are dropped, which Report.Cut tells.
type Interpreter struct {
	channel  io.ReadWriteCloser
	send     func(id uint64, c Cell) ([]byte, error) // encodes a cell for the driver
	last     uint64                                  // id of the last cell that was sent; used by Execute only
	written  chan struct{}                           // closed when that cell, and what answers it, is written; used by Execute only
	asks     atomic.Int32                            // requests for packages that are not answered
	installs int                                     // requests for packages of the last cell; used by Execute only
	gone     chan struct{}                           // closed when no more frames will come
	end      error                                   // the reason: ErrGone, or ErrUnread with its cause; valid after gone

	mu      sync.Mutex
	ready   bool
	pending uint64    // id of the cell that was sent and is not done; 0: none
	ear     *listener // receiver of frames; nil: none
}

// listener receives frames. The reader drops frames for it once gone is closed.
type listener struct {
	words chan word
	gone  chan struct{}
}

// PlanInterpreter returns how to start the interpreter of p's language so that it runs
// cells. It ignores Code and FileName of p.
//
// SIGINT to the process interrupts a cell. If the signal arrives just before Python
// blocks in a system call, Python handles it only after that call. SIGURG interrupts the
// call and has no other effect, in every language. The caller therefore sends SIGURG
// repeatedly after SIGINT until the cell is done.
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

// Attach starts to read from an interpreter's private channel. The caller closes the
// channel, which ends the Interpreter. If the process ends but its children keep the
// other end open, the channel shows no end of file. The caller must therefore watch the
// process and cancel the context of Execute.
func Attach(channel io.ReadWriteCloser, l sandboxmcp.Language) *Interpreter {
	i := &Interpreter{channel: channel, send: frameOf, written: make(chan struct{}), gone: make(chan struct{}), end: ErrGone}
	close(i.written)
	if l == sandboxmcp.Shell {
		i.send = shellCell
	}
	go i.read()
	return i
}

// Execute runs a cell and returns when the driver reports that it is done. It calls show
// for each value to show, as it arrives; show may be nil, because the values are in the
// Report, too. show is not called concurrently, and not after Execute has returned. The
// error is ErrGone, ErrUnread if the channel could not be read, or that of ctx. If ctx
// ends, the cell still runs, and the next Execute waits for its end first.
func (i *Interpreter) Execute(ctx context.Context, c Cell, show func(sandboxmcp.RichResult)) (Report, error) {
	none := Report{Results: []sandboxmcp.RichResult{}}
	ear := &listener{words: make(chan word), gone: make(chan struct{})}
	i.listen(ear)
	defer func() {
		i.listen(nil)
		close(ear.gone)
	}()
	// Frames that arrive before the cell is sent belong to the previous cell.
	if err := i.hear(ctx, ear, i.idle, func(word) {}); err != nil {
		return none, err
	}
	select { // if the program forged the end of the previous cell, that cell may still be being written
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
	i.installs = 0
	// The driver may read slowly. Closing the channel ends the write.
	written := make(chan struct{})
	i.written = written
	go func() {
		defer close(written)
		_, _ = i.channel.Write(text)
	}()
	rep, room := none, MaxReport
	err = i.hear(ctx, ear, func() bool { return rep.Done }, func(w word) {
		if w.Type == "install" {
			i.install(c, w)
			return
		}
		if v := rep.takeWithin(&room, w); v != nil && show != nil {
			show(v)
		}
	})
	return rep, err
}

// maxAsks is how many requests for packages may wait. A driver sends one at a time, and the next one
// may come before the writer of the last answer has noticed that it was read.
const maxAsks = 2

// maxInstalls is how many requests of one cell are carried out. Each asks the package index and
// writes to the record. The driver does without the answers to further ones.
const maxInstalls = 32

// install answers a cell that asks for packages. Forged requests beyond maxAsks are dropped.
func (i *Interpreter) install(c Cell, w word) {
	if i.asks.Add(1) > maxAsks {
		i.asks.Add(-1)
		return
	}
	i.installs++
	within := i.installs <= maxInstalls
	sent, done := i.written, make(chan struct{})
	i.written = done
	go func() {
		defer close(done)
		defer i.asks.Add(-1)
		<-sent // the driver has read what was sent before, but its writer may not have noticed
		answer := Installed{Missing: true}
		if c.Install != nil && within {
			answer = c.Install(w.Language, w.Packages)
		}
		body, err := json.Marshal(struct {
			Type string `json:"type"`
			ID   uint64 `json:"id"`
			Installed
		}{"installed", w.ID, answer})
		if err == nil {
			_, _ = i.channel.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
		}
	}()
}

// hear passes frames of the last cell to take until done returns true.
func (i *Interpreter) hear(ctx context.Context, ear *listener, done func() bool, take func(word)) error {
	for !done() {
		select { // checked first, so that a flood of frames cannot delay them
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

// maxUnasked bounds the bytes of frames that arrive while no Execute waits for a cell. A
// correct driver needs less. maxAsked bounds them while Execute waits, because the server
// spends time to read them; a correct driver sends one display frame beyond MaxReport. A frame
// counts as word.cost says.
const (
	maxUnasked = 2 * MaxReport
	maxAsked   = 4 * MaxReport
)

// read reads frames until end of file, an invalid frame, or a limit.
func (i *Interpreter) read() {
	defer close(i.gone)
	unasked, answer := maxUnasked, maxAsked
	r := bufio.NewReader(i.channel) // as in Read
	for {
		w, err := readWord(r, MaxFrame)
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
			answer -= w.cost()
		} else {
			unasked -= w.cost()
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

// frameOf encodes a cell as a frame.
func frameOf(id uint64, c Cell) ([]byte, error) {
	display := c.Display
	if !display.ShowsValues() {
		display = "none"
	}
	m := map[string]any{"type": "execute", "id": id, "code": c.Code, "display": display}
	if c.Display == sandboxmcp.DisplayFigures { // the plain interpreter
		m["plain"] = true
	}
	if c.Stdin != nil {
		m["stdin"] = base64.StdEncoding.EncodeToString(c.Stdin)
	}
	if len(c.Env) > 0 {
		m["env"] = c.Env
	}
	if len(c.Packages) > 0 {
		m["packages"] = c.Packages
	}
	if len(c.Modules) > 0 {
		m["modules"] = c.Modules
	}
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}
