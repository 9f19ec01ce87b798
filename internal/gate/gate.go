// Package gate decides which domains a run may reach. It knows the domains that the
// operator's settings open, the questions that wait for a person, and the grants that
// persons made.
//
// Only a person or the operator opens a domain. Every decision has its audit entry in the
// same transaction: if it cannot be recorded, it is not made. Grants that cannot be read
// count as closed. The SHA-256 of a question's canonical form ties the grant to what the
// person was shown.
//
// # Several processes
//
// All processes that share a database share two tables and a [store.Watch] of them. A
// decision of one process holds in all of them once it is committed. While nothing
// changes, asking whether something is open costs one stat.
//
// # Questions
//
// A question has an id that cannot be guessed, waits once at a time, and lapses. A model
// wrote its reason: the reason is cut, shown in quotes with everything unprintable
// escaped, and decides nothing. A denial is final for its question. The same question soon
// after gets the same answer without a person.
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

// Times and bounds.
const (
	PendingFor    = 15 * time.Minute     // after which a question lapses
	DefaultFor    = 24 * time.Hour       // of a grant that a model asked for
	MaxFor        = 366 * 24 * time.Hour // the longest time of a grant that has an end
	onceFor       = 15 * time.Minute     // within which a grant for one run has to be used
	sessionFor    = 24 * time.Hour       // of a grant for a session; it ends with the session at the latest
	deniedFor     = 10 * time.Minute     // for which a denial answers the same question
	keepFor       = 7 * 24 * time.Hour   // after which rows of what has ended are deleted; the audit keeps its own
	maxPending    = 32                   // questions of a namespace at a time
	maxPendingAll = 256
	newPerMinute  = 30  // questions of a namespace
	maxReason     = 500 // bytes that are kept
	shownReason   = 200 // bytes that are shown
)

// Config configures a [Gate].
type Config struct {
	Store     *store.Store
	Audit     *audit.Log
	Operator  []sandboxmcp.Domain // domains that the settings open
	Approvals bool                // persons are asked and may open domains; false: only those of Operator are open
	Now       func() time.Time    // nil: the machine's clock
	Notices   io.Writer           // gets a bell and a line for each new question; nil: they are logged
	Logger    *slog.Logger        // nil: nothing is logged
}

// Gate decides which domains are open. Its methods may be called concurrently, and several
// processes may have a gate to the same state directory.
type Gate struct {
	cfg    Config
	watch  *store.Watch // of questions and grants
	grants *store.Cached[map[sandboxmcp.Namespace][]grant]
	asked  rate
	bell   notices
}

// topic is what grants and approvals are to a [store.Watch].
const topic = "gate"

// New returns the gate to a state directory. It needs no Close.
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

// Who is the subject of a decision: a run of a namespace, perhaps in a session.
type Who struct {
	Namespace sandboxmcp.Namespace
	SessionID sandboxmcp.SessionID // empty: in none
	Born      time.Time            // when the session was made; a grant to an earlier session of its name is not for it
	RequestID sandboxmcp.RequestID // of the run; empty: between two runs of a session
}

// newID makes an id with 130 random bits.
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

// now returns the time as the database keeps it.
func (g *Gate) now() time.Time { return g.cfg.Now().UTC().Round(0) }

// change carries out ops in one transaction and tells all processes of it.
func (g *Gate) change(ctx context.Context, ops ...store.Op) error { return g.watch.Update(ctx, ops...) }
