// Package gate decides which domains a run may reach. It knows the domains that the
// operator's settings open, the questions that are pending, and the grants that persons
// made.
//
// Only a person or the operator opens a domain. Each decision is committed together with
// its audit entry. If a grant cannot be read, its domain counts as closed. The SHA-256 of a
// question's canonical form ties the grant to the text that the person saw.
//
// # Several processes
//
// All processes that share a database share two tables and a [store.Watch] of them. A
// decision of one process is in force in all of them once it is committed. While nothing
// changes, checking whether a domain is open costs one stat.
//
// # Questions
//
// A question has an id that cannot be guessed. At most one question with the same subject
// is pending at a time, and it expires if no person answers. A model wrote its reason. The
// reason is cut, shown in quotes with unprintable characters escaped, and has no effect on
// the decision. A denial is final for its question. If the same question is asked within
// ten minutes of a denial, it is denied again without asking a person.
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
	PendingFor    = 15 * time.Minute     // time after which a pending question expires
	DefaultFor    = 24 * time.Hour       // duration of a grant that a model asked for
	MaxFor        = 366 * 24 * time.Hour // longest duration of a grant that expires
	onceFor       = 15 * time.Minute     // time within which a grant for one run must be used
	sessionFor    = 24 * time.Hour       // longest duration of a grant for a session, which ends with the session
	deniedFor     = 10 * time.Minute     // time for which a denial also answers the same question
	keepFor       = 7 * 24 * time.Hour   // time after which ended questions and grants are deleted; the audit keeps its own record
	maxPending    = 32                   // pending questions of a namespace
	maxPendingAll = 256
	newPerMinute  = 30  // questions of a namespace
	maxReason     = 500 // bytes that are stored
	shownReason   = 200 // bytes that are shown
)

// Config configures a [Gate].
type Config struct {
	Store     *store.Store
	Audit     *audit.Log
	Operator  []sandboxmcp.Domain // domains that the settings open
	Approvals bool                // persons may open domains; false: only those of Operator are open
	Now       func() time.Time    // nil: the machine's clock
	Notices   io.Writer           // gets a bell and a line for each new question; nil: they are logged
	Logger    *slog.Logger        // nil: nothing is logged
}

// Gate decides which domains are open. Its methods may be called concurrently, and several
// processes may have a gate to the same state directory.
type Gate struct {
	cfg    Config
	watch  *store.Watch // watch of questions and grants
	grants *store.Cached[map[sandboxmcp.Namespace][]grant]
	asked  rate
	bell   notices
}

// topic is the name of the [store.Watch] for questions and grants.
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
	Born      time.Time            // when the session was made; grants for an earlier session of the same id do not apply
	RequestID sandboxmcp.RequestID // id of the run; empty: the session is idle
}

// newID makes an id with 130 random bits.
func newID(kind string) string { return kind + "_" + strings.ToLower(rand.Text()) }

// format returns a time as text for the database and the audit, or "" for the zero time.
func format(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return store.FormatTime(t)
}

// parse parses the output of format. It returns the zero time for anything else.
func parse(s string) time.Time {
	t, err := store.ParseTime(s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// now returns the time with the precision and zone that the database stores.
func (g *Gate) now() time.Time { return g.cfg.Now().UTC().Round(0) }

// change runs ops in one transaction and notifies all processes.
func (g *Gate) change(ctx context.Context, ops ...store.Op) error { return g.watch.Update(ctx, ops...) }
