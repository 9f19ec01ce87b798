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

	// Interrupted says that SIGINT was sent to the interpreter during its last cell. The driver of a shell then waits until
	// that has arrived, so that it does not interrupt this cell. Other drivers need not wait.
	Interrupted bool

	// Then is called when the driver has reported the end of the cell; nil: nothing is. Execute waits
	// for it, unless its context ends. No frame is read meanwhile.
	Then func()
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
	channel io.ReadWriteCloser
	send    func(id uint64, c Cell) ([]byte, error) // encodes a cell for the driver
	asks    atomic.Int32                            // requests for packages that are not answered
	gone    chan struct{}                           // closed when no more frames will come
	end     error                                   // the reason: ErrGone, or ErrUnread with its cause; valid after gone

	mu      sync.Mutex
	ready   bool
	last    uint64        // id of the last cell that was sent
	pending uint64        // last, until that cell is done; then 0
	written chan struct{} // closed when that cell, and what answers it, is written
	ear     *listener     // of the Execute that waits; nil: none
}

// listener is what Execute waits for. The goroutine that reads the channel fills it, so that Execute
// is woken once and not for each frame.
type listener struct {
	idle chan struct{} // closed when the next cell can be sent
	done chan struct{} // closed when the cell is done and Cell.Then has returned
	cell Cell
	show func(sandboxmcp.RichResult) // may be nil

	invited bool   // idle is closed; guarded by Interpreter.mu, as id
	id      uint64 // of the cell; 0: it is not sent

	mu       sync.Mutex // held while a frame is taken
	left     bool       // Execute has returned
	report   Report
	room     int // bytes of displayed values that the report still takes
	installs int // requests for packages
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
// ends, the cell still runs, and the next Execute waits for its end first. If ctx ends while
// Cell.Then is being called, the Report is Done.
func (i *Interpreter) Execute(ctx context.Context, c Cell, show func(sandboxmcp.RichResult)) (Report, error) {
	ear := &listener{idle: make(chan struct{}), done: make(chan struct{}), cell: c, show: show, report: Report{Results: []sandboxmcp.RichResult{}}, room: MaxReport}
	written := i.listen(ear)
	defer i.listen(nil)
	// Frames that arrive before the cell is sent belong to the previous cell.
	if err := i.await(ctx, ear.idle); err != nil {
		return ear.leave(), err
	}
	// If the program forged the end of the previous cell, that cell may still be being written.
	if err := i.await(ctx, written); err != nil {
		return ear.leave(), err
	}
	if err := i.tell(ear); err != nil {
		return ear.leave(), err
	}
	err := i.await(ctx, ear.done)
	return ear.leave(), err
}

// listen makes ear the receiver of frames. It returns what is closed when earlier cells are written.
func (i *Interpreter) listen(ear *listener) (written <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ear = ear
	i.invite()
	return i.written
}

// await waits until c is closed.
func (i *Interpreter) await(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-i.gone:
	}
	select { // what came last counts
	case <-c:
		return nil
	default:
		return i.end
	}
}

// tell sends a cell. It does not wait until it is written, because the driver may read slowly; closing
// the channel ends the write.
func (i *Interpreter) tell(ear *listener) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	text, err := i.send(i.last+1, ear.cell)
	if err != nil {
		return err
	}
	i.last++
	i.pending, ear.id = i.last, i.last
	written := make(chan struct{})
	i.written = written
	go func() {
		defer close(written)
		_, _ = i.channel.Write(text)
	}()
	return nil
}

// leave ends the listening. No frame is taken afterwards.
func (e *listener) leave() Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left = true
	return e.report
}

// maxAsks is how many requests for packages may wait. A driver sends one at a time, and the next one
// may come before the writer of the last answer has noticed that it was read.
const maxAsks = 2

// maxInstalls is how many requests of one cell are carried out. Each asks the package index and
// writes to the record. The driver does without the answers to further ones.
const maxInstalls = 32

// take takes a frame of the cell. It reports whether the cell is done.
func (i *Interpreter) take(e *listener, w word) (done bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left {
		return false
	}
	if w.Type == "install" {
		e.installs++
		i.install(e.cell, w, e.installs <= maxInstalls)
		return false
	}
	if v := e.report.takeWithin(&e.room, w); v != nil && e.show != nil {
		e.show(v)
	}
	return e.report.Done
}

// install answers a cell that asks for packages. Forged requests beyond maxAsks are dropped.
func (i *Interpreter) install(c Cell, w word, within bool) {
	if i.asks.Add(1) > maxAsks {
		i.asks.Add(-1)
		return
	}
	done := make(chan struct{})
	i.mu.Lock()
	sent := i.written
	i.written = done
	i.mu.Unlock()
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
		ear, asked, done := i.note(w)
		if done {
			unasked, answer = maxUnasked, maxAsked
		}
		if asked {
			answer -= w.cost()
		} else {
			unasked -= w.cost()
		}
		if unasked < 0 || answer < 0 {
			return
		}
		if ear != nil && i.take(ear, w) {
			if ear.cell.Then != nil {
				ear.cell.Then()
			}
			close(ear.done)
		}
	}
}

// note notes what a frame says of the conversation. ear is who takes the frame, if it belongs to a cell that
// is waited for. asked reports whether any Execute waits while a cell runs, and done whether that cell ended.
func (i *Interpreter) note(w word) (ear *listener, asked, done bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	asked = i.pending != 0 && i.ear != nil
	if asked && w.ID == i.pending && w.ID == i.ear.id {
		ear = i.ear
	}
	i.ready = i.ready || w.Type == "ready"
	if done = i.pending != 0 && w.Type == "done" && w.ID == i.pending; done {
		i.pending = 0
	}
	i.invite()
	return ear, asked, done
}

// invite tells an Execute that waits that a cell can be sent. It is called with mu held.
func (i *Interpreter) invite() {
	if i.ear != nil && !i.ear.invited && i.ready && i.pending == 0 {
		i.ear.invited = true
		close(i.ear.idle)
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
