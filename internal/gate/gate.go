// Package gate decides what may be done now: which domains a run may reach, which commands
// of the host may be executed, which packages may be installed. It knows what the operator's
// settings open, the questions that are pending, and the grants that persons made. A
// [Kind] describes the subjects of one kind, and each kind has a [Gate] of its own.
//
// Only a person or the operator opens a subject. Each decision is committed together with
// its audit entry. If a grant cannot be read, its subject counts as closed. The SHA-256 of a
// question's canonical form ties the grant to the text that the person saw. A grant has a MAC, so
// that a writer of the database without the signing key makes none; see mac.go.
//
// # Several processes
//
// All kinds, and all processes that share a database, share two tables and a [store.Watch] of them. A
// decision of one process is in force in all of them once it is committed. While nothing
// changes, checking whether a subject is open costs one stat.
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
	"sync/atomic"
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
	maxPendingAll = 256                  // of all namespaces; a namespace that has none may still ask one
	newPerMinute  = 30                   // questions of a namespace
	maxReason     = 500                  // bytes that are stored
	shownReason   = 200                  // bytes that are shown
)

// Config configures a [Gate].
type Config[S Subject[S]] struct {
	Kind      Kind[S]
	Store     *store.Store
	Audit     *audit.Log
	Key       func(purpose string) ([]byte, error) // derives a secret from the signing key, for the MACs of grants; nil: no grant can be made or used
	Endings   *Endings                             // shared by all gates of the process; nil: this gate has its own
	Operator  []S                                  // subjects that the settings open
	Approvals bool                                 // persons may open subjects; false: only those of Operator are open
	Now       func() time.Time                     // nil: the machine's clock
	Events    Emitter                              // nil: no events are emitted
	Notices   io.Writer                            // gets a bell and a line for each new question; nil: they are logged
	Logger    *slog.Logger                         // nil: nothing is logged

	Invocation sandboxmcp.Invocation // how persons call this program, for notices
}

// Emitter publishes events.
type Emitter interface {
	Emit(events ...sandboxmcp.Event)
}

// Gate decides which subjects of a kind are open. Its methods may be called concurrently, and several
// processes may have a gate to the same state directory.
type Gate[S Subject[S]] struct {
	cfg     Config[S]
	kind    *Kind[S]
	watch   *store.Watch // watch of questions and grants
	grants  *store.Cached[map[sandboxmcp.Namespace][]grant[S]]
	denials *store.Cached[map[sandboxmcp.Namespace][]denial[S]]
	asked   rate
	bell    notices
	opened  atomic.Pointer[[]S] // subjects that the settings open
	asking  atomic.Bool         // see Config.Approvals
	macs    store.RowMACs
	endings *Endings
	told    told
}

// topic is the name of the [store.Watch] for questions and grants.
const topic = "gate"

// New returns the gate to a state directory. It needs no Close.
func New[S Subject[S]](c Config[S]) *Gate[S] {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Gate[S]{cfg: c, watch: c.Store.Watch(topic), bell: notices{to: c.Notices, log: c.Logger, how: c.Invocation, noun: c.Kind.Noun, command: c.Kind.Command}}
	g.kind = &g.cfg.Kind
	g.macs, g.told.log = store.NewRowMACs(c.Key, grantPurpose), c.Logger
	if g.endings = c.Endings; g.endings == nil {
		g.endings = NewEndings(c.Audit.Reader())
	}
	g.SetOperator(c.Operator)
	g.SetApprovals(c.Approvals)
	g.grants = store.NewCached(g.watch, g.readAll)
	g.denials = store.NewCached(g.watch, g.readDenials)
	return g
}

// SetOperator replaces the subjects that the settings open.
func (g *Gate[S]) SetOperator(open []S) { g.opened.Store(&open) }

// operator returns the subjects that the settings open.
func (g *Gate[S]) operator() []S { return *g.opened.Load() }

// operatorFor returns the subjects that the settings open to who.
func (g *Gate[S]) operatorFor(who Who) []S {
	if who.Apart {
		return nil
	}
	return g.operator()
}

// SetApprovals replaces [Config.Approvals]. While approvals are off, no grant is in force.
func (g *Gate[S]) SetApprovals(on bool) { g.asking.Store(on) }

// Who is the subject of a decision: a run of a namespace, perhaps in a session.
type Who struct {
	Namespace sandboxmcp.Namespace
	SessionID sandboxmcp.SessionID // empty: in none
	Born      time.Time            // when the session was made; grants for an earlier session of the same id do not apply
	RequestID sandboxmcp.RequestID // id of the run; empty: the session is idle
	Apart     bool                 // the subjects that the settings open are not open to it
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
func (g *Gate[S]) now() time.Time { return g.cfg.Now().UTC().Round(0) }

// change runs ops in one transaction and notifies all processes.
func (g *Gate[S]) change(ctx context.Context, ops ...store.Op) error {
	if !g.endings.begun() {
		_, _ = g.grants.Get(ctx) // reads the record outside of the transaction, if there are grants; that reports the error
	}
	return g.watch.Update(ctx, ops...)
}
