// Package vault stores the secrets of namespaces. It adds, lists and deletes them, and
// gives their values to the engine for the environment of programs. It returns values in no
// other way. The audit records every access by key, in the transaction in which it takes
// effect, and never a value.
//
// There are three kinds. A sealed vault stores its secrets in the state directory, each
// encrypted by age. The key is in a file beside them or in the desktop's keyring. All
// processes that use the directory share it. Each row has a MAC by a key derived from it, so a writer of the
// database cannot add or change a secret; see mac.go. A vault in memory belongs to one process and
// ends with it. A vault in the environment has the variables with which its process was
// started, and cannot be changed.
//
// Go cannot wipe a string from memory: values stay in the server's memory until the runtime
// reuses it.
package vault

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Kinds of vaults.
const (
	Sealed = "sealed"
	Memory = "memory"
	Env    = "env"
)

// Bounds.
const (
	MinValue = 8        // bytes; a shorter value would be masked everywhere
	MaxValue = 64 << 10 // bytes
	maxKey   = 128
	maxKeys  = 100       // secrets of a namespace
	maxBytes = 128 << 10 // bytes of all values of a namespace, which must fit into a program's environment
)

// Action is the action of an access in the audit.
const Action = "vault_access"

// Config configures a vault.
type Config struct {
	Kind       string // empty: Sealed
	Keyring    bool   // the key of a sealed vault is in the keyring and not in a file
	Given      bool   // the key comes from elsewhere and is not made here
	Store      *store.Store
	Audit      *audit.Log
	Volatile   bool                          // the store ends with this process
	Env        []string                      // KEY=value; Env takes its secrets from it, and Keyring finds the desktop in it
	Namespaces []sandboxmcp.Namespace        // those that the settings name; for Env, which has no secrets of others
	Check      func(key, value string) error // may refuse a secret; nil: no further checks
	Now        func() time.Time              // nil: the machine's clock
	Logger     *slog.Logger                  // nil: nothing is logged
}

// Vault holds secrets. Its methods may be called concurrently.
type Vault struct {
	cfg     Config
	key     *keys                // used by a sealed vault
	elapsed func() time.Duration // since the vault was opened, by a clock that is never set
	told    store.Told           // rows that are not used

	adding sync.Mutex // held while a secret in memory is added or deleted

	mu     sync.Mutex
	memory map[sandboxmcp.Namespace]*Set    // used by a vault in memory or in the environment
	last   int64                            // newest version in memory
	cache  map[sandboxmcp.Namespace]*looked // used by a sealed vault
}

// Set holds the secrets of a namespace at one moment. It is immutable.
type Set struct {
	Items []Item // sorted by key
}

// Item is a secret.
type Item struct {
	Key     string
	Value   sandboxmcp.Secret
	Version int64 // unique for each value that is set
	created time.Time
	expires time.Time     // zero: never
	until   time.Duration // as expires, in the time that [Vault.elapsed] returns; only in memory
	mac     string        // of its row; only if sealed
}

// expired reports whether the lifetime of an item has passed, by either clock: the one of the machine may be set back,
// and the other one may stand still while the machine sleeps.
func (v *Vault) expired(i Item) bool {
	return !i.expires.IsZero() && (!i.expires.After(v.cfg.Now()) || i.until > 0 && v.elapsed() >= i.until)
}

// Open makes a vault. It reads no key and unseals nothing. For kind Env it fails if a
// variable is not a valid secret. A vault needs no Close.
func Open(cfg Config) (*Vault, error) {
	cfg.complete()
	began := time.Now()
	v := &Vault{cfg: cfg, elapsed: func() time.Duration { return time.Since(began) }, memory: map[sandboxmcp.Namespace]*Set{}, cache: map[sandboxmcp.Namespace]*looked{}}
	switch cfg.Kind {
	case Env:
		for _, ns := range cfg.Namespaces {
			if _, err := v.inEnv(ns); err != nil {
				return nil, err
			}
		}
	case Sealed:
		v.key = newKeys(cfg.Store.Dir(), cfg)
	}
	return v, nil
}

func (cfg *Config) complete() {
	if cfg.Kind == "" {
		cfg.Kind = Sealed
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Check == nil {
		cfg.Check = func(string, string) error { return nil }
	}
}

// Prepare makes the key of a sealed vault, if it has none and no secret was sealed for another one. Servers that share a
// database copy the key from one of them, before there is a secret.
func (v *Vault) Prepare(ctx context.Context) error {
	if v.cfg.Kind != Sealed || v.cfg.Volatile || v.cfg.Given {
		return nil
	}
	have, err := v.sealedFor(ctx, v.cfg.Store.DB())
	if err == nil && have == "" {
		_, err = v.key.current(true)
	}
	return err
}

// Kind returns the vault's kind.
func (v *Vault) Kind() string { return v.cfg.Kind }

// check fails with invalid_argument if key and value cannot be a secret. The message has
// the key and never the value.
func (v *Vault) check(key, value string) error {
	bad := func(format string, args ...any) error {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, format, args...)
	}
	if !plainKey(key) {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the key %s does not match [A-Za-z_][A-Za-z0-9_]* with at most %d characters", sandboxmcp.Quote(key), maxKey)
	}
	switch {
	case denied(key):
		return bad("%s may not be a secret: programs take orders from a variable of this name", key)
	case len(value) < MinValue:
		return bad("the value of %s has %d bytes; it needs %d, because a shorter one would be masked everywhere", key, len(value), MinValue)
	case len(value) > MaxValue:
		return bad("the value of %s has %d bytes; at most %d are allowed", key, len(value), MaxValue)
	case strings.ContainsRune(value, 0):
		return bad("the value of %s contains a NUL, which an environment cannot hold", key)
	}
	return v.cfg.Check(key, value)
}

