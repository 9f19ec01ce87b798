// Package vault keeps the secrets of namespaces: it takes them in, says which
// there are, and gives their values to whoever runs a program. No value leaves it
// in another way, and none is in the record; every access is, by key, in the
// transaction in which it takes effect.
//
// Three kinds are built. A sealed vault has its secrets in the state directory,
// each encrypted by age for a key that is in a file beside them, or in the keyring
// of the desktop; every process that has the directory sees the same. One in
// memory belongs to one process and ends with it. One in the environment is what
// its process was started with, and nobody can add to it.
//
// Go gives no means to wipe a text from memory: values stay in that of the server
// for as long as the runtime likes.
package vault

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Kinds of a vault.
const (
	Sealed = "sealed"
	Memory = "memory"
	Env    = "env"
)

// Bounds of what a vault takes.
const (
	MinValue = 8        // bytes: what is shorter would be masked everywhere
	MaxValue = 64 << 10 // bytes
	maxKey   = 128
	maxKeys  = 100       // of a namespace
	maxBytes = 128 << 10 // of all values of a namespace: a program's environment has to hold them
)

// Action is what the record calls every access.
const Action = "vault_access"

// Config is what a vault is made of.
type Config struct {
	Kind       string // empty: Sealed
	Keyring    bool   // the key of a sealed vault is in the keyring and not in a file
	Store      *store.Store
	Audit      *audit.Log
	Volatile   bool                          // the store ends with this process
	Env        []string                      // KEY=value: where Env takes its secrets, and Keyring finds the desktop
	Namespaces []sandboxmcp.Namespace        // which are known to be in use; for Env
	Check      func(key, value string) error // what else a secret may not be; nil: nothing
	Now        func() time.Time              // nil: the machine's clock
}

// Vault holds secrets. Its methods may be called concurrently.
type Vault struct {
	cfg Config
	key *keys // of a sealed one

	adding sync.Mutex // held while a secret in memory is put in or taken out

	mu     sync.Mutex
	memory map[sandboxmcp.Namespace]*Set    // of one in memory, or what was found in the environment
	last   int64                            // version in memory
	cache  map[sandboxmcp.Namespace]*looked // of a sealed one
}

// Set is what a namespace has at a time. It does not change.
type Set struct {
	Items []Item // by key
}

// Item is a secret.
type Item struct {
	Key     string
	Value   sandboxmcp.Secret
	Version int64 // another one for each value that is set
	created time.Time
	expires time.Time // zero: never
}

// Open makes a vault. It reads no key and unseals nothing; the variables of one of
// the kind Env are checked.
func Open(cfg Config) (*Vault, error) {
	if cfg.Kind == "" {
		cfg.Kind = Sealed
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Check == nil {
		cfg.Check = func(string, string) error { return nil }
	}
	v := &Vault{cfg: cfg, memory: map[sandboxmcp.Namespace]*Set{}, cache: map[sandboxmcp.Namespace]*looked{}}
	switch cfg.Kind {
	case Env:
		for _, ns := range cfg.Namespaces {
			if _, err := v.inEnv(ns); err != nil {
				return nil, err
			}
		}
	case Sealed:
		v.key = newKeys(cfg)
	}
	return v, nil
}

// Kind is the vault's kind.
func (v *Vault) Kind() string { return v.cfg.Kind }

// check refuses what cannot be a secret, with invalid_argument. The message has
// the key and never the value.
func (v *Vault) check(key, value string) error {
	bad := func(format string, args ...any) error {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, format, args...)
	}
	if !plainKey(key) {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the key %s is not of the form [A-Za-z_][A-Za-z0-9_]* with at most %d characters", sandboxmcp.Quote(key), maxKey)
	}
	switch {
	case denied(key):
		return bad("%s may not be a secret: a variable of this name steers programs", key)
	case len(value) < MinValue:
		return bad("the value of %s has %d bytes; it needs %d, because a shorter one would be masked everywhere", key, len(value), MinValue)
	case len(value) > MaxValue:
		return bad("the value of %s has %d bytes; %d are allowed", key, len(value), MaxValue)
	case strings.ContainsRune(value, 0):
		return bad("the value of %s has a NUL in it, which no environment can hold", key)
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

// denied tells the names that steer programs. Config.Check may know more.
func denied(key string) bool {
	k := strings.ToUpper(key)
	for _, p := range []string{"LD_", "PYTHON", "GIT_"} {
		if strings.HasPrefix(k, p) {
			return true
		}
	}
	return strings.HasSuffix(k, "_PROXY") || slices.Contains([]string{"PATH", "HOME", "BASH_ENV", "NODE_OPTIONS"}, k)
}

// Add puts a secret in, in place of one of the same key. It takes effect with the
// next run.
func (v *Vault) Add(ctx context.Context, c sandboxmcp.Caller, s sandboxmcp.SecretSpec) error {
	if err := v.check(s.Key, s.Value.Reveal()); err != nil {
		return err
	}
	if s.TTL < 0 {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "a secret cannot live for %s", s.TTL)
	}
	switch v.cfg.Kind {
	case Memory:
		return v.addMemory(ctx, c, s)
	case Env:
		return envError()
	}
	return v.addSealed(ctx, c, s)
}

// Delete takes a secret out. One that is not there is not_found.
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

// List tells which secrets a namespace has. Not nil.
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

// Current is what a namespace has now, for who masks. Nothing of it is to be given
// to a program: that is Use.
func (v *Vault) Current(ctx context.Context, ns sandboxmcp.Namespace) (*Set, error) {
	_, open, err := v.look(ctx, v.cfg.Store.DB(), ns)
	if err != nil {
		return nil, err
	}
	return open()
}

// Use is the step that looks which secrets a namespace has, and writes down that a
// run gets some of them: it stands in the transaction of the run's intent. record
// is told the keys and makes the entry; nil: the run gets none. Its error fails the
// transaction. Once the step has been committed, the function that it comes with
// gives the set.
func (v *Vault) Use(ns sandboxmcp.Namespace, record func(keys []string) (*sandboxmcp.AuditEntry, error)) (store.Op, func() (*Set, error)) {
	opened := func() (*Set, error) { return nil, unavailable("its step was not done", nil) }
	op := func(ctx context.Context, tx *sql.Tx) error {
		items, open, err := v.look(ctx, tx, ns)
		if err != nil {
			return err
		}
		opened = open
		keys := make([]string, len(items))
		for i := range items {
			keys[i] = items[i].Key
		}
		e, err := record(keys)
		if err != nil || e == nil {
			return err
		}
		return v.cfg.Audit.Op(e)(ctx, tx)
	}
	return op, func() (*Set, error) { return opened() }
}

// look finds the secrets of a namespace, without their values; open gives those.
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

// entry is what the record has of an access.
func (v *Vault) entry(c sandboxmcp.Caller, verb string, keys ...string) *sandboxmcp.AuditEntry {
	return &sandboxmcp.AuditEntry{
		Action: Action, Phase: sandboxmcp.PhaseOutcome, Namespace: c.Namespace, Actor: c.Actor,
		Detail: Detail(verb, keys), Metadata: map[string]any{"keys": keys, "vault": v.cfg.Kind},
	}
}

// Detail is what an access is called in the record: what was done, and the keys as
// far as a line holds them.
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

// sorted is a set of items, those that have expired left out.
func (v *Vault) sorted(items []Item) *Set {
	now := v.cfg.Now()
	items = slices.DeleteFunc(slices.Clone(items), func(i Item) bool { return !i.expires.IsZero() && !i.expires.After(now) })
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Key, b.Key) })
	return &Set{Items: items}
}
