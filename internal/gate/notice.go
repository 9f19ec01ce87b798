package gate

import (
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// notices tells the person at the server's terminal about new questions.
type notices struct {
	to  io.Writer
	how sandboxmcp.Invocation
	log *slog.Logger

	noun, command string // of the kind

	mu     sync.Mutex
	since  time.Time
	rung   int // notices since that time
	silent int // questions without a notice
}

const noticesPerMinute = 10

// ring writes a bell and one line, at most ten times a minute. The next line after that
// says how many questions got none. Text that a model wrote is quoted and escaped.
func (n *notices) ring(a sandboxmcp.Approval, subject string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); now.Sub(n.since) >= time.Minute {
		n.since, n.rung = now, 0
	}
	if n.rung++; n.rung > noticesPerMinute {
		n.silent++
		return
	}
	if n.to == nil {
		n.log.Warn("a request waits for approval", n.noun, subject, "namespace", a.Namespace, "approval_id", a.ID, "model_says", a.Reason)
		return
	}
	if strings.ContainsAny(subject, `;"`) { // else it could contain what seems to be the rest of the line
		subject = strconv.Quote(subject)
	}
	line := "\asandboxmcp: namespace " + string(a.Namespace) + " asks for " + subject
	if a.RequestID != "" {
		line = "\asandboxmcp: a program of namespace " + string(a.Namespace) + " waits for " + subject
	}
	if a.Reason != "" {
		line += "; the model says " + a.Reason
	}
	line += "; answer with `sandboxmcp " + n.command + " approve " + a.ID + "` or `sandboxmcp " + n.command + " deny " + a.ID + "`"
	if n.silent > 0 {
		line += "; " + strconv.Itoa(n.silent) + " more wait, see `sandboxmcp " + n.command + " list`"
		n.silent = 0
	}
	_, _ = io.WriteString(n.to, n.how.Paste(line)+"\n")
}
