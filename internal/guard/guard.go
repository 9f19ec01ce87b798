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

// Masks returns a masker of the current secrets. It may be nil, which masks nothing. It fails with queue_full if the
// secrets change too often.
func (s Secrets) Masks(ctx context.Context) (*redact.Masker, error) {
	set, err := s.guard.cfg.Vault.Current(ctx, s.ns)
	if err != nil {
		return nil, err
	}
	masker, err := s.guard.maskers.of(ctx, s.ns, set, s.guard.cfg.PII)
	if err != nil {
		return nil, err
	}
	return s.andFormer(ctx, set, masker)
}

// andFormer returns a masker for the namespace's secrets and for those that programs of the session have received and
// that are not current any more. set holds the current ones, and masker masks them.
func (s Secrets) andFormer(ctx context.Context, set *vault.Set, masker *redact.Masker) (*redact.Masker, error) {
	if s.had == nil {
		return masker, nil
	}
	old := s.had.former(set)
	if len(old) == 0 {
		return masker, nil
	}
	return s.guard.maskers.prepare(ctx, s.ns, preparation{
		made: func() (*redact.Masker, bool) { return s.had.made(set, old) },
		make: func(construct constructor) *redact.Masker {
			return construct(append(secretsOf(set), old...), s.guard.cfg.PII)
		},
		keep: func(m *redact.Masker) { s.had.keep(set, old, m) },
	})
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

// give adds the secrets of a run, whose keys are given, to those that the session's programs have received. They are
// masked as long as the session lives, because a program may still hold a secret that was deleted or replaced. set
// holds the namespace's secrets.
func (h *Had) give(set *vault.Set, given []string) {
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
}

// made returns the masker of the current secrets, in set, and of the former ones, if it is cached.
func (h *Had) made(set *vault.Set, old []redact.Secret) (*redact.Masker, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.masker, h.masker != nil && h.set == set && slices.Equal(h.old, old)
}

func (h *Had) keep(set *vault.Set, old []redact.Secret, masker *redact.Masker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set, h.old, h.masker = set, old, masker
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
	old, bytes := h.former(set), 0
	for _, s := range old {
		bytes += len(s.Value)
	}
	return len(old) >= maxFormer || bytes >= maxFormerBytes
}

// former returns the secrets that the session's programs have received and whose values are not in set, in a fixed
// order.
func (h *Had) former(set *vault.Set) (old []redact.Secret) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := map[string]bool{}
	for _, i := range set.Items {
		now[i.Value.Reveal()] = true
	}
	for value, key := range h.all {
		if !now[value] {
			old = append(old, redact.Secret{Name: key, Value: value})
		}
	}
	slices.SortFunc(old, func(a, b redact.Secret) int { return strings.Compare(a.Name+"\x00"+a.Value, b.Name+"\x00"+b.Value) })
	return old
}

func secretsOf(set *vault.Set) []redact.Secret {
	all := make([]redact.Secret, 0, len(set.Items))
	for _, i := range set.Items {
		all = append(all, redact.Secret{Name: i.Key, Value: i.Value.Reveal()})
	}
	return all
}
