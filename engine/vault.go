package engine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/event"
	"github.com/sandboxmcp/sandboxmcp/internal/guard"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

// openVault makes the vault and the guard over it. Secrets stay sealed until they are used.
func (e *Engine) openVault(ctx context.Context) (err error) {
	cfg := e.cfg
	shared := cfg.Postgres != "" && !cfg.VaultKeyring
	e.vault, err = vault.Open(vault.Config{
		Kind: cfg.Vault, Keyring: cfg.VaultKeyring, Given: shared && cfg.KeysFrom != "", Store: e.store, Audit: e.audit, Volatile: cfg.SQLitePath == store.MemoryPath,
		Env: cfg.VaultEnv, Namespaces: cfg.namespaces(), Check: guard.CheckSecret, Now: cfg.Now, Logger: cfg.Logger,
	})
	if err == nil && shared {
		if unready := e.vault.Prepare(ctx); unready != nil { // calls that need a secret fail with this error
			e.log.Error("make the key of the vault", "error", unready)
		}
	}
	e.guard = guard.New(guard.Config{Vault: e.vault, Inject: cfg.VaultInject, PII: cfg.RedactPII, AllowFiles: cfg.AllowSecretArtifacts})
	return err
}

// namespaces returns the namespaces that are known to be in use.
func (c *Config) namespaces() []sandboxmcp.Namespace {
	return append([]sandboxmcp.Namespace{c.Namespace}, c.Namespaces...)
}

// VaultAdd adds a secret to a namespace, or replaces the one with that key. Every later
// run of the namespace, in any process that shares a sealed vault, sees it as an
// environment variable; it is masked in output. With a ttl above 0 it is removed after
// that time. It fails with invalid_argument for a key or value that cannot be a secret.
func (e *Engine) VaultAdd(ctx context.Context, ns sandboxmcp.Namespace, key string, value sandboxmcp.Secret, ttl time.Duration) error {
	return e.AddSecret(ctx, sandboxmcp.Caller{Namespace: ns}, sandboxmcp.SecretSpec{Key: key, Value: value, TTL: ttl})
}

// AddSecret adds a secret to the caller's namespace; see VaultAdd.
func (e *Engine) AddSecret(ctx context.Context, c sandboxmcp.Caller, s sandboxmcp.SecretSpec) error {
	c, err := e.caller(c)
	if err != nil {
		return err
	}
	if err := e.vault.Add(ctx, c, s); err != nil {
		return err
	}
	e.events.Emit(event.Secrets(c.Namespace, "add", []string{s.Key}))
	return nil
}

// DeleteSecret deletes a secret of the namespace. It fails with not_found if there is
// none. Sessions whose programs have had it go on masking it.
func (e *Engine) DeleteSecret(ctx context.Context, c sandboxmcp.Caller, key string) error {
	c, err := e.caller(c)
	if err != nil {
		return err
	}
	if err := e.vault.Delete(ctx, c, key); err != nil {
		return err
	}
	e.events.Emit(event.Secrets(c.Namespace, "delete", []string{key}))
	return nil
}

// Secrets lists the secrets of the namespace without their values.
func (e *Engine) Secrets(ctx context.Context, c sandboxmcp.Caller) (sandboxmcp.VaultList, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.VaultList{}, err
	}
	list, err := e.vault.List(ctx, c.Namespace)
	return sandboxmcp.VaultList{Kind: e.vault.Kind(), Secrets: list}, err
}

// RotateVault makes a new key for the sealed vault and seals every secret of the state
// directory with it. It returns how many secrets there are. It refuses to replace a key that
// KeysFrom has: the new one would be in this state directory alone. The other servers could not
// read the secrets, and no server could start.
func (e *Engine) RotateVault(ctx context.Context, c sandboxmcp.Caller) (int, error) {
	c, err := e.caller(c)
	if err != nil {
		return 0, err
	}
	if e.cfg.KeysFrom != "" {
		if _, err = os.Stat(filepath.Join(e.cfg.KeysFrom, vault.KeyFile)); !errors.Is(err, fs.ErrNotExist) {
			return 0, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the key of the vault is the one in keys_from, and a new one would be in this state directory alone").WithCause(err).
				WithHint("end every server, rotate without keys_from, and put the new vault.key into that directory before they start again")
		}
	}
	return e.vault.Rotate(ctx, c)
}

// inspectVault adds to st the keys of a namespace's secrets and the variables that they
// become.
func (e *Engine) inspectVault(ctx context.Context, st *sandboxmcp.State) error {
	list, err := e.vault.List(ctx, st.Namespace)
	if err != nil {
		return err
	}
	for _, s := range list {
		st.VaultKeys = append(st.VaultKeys, s.Key)
		if e.cfg.VaultInject == guard.InjectAll {
			st.Env[s.Key] = redact.Mask
		}
	}
	return nil
}
