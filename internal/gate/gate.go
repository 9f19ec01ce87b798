// Package gate answers one question: may this be done now? It holds what the
// operator's settings open, what persons were asked and have not answered, and
// what they opened.
//
// Its promise: nothing opens without a person or the operator. Every decision is
// written into the audit in the transaction that makes it: what cannot be
// recorded does not happen, and what cannot be read counts as closed. What is
// opened is what was shown, held together by the SHA-256 of its canonical form.
//
// # Several processes
//
// All processes of a state directory share the two tables, and a small file
// beside them that grows by a byte with every change. To ask whether something
// is open costs one stat of it as long as nothing changes, and a process that
// waits for an answer looks at it ten times a second: what a command in another
// terminal decides holds everywhere at once.
//
// # What is asked
//
// A question has an id that nobody can guess, is asked once at a time, and
// lapses. The reason in it was written by a model: it is kept short, is shown in
// quotes with everything unprintable escaped, and decides nothing. A denial is
// final for its question; the same domain asked again soon after gets the same
// answer, and nobody is bothered.
package gate

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// How long things hold, and how many there may be.
const (
	PendingFor    = 15 * time.Minute     // a question, until it lapses
	DefaultFor    = 24 * time.Hour       // what was opened because a model asked
	MaxFor        = 366 * 24 * time.Hour // the longest time that can be asked for
	onceFor       = 15 * time.Minute     // a grant for one run, until it is used
	sessionFor    = 24 * time.Hour       // one for a session, which ends earlier with that
	deniedFor     = 10 * time.Minute     // that a denial answers the same question
	keepFor       = 7 * 24 * time.Hour   // that what has ended is kept here; the audit keeps it anyway
	refreshAfter  = time.Second          // after which grants are read again, although nobody said that they changed
	lookEvery     = 100 * time.Millisecond
	maxPending    = 32 // questions of a namespace at a time
	maxPendingAll = 256
	newPerMinute  = 30  // questions of a namespace
	maxReason     = 500 // bytes that are kept
	shownReason   = 200 // bytes that are shown
)

// Config is what a [Gate] is made of.
type Config struct {
	Store     *store.Store
	Audit     *audit.Log
	Operator  []sandboxmcp.Domain // what the settings open
	Approvals bool                // persons are asked and may open; false: only what Operator has is ever open
	Now       func() time.Time    // nil: the machine's clock
	Notices   io.Writer           // a line for each new question, with a bell; nil: the log has it
	Logger    *slog.Logger        // nil: nothing is logged
}

// Gate decides. Its methods may be called concurrently, and several processes
// may have a gate to the same state directory. All errors are
// *[sandboxmcp.Error].
type Gate struct {
	cfg   Config
	mark  mark
	snap  atomic.Pointer[snapshot]
	load  sync.Mutex // one reads at a time
	asked rate
	bell  notices
}

// New returns the gate to a state directory.
func New(c Config) *Gate {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Gate{cfg: c, mark: newMark(c.Store.Dir()), bell: notices{to: c.Notices, log: c.Logger}}
}

// Who is let out: a run of a namespace, perhaps in a session.
type Who struct {
	Namespace sandboxmcp.Namespace
	SessionID sandboxmcp.SessionID // empty: in none
	Born      time.Time            // when the session was made: a grant to one of its name that was before it is none to it
	RequestID sandboxmcp.RequestID // of the run; empty: between two of a session
}

// newID makes an id of 130 bits.
func newID(kind string) string { return kind + "_" + strings.ToLower(rand.Text()) }

const timeForm = "2006-01-02T15:04:05.000000000Z"

// format writes a time as the audit does; the zero one is empty.
func format(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeForm)
}

func parse(s string) time.Time {
	t, err := time.Parse(timeForm, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// now is the time as it is kept.
func (g *Gate) now() time.Time { return g.cfg.Now().UTC().Round(0) }

// change carries out ops and tells everybody that something is different. The
// mark is moved before as well, so that it is there when the first change is.
func (g *Gate) change(ctx context.Context, ops ...store.Op) error {
	if err := g.mark.move(); err != nil {
		return unwritten(err)
	}
	err := g.cfg.Store.Update(ctx, ops...)
	if moved := g.mark.move(); err == nil && moved != nil {
		g.cfg.Logger.Error("tell of a changed approval", "error", moved)
	}
	return err
}

func unwritten(err error) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the decision cannot be written down, so it does not hold").
		WithHint("see to the state directory").WithCause(err)
}
