// Package guard protects the secrets of runs. It chooses which secrets of a namespace a run gets,
// and puts them into its environment. It masks all secrets of the namespace in what leaves the
// sandbox: output, displayed values, names, errors and their causes. It refuses files that contain
// a secret.
//
// A [Run] is made for each request. Use chooses its secrets in the transaction that
// records the intent. Open unseals them after that transaction, and Inject puts them into
// the environment. A nil masker masks nothing.
package guard

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

// Values of Config.Inject. With any other value, a program gets the secrets that its request's
// environment names.
const (
	InjectAll  = "all"
	InjectNone = "none"
)

// Config configures a [Guard].
type Config struct {
	Vault      *vault.Vault
	Inject     string // which secrets a program gets: "all", "named" or "none"
	PII        bool   // mask personal data too
	AllowFiles bool   // hand out files that contain a secret
}

// Guard makes maskers, and the [Run] of each request. Its methods may be called
// concurrently.
type Guard struct {
	cfg     Config
	maskers maskers
}

// New returns a guard over a vault.
func New(c Config) *Guard { return &Guard{cfg: c} }

// CheckSecret refuses a key that cannot be an environment variable, and a value that is a part of
// the mask text. It is the Check of a vault.
func CheckSecret(key, value string) error {
	if err := kernel.CheckEnv(map[string]string{key: ""}); err != nil {
		return err
	}
	if redact.Masks(value) {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the value of %s is a part of what stands in place of secrets", key).WithHint("use another value")
	}
	return nil
}

// Secrets is the set of secrets of a namespace. With a Had, it also has the secrets that programs
// of a live session have received.
type Secrets struct {
	guard *Guard
	ns    sandboxmcp.Namespace
	had   *Had
}

// Secrets returns the secrets of a namespace. had belongs to a live session; nil: none.
func (g *Guard) Secrets(ns sandboxmcp.Namespace, had *Had) Secrets { return Secrets{g, ns, had} }

// Masks returns a masker of the current secrets. It may be nil, which masks nothing.
func (s Secrets) Masks(ctx context.Context) (*redact.Masker, error) {
	set, err := s.guard.cfg.Vault.Current(ctx, s.ns)
	if err != nil {
		return nil, err
	}
	masker := s.guard.maskers.of(s.ns, set, s.guard.cfg.PII)
	if s.had == nil {
		return masker, nil
	}
	return s.had.remember(set, masker, nil, s.guard.cfg.PII), nil
}

// Had holds the secrets that programs of a session have received. It caches the masker
// until the current or the former secrets change. Its zero value is empty.
type Had struct {
	mu     sync.Mutex
	all    map[string]string // the key of each value
	set    *vault.Set
	old    []redact.Secret
	masker *redact.Masker
}

// remember adds the secrets of a run, whose keys are given, to those that the session's programs
// have received. It returns a masker for all of them, because a program may still hold a secret
// that was deleted or replaced. set holds the namespace's secrets, and masker masks them.
func (h *Had) remember(set *vault.Set, masker *redact.Masker, given []string, pii bool) *redact.Masker {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range set.Items {
		if slices.Contains(given, i.Key) {
			if h.all == nil {
				h.all = map[string]string{}
			}
			h.all[i.Value.Reveal()] = i.Key
		}
	}
	old := h.former(set)
	if len(old) == 0 {
		return masker
	}
	slices.SortFunc(old, func(a, b redact.Secret) int { return strings.Compare(a.Name+"\x00"+a.Value, b.Name+"\x00"+b.Value) })
	if h.masker == nil || h.set != set || !slices.Equal(h.old, old) {
		h.set, h.old, h.masker = set, old, redact.New(append(secretsOf(set), old...), pii)
	}
	return h.masker
}

// Bounds of the former secrets of a session, besides those that are current when it reaches them. Each is searched
// for in everything that leaves the session.
const (
	maxFormer      = 100
	maxFormerBytes = 128 << 10
)

// full reports whether the session's programs have received as many secrets that are not current any more as may be
// remembered. set holds the current ones.
func (h *Had) full(set *vault.Set) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	old, bytes := h.former(set), 0
	for _, s := range old {
		bytes += len(s.Value)
	}
	return len(old) >= maxFormer || bytes >= maxFormerBytes
}

// former returns the secrets that the session's programs have received and whose values are not in set. The caller
// holds the lock.
func (h *Had) former(set *vault.Set) (old []redact.Secret) {
	now := map[string]bool{}
	for _, i := range set.Items {
		now[i.Value.Reveal()] = true
	}
	for value, key := range h.all {
		if !now[value] {
			old = append(old, redact.Secret{Name: key, Value: value})
		}
	}
	return old
}

func secretsOf(set *vault.Set) []redact.Secret {
	all := make([]redact.Secret, 0, len(set.Items))
	for _, i := range set.Items {
		all = append(all, redact.Secret{Name: i.Key, Value: i.Value.Reveal()})
	}
	return all
}

// maskers caches a masker for each namespace until its secrets change.
type maskers struct {
	construct func(secrets []redact.Secret, pii bool) *redact.Masker // nil: redact.New; tests replace it
	making    sync.Mutex                                             // held while a masker is made, which may take half a second; mu is not

	mu  sync.Mutex // guards the fields below
	all map[sandboxmcp.Namespace]maskerOf
	pii *redact.Masker // for namespaces without secrets
}

type maskerOf struct {
	set    *vault.Set
	masker *redact.Masker
}

// of returns the masker of a namespace whose secrets are set. Only namespaces whose secrets have changed wait while one
// is made, and they make one after the other: a caller can change its secrets as fast as it likes.
func (m *maskers) of(ns sandboxmcp.Namespace, set *vault.Set, pii bool) *redact.Masker {
	if have, ok := m.made(ns, set, pii); ok {
		return have
	}
	m.making.Lock()
	defer m.making.Unlock()
	if have, ok := m.made(ns, set, pii); ok { // by another caller meanwhile
		return have
	}
	construct := m.construct
	if construct == nil {
		construct = redact.New
	}
	masker := construct(secretsOf(set), pii)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[sandboxmcp.Namespace]maskerOf{}
	}
	m.all[ns] = maskerOf{set, masker}
	return masker
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
