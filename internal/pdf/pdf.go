// Package pdf reads the text of PDF documents. It starts pdftotext of Poppler in a sandbox: such
// documents come from strangers, and no reader of them bounds its own time and memory.
package pdf

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Bounds of a document, besides those of its sandbox.
const (
	maxText  = 4 << 20 // bytes
	maxPages = 2000
	maxTime  = 10 * time.Second
)

// Program is an installed pdftotext.
type Program struct{ path string }

// places are where sandboxes see the program.
var places = []string{"/usr/bin/pdftotext", "/usr/local/bin/pdftotext"}

// Find returns the program. It fails with runtime_unavailable.
func Find() (Program, error) {
	for _, path := range places {
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return Program{path}, nil
		}
	}
	return Program{}, sandboxmcp.Errorf(sandboxmcp.CodeRuntimeUnavailable, "the page is a PDF document, and pdftotext is not installed").
		WithHint("install it on the server's machine: sudo apt-get install -y poppler-utils")
}

// Limits returns those of the sandbox that Text needs.
func Limits() sandboxmcp.Limits {
	return sandboxmcp.Limits{MaxRAMMB: 256, MaxCPUCores: 1, MaxProcesses: 1, TimeoutSeconds: maxTime.Seconds()}
}

// Text returns the text of a document, of its first 2,000 pages and 4 MiB at most. It fails with
// fetch_failed if the document cannot be read within the bounds. sb is a sandbox with Limits, or lower
// ones, in which nothing else runs; the caller closes it. limit is the time of those limits.
func (p Program) Text(ctx context.Context, sb backend.Sandbox, document []byte, limit time.Duration) (string, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out := &text{full: cancel}
	r, err := sb.Start(limited, backend.Process{
		Argv:  []string{p.path, "-q", "-nopgbrk", "-enc", "UTF-8", "-l", strconv.Itoa(maxPages), "-", "-"},
		Env:   []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8"},
		Stdin: document, Stdout: out,
	})
	if err != nil {
		return "", err
	}
	end, err := r.Wait(limited)
	if killed := sb.Kill(context.WithoutCancel(ctx)); killed != nil {
		return "", killed
	}
	if drained := r.Drain(context.WithoutCancel(ctx)); drained != nil {
		return "", drained
	}
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case out.cut:
		return out.String(), nil
	case errors.Is(err, context.DeadlineExceeded):
		return "", unreadable("it takes more than " + limit.String())
	case err != nil:
		return "", err
	}
	return out.String(), verdict(end)
}

// verdict returns the error of a program that has ended.
func verdict(end backend.Exit) error {
	switch {
	case end.Signal != 0:
		return unreadable("it takes more time or memory than a document may")
	case end.Code == 3:
		return unreadable("its author does not allow to copy its text")
	case end.Code != 0:
		return unreadable("it is damaged, or has a password")
	}
	return nil
}

func unreadable(why string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeFetchFailed, "the PDF document cannot be read: %s", why).
		WithHint("fetch it in a program that may reach its domain")
}

// text keeps the first bytes of what is written to it.
type text struct {
	bytes.Buffer
	cut  bool
	full func() // called when it takes no more
}

func (t *text) Write(p []byte) (int, error) {
	if room := maxText - t.Len(); len(p) > room {
		t.cut = true
		t.Buffer.Write(p[:room])
		t.full()
		return len(p), nil
	}
	return t.Buffer.Write(p)
}
