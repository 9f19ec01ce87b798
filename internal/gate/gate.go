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
// All processes that share a database share two tables and a [store.Watch] of them. A
// decision of one process holds in all of them once it is committed. While nothing
// changes, asking whether something is open costs one stat.
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
	maxPending    = 32                   // questions of a namespace at a time
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
	cfg    Config
	watch  *store.Watch // of questions and grants
	grants *store.Cached[map[sandboxmcp.Namespace][]grant]
	asked  rate
	bell   notices
}

// topic is what grants and approvals are to a [store.Watch].
const topic = "gate"

// New returns the gate to a state directory.
func New(c Config) *Gate {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Gate{cfg: c, watch: c.Store.Watch(topic), bell: notices{to: c.Notices, log: c.Logger}}
	g.grants = store.NewCached(g.watch, g.readAll)
	return g
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

// format returns the text of a time in the database and the audit; empty for the zero
// time.
func format(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return store.FormatTime(t)
}

// parse reads what format has made; the zero time for anything else.
func parse(s string) time.Time {
	t, err := store.ParseTime(s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// now is the time as it is kept.
func (g *Gate) now() time.Time { return g.cfg.Now().UTC().Round(0) }

// change carries out ops in one transaction and tells all processes of it.
func (g *Gate) change(ctx context.Context, ops ...store.Op) error { return g.watch.Update(ctx, ops...) }
