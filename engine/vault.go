package engine

import (
	"context"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

// openVault makes the vault; it opens nothing of it.
func (e *Engine) openVault() (err error) {
	cfg := e.cfg
	e.vault, err = vault.Open(vault.Config{
		Kind: cfg.Vault, Keyring: cfg.VaultKeyring, Store: e.store, Audit: e.audit, Volatile: cfg.SQLitePath == store.MemoryPath,
		Env: cfg.VaultEnv, Namespaces: append([]sandboxmcp.Namespace{cfg.Namespace}, cfg.Namespaces...), Check: checkSecret, Now: cfg.Now,
	})
	return err
}

// checkSecret refuses what no program could be given, and what no mask could hide.
func checkSecret(key, value string) error {
	if err := kernel.CheckEnv(map[string]string{key: ""}); err != nil {
		return err
	}
	if redact.Masks(value) {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the value of %s is a part of what stands in place of secrets", key).WithHint("use another value")
	}
	return nil
}

// namespacesOf are the namespaces that the settings name.
func namespacesOf(c *config.Config) []sandboxmcp.Namespace {
	var all []sandboxmcp.Namespace
	for _, k := range c.APIKeys {
		all = append(all, k.Namespaces...)
	}
	return all
}

// VaultAdd puts a secret into a namespace, in place of one of the same key. Every
// run of the namespace that begins afterwards, in any process that shares a sealed
// vault, has it as an environment variable, and masked in all that it shows. With a
// ttl of more than 0 it goes by itself. A key or value that cannot be a secret is
// invalid_argument.
func (e *Engine) VaultAdd(ctx context.Context, ns sandboxmcp.Namespace, key string, value sandboxmcp.Secret, ttl time.Duration) error {
	return e.AddSecret(ctx, sandboxmcp.Caller{Namespace: ns}, sandboxmcp.SecretSpec{Key: key, Value: value, TTL: ttl})
}

// AddSecret puts a secret into the caller's namespace; see VaultAdd.
func (e *Engine) AddSecret(ctx context.Context, c sandboxmcp.Caller, s sandboxmcp.SecretSpec) error {
	c, err := e.caller(c)
	if err != nil {
		return err
	}
	if err := e.vault.Add(ctx, c, s); err != nil {
		return err
	}
	e.tellSecrets(c.Namespace, "add", []string{s.Key}, map[string]any{})
	return nil
}

// DeleteSecret takes a secret out of a namespace. One that is not there is
// not_found. A session that has had it goes on masking it.
func (e *Engine) DeleteSecret(ctx context.Context, c sandboxmcp.Caller, key string) error {
	c, err := e.caller(c)
	if err != nil {
		return err
	}
	if err := e.vault.Delete(ctx, c, key); err != nil {
		return err
	}
	e.tellSecrets(c.Namespace, "delete", []string{key}, map[string]any{})
	return nil
}

// Secrets lists the secrets of the namespace, never a value.
func (e *Engine) Secrets(ctx context.Context, c sandboxmcp.Caller) (sandboxmcp.VaultList, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.VaultList{}, err
	}
	list, err := e.vault.List(ctx, c.Namespace)
	return sandboxmcp.VaultList{Kind: e.vault.Kind(), Secrets: list}, err
}

// RotateVault makes a new key for the sealed vault, and seals every secret of the
// state directory for it. It tells how many those are.
func (e *Engine) RotateVault(ctx context.Context, c sandboxmcp.Caller) (int, error) {
	c, err := e.caller(c)
	if err != nil {
		return 0, err
	}
	return e.vault.Rotate(ctx, c)
}

// inspectVault tells the keys of a namespace, and which variables they become.
func (e *Engine) inspectVault(ctx context.Context, st *sandboxmcp.State) error {
	list, err := e.vault.List(ctx, st.Namespace)
	if err != nil {
		return err
	}
	for _, s := range list {
		st.VaultKeys = append(st.VaultKeys, s.Key)
		if e.cfg.VaultInject == injectAll {
			st.Env[s.Key] = redact.Mask
		}
	}
	return nil
}
