package cli

import (
	"errors"
	"io"
	"sync"
	"syscall"

	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

// output is a stream of this process. It keeps the error of the first write that failed. Its methods may
// be called concurrently.
type output struct {
	io.Writer
	name string

	mu     sync.Mutex
	failed error
}

// Write writes to the stream.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.failed == nil {
			o.failed = err
		}
	}
	return n, err
}

// lost returns why a part of the output was not written; nil: all was written, or its reader has closed it.
func (o *output) lost() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if errors.Is(o.failed, syscall.EPIPE) {
		return nil
	}
	return o.failed
}

// whole returns the exit status of a command that would end with status. If a part of its output was not
// written, such as to a full disk, it says so, and the command does not end with success.
func (a *call) whole(status int) int {
	for _, o := range a.outputs {
		err := o.lost()
		if err == nil {
			continue
		}
		a.Say(o.name + " is not complete: " + app.OneLine(err.Error()))
		if status == 0 {
			status = exitOurs
		}
	}
	return status
}
