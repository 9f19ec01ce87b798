package kernel

import (
	"context"
	"errors"
	"io"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Cell is one piece of code for an interpreter that stays.
type Cell struct {
	Code    string
	Display sandboxmcp.Display // where the value of the last expression goes
	Stdin   []byte             // what the cell reads; nil: end of file at once
	Env     map[string]string  // set for the cell and taken back after it; see CheckEnv
}

// ErrGone tells that the interpreter ended, or its channel did, before the cell
// was done.
var ErrGone = errors.New("the interpreter has ended")

// Interpreter is the near side of an interpreter that keeps its state from one
// cell to the next. It runs one cell at a time; the caller sees to that.
type Interpreter struct{}

// PlanInterpreter says how to start the interpreter of p's language so that it
// takes cells. Code and FileName of p mean nothing. The interpreter is
// interrupted by SIGINT to the process.
func PlanInterpreter(_ Program) (backend.Process, error) {
	return backend.Process{}, errors.New("not built")
}

// Attach begins to speak with an interpreter over its private channel.
func Attach(_ io.ReadWriteCloser, _ sandboxmcp.Language) *Interpreter { return nil }

// Execute runs a cell and returns when its driver says that it is done. show is
// called for each value to show, as it comes, from one goroutine and never after
// Execute has returned. The error is ErrGone, or ctx's: then the cell still
// runs, and the next Execute first waits for its end.
func (*Interpreter) Execute(_ context.Context, _ Cell, _ func(sandboxmcp.RichResult)) (Report, error) {
	return Report{}, ErrGone
}