func plainKey(s string) bool {
	if s == "" || len(s) > maxKey || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// denied reports whether a variable of this name changes how programs work. Config.Check
// may refuse further names.
func denied(key string) bool {
	k := strings.ToUpper(key)
	for _, p := range []string{"LD_", "PYTHON", "GIT_"} {
		if strings.HasPrefix(k, p) {
			return true
		}
	}
	return strings.HasSuffix(k, "_PROXY") || slices.Contains([]string{"PATH", "HOME", "BASH_ENV", "NODE_OPTIONS"}, k)
}

// Add adds a secret, or replaces the one with the same key. The next run uses it.
func (v *Vault) Add(ctx context.Context, c sandboxmcp.Caller, s sandboxmcp.SecretSpec) error {
	if err := v.check(s.Key, s.Value.Reveal()); err != nil {
		return err
	}
	if s.TTL < 0 {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "a secret cannot have the lifetime %s", s.TTL)
	}
	switch v.cfg.Kind {
	case Memory:
		return v.addMemory(ctx, c, s)
	case Env:
		return envError()
	}
	return v.addSealed(ctx, c, s)
}

// Delete deletes a secret. If the key does not exist, it fails with not_found.
func (v *Vault) Delete(ctx context.Context, c sandboxmcp.Caller, key string) error {
	switch v.cfg.Kind {
	case Memory:
		return v.deleteMemory(ctx, c, key)
	case Env:
		return envError()
	}
	return v.deleteSealed(ctx, c, key)
}

func envError() error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the vault is the environment that the program was started with, and cannot be changed").
		WithHint("set SANDBOXMCP_SECRET_{NAMESPACE}_{KEY} and restart, or use another SANDBOXMCP_VAULT")
}

func unknown(key string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "the namespace has no secret %s", sandboxmcp.Quote(key)).WithHint("see `sandboxmcp vault list`")
}

// List returns the secrets of a namespace without their values. The list is not nil. If the key of the vault cannot be used,
// no secret can, and List returns all that are stored: a person may have to delete them.
func (v *Vault) List(ctx context.Context, ns sandboxmcp.Namespace) ([]sandboxmcp.SecretInfo, error) {
	items, _, err := v.look(ctx, v.cfg.Store.DB(), ns)
	if err != nil {
		return nil, err
	}
	list := []sandboxmcp.SecretInfo{}
	for _, i := range items {
		info := sandboxmcp.SecretInfo{Key: i.Key, Namespace: ns, CreatedAt: i.created}
		if !i.expires.IsZero() {
			at := i.expires
			info.ExpiresAt = &at
		}
		list = append(list, info)
	}
	return list, nil
}

// Current returns the secrets of a namespace for masking. For a program's environment call
// Use, which records the access.
func (v *Vault) Current(ctx context.Context, ns sandboxmcp.Namespace) (*Set, error) {
	_, open, err := v.look(ctx, v.cfg.Store.DB(), ns)
	if err != nil {
		return nil, err
	}
	return open()
}

// Use looks up the secrets of the namespace and calls choose with their keys. It returns the
// audit entry that choose returns, which the caller records before it opens the secrets; nil
// means that the run gets none. open returns the secrets.
func (v *Vault) Use(ctx context.Context, ns sandboxmcp.Namespace, choose func(keys []string) (*sandboxmcp.AuditEntry, error)) (e *sandboxmcp.AuditEntry, open func() (*Set, error), err error) {
	items, open, err := v.look(ctx, v.cfg.Store.DB(), ns)
	if err != nil {
		return nil, nil, err
	}
	keys := make([]string, len(items))
	for i := range items {
		keys[i] = items[i].Key
	}
	e, err = choose(keys)
	return e, open, err
}

// look returns the secrets of a namespace without values. open returns them with values. If the key of a sealed vault cannot
// be used, open fails.
func (v *Vault) look(ctx context.Context, db store.Querier, ns sandboxmcp.Namespace) (items []Item, open func() (*Set, error), err error) {
	var set *Set
	switch v.cfg.Kind {
	case Memory:
		set = v.inMemory(ns)
	case Env:
		if set, err = v.inEnv(ns); err != nil {
			return nil, nil, err
		}
	default:
		l, err := v.lookSealed(ctx, db, ns)
		if err != nil {
			return nil, nil, err
		}
		return l.items, func() (*Set, error) { return v.open(ns, l) }, nil
	}
	return set.Items, func() (*Set, error) { return set, nil }, nil
}

// entry returns the audit entry of an access.
func (v *Vault) entry(c sandboxmcp.Caller, verb string, keys ...string) *sandboxmcp.AuditEntry {
	return &sandboxmcp.AuditEntry{
		Action: Action, Phase: sandboxmcp.PhaseOutcome, Namespace: c.Namespace, Actor: c.Actor,
		Detail: Detail(verb, keys), Metadata: map[string]any{"keys": keys, "vault": v.cfg.Kind},
	}
}

// Detail returns the text of an access for the audit: a verb and the keys, shortened to one
// line.
func Detail(verb string, keys []string) string {
	const most = 200
	text := verb + " " + strings.Join(keys, ", ")
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}

func unavailable(why string, err error) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeVaultUnavailable, "the vault cannot be used: %s", why).WithCause(err)
}

// sorted returns a set of the items that have not expired.
func (v *Vault) sorted(items []Item) *Set {
	items = slices.DeleteFunc(slices.Clone(items), v.expired)
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Key, b.Key) })
	return &Set{Items: items}
}
