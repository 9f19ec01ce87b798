package guard

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

// Bounds of the time that the server takes to make the maskers of a namespace. A masker of 100 secrets takes up to 0.6 s,
// and each change of the secrets needs a new one, besides those of sessions with former secrets. A namespace may cause
// [backend.EffortShare] of a core, as a sandbox may.
const (
	changeBurst = 5 * time.Second  // server time at once, so that usual changes wait for nothing
	turnWait    = 10 * time.Second // longest wait for a masker; then the caller is refused
)

// constructor is the type of [redact.New].
type constructor func(secrets []redact.Secret, pii bool) *redact.Masker

// maskers caches a masker for each namespace until its secrets change.
type maskers struct {
	construct constructor // nil: redact.New; tests replace it
	making    sync.Mutex  // held while a masker is made, which may take half a second; mu is not

	mu    sync.Mutex // guards the fields below
	all   map[sandboxmcp.Namespace]maskerOf
	turns map[sandboxmcp.Namespace]*turn
	pii   *redact.Masker // for namespaces without secrets
}

type maskerOf struct {
	set    *vault.Set
	masker *redact.Masker
}

// turn lets the maskers of one namespace be made one after the other, within its share of the server's time.
type turn struct {
	held   chan struct{} // capacity 1; full while a caller has the turn, who alone uses the fields below
	effort *backend.Effort
	next   time.Time // when the next masker may be made
}

// preparation is a masker that may have to be made.
type preparation struct {
	made func() (masker *redact.Masker, ok bool) // looks into the cache
	make func(construct constructor) *redact.Masker
	keep func(*redact.Masker) // puts it into the cache
}

// of returns the masker of a namespace whose secrets are set.
func (m *maskers) of(ctx context.Context, ns sandboxmcp.Namespace, set *vault.Set, pii bool) (*redact.Masker, error) {
	return m.prepare(ctx, ns, preparation{
		made: func() (*redact.Masker, bool) { return m.made(ns, set, pii) },
		make: func(construct constructor) *redact.Masker { return construct(secretsOf(set), pii) },
		keep: func(masker *redact.Masker) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.all == nil {
				m.all = map[sandboxmcp.Namespace]maskerOf{}
			}
			m.all[ns] = maskerOf{set, masker}
		},
	})
}

// made returns the masker of a namespace if there is one, or if it is made at once.
func (m *maskers) made(ns sandboxmcp.Namespace, set *vault.Set, pii bool) (masker *redact.Masker, ok bool) {
	if len(set.Items) == 0 && !pii {
		return nil, true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(set.Items) == 0 {
		if m.pii == nil {
			m.pii = redact.New(nil, true)
		}
		return m.pii, true
	}
	have := m.all[ns]
	return have.masker, have.set == set
}

// prepare returns a masker, and makes it if it is not cached. Only namespaces whose secrets have changed wait while
// one is made, and all of them make one after the other: a caller can change its secrets as fast as it likes. A
// namespace that has used up its share of the server's time waits. A caller that waits too long is refused with
// queue_full, because it may hold a place of the queue and a sandbox meanwhile.
func (m *maskers) prepare(ctx context.Context, ns sandboxmcp.Namespace, p preparation) (*redact.Masker, error) {
	if have, ok := p.made(); ok {
		return have, nil
	}
	t := m.turnOf(ns)
	late := time.NewTimer(turnWait)
	defer late.Stop()
	select {
	case t.held <- struct{}{}:
	case <-late.C:
		return nil, tooOften(turnWait)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-t.held }()
	if have, ok := p.made(); ok { // by another caller meanwhile
		return have, nil
	}
	if err := t.rest(ctx, late.C); err != nil {
		return nil, err
	}
	m.making.Lock()
	defer m.making.Unlock()
	construct := m.construct
	if construct == nil {
		construct = redact.New
	}
	begun := time.Now()
	masker := p.make(construct)
	ended := time.Now()
	t.next = ended.Add(t.effort.Spend(ended.Sub(begun)))
	p.keep(masker)
	return masker, nil
}

func (m *maskers) turnOf(ns sandboxmcp.Namespace) *turn {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.turns[ns]
	if t == nil {
		if m.turns == nil {
			m.turns = map[sandboxmcp.Namespace]*turn{}
		}
		t = &turn{held: make(chan struct{}, 1), effort: backend.NewEffortOf(changeBurst)}
		m.turns[ns] = t
	}
	return t
}

// rest waits until the next masker may be made.
func (t *turn) rest(ctx context.Context, late <-chan time.Time) error {
	wait := time.Until(t.next)
	if wait <= 0 {
		return nil
	}
	due := time.NewTimer(wait)
	defer due.Stop()
	select {
	case <-due.C:
		return nil
	case <-late:
		return tooOften(time.Until(t.next))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tooOften is the error of a caller that has waited too long. again is when another attempt is of use.
func tooOften(again time.Duration) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "the secrets of this namespace change too often: the search for them is not prepared yet").
		WithHint("change secrets less often").With("retry_after_seconds", int(math.Ceil(max(again, time.Second).Seconds())))
}
