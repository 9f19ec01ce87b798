package app

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// Kinds of vaults whose secrets exist only in a running server.
const (
	VaultMemory = "memory"
	VaultEnv    = "env"
)

// AddSecret adds a secret to the configured vault: in the state directory, or in the memory
// of the one running server that has such a vault.
func (a *App) AddSecret(ctx context.Context, cfg *config.Config, p Place, s sandboxmcp.SecretSpec) error {
	if cfg.Vault == VaultMemory {
		c, err := a.memoryVault(ctx, cfg, p)
		if err != nil {
			return err
		}
		return c.AddSecret(ctx, Me(cfg), s)
	}
	if err := p.unused(cfg); err != nil {
		return err
	}
	err := a.WithEngine(ctx, cfg, func(e Engine) error { return e.AddSecret(ctx, Me(cfg), s) })
	if err == nil {
		a.tellOthers(ctx, cfg)
	}
	return err
}

// unused fails if --server is given for a vault that all servers share.
func (p Place) unused(cfg *config.Config) error {
	if p.Server == "" {
		return nil
	}
	return Usage("--server is only for a vault in memory; all servers share this one, of kind " + cfg.Vault)
}

// vaultsOf returns the running servers whose vault kind satisfies is, and their secrets.
func (a *App) vaultsOf(ctx context.Context, cfg *config.Config, p Place, is func(kind string) bool) ([]*api.Client, []sandboxmcp.VaultList, error) {
	peers, err := a.Servers(ctx, cfg, p)
	if err != nil {
		return nil, nil, err
	}
	var some []*api.Client
	var lists []sandboxmcp.VaultList
	for _, c := range peers {
		l, err := c.Secrets(ctx, Me(cfg))
		switch {
		case err != nil:
			a.Say("server " + c.Peer().ID + ": " + err.Error())
		case is(l.Kind):
			some, lists = append(some, c), append(lists, l)
		}
	}
	return some, lists, nil
}

// memoryVault finds the one server with a vault in memory.
func (a *App) memoryVault(ctx context.Context, cfg *config.Config, p Place) (*api.Client, error) {
	some, _, err := a.vaultsOf(ctx, cfg, p, func(kind string) bool { return kind == VaultMemory })
	switch {
	case err != nil:
		return nil, err
	case len(some) == 0:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeVaultUnavailable, "the vault is in the memory of a server, and no running server has one").
			WithHint("start a server with SANDBOXMCP_VAULT=memory, or unset it to keep secrets encrypted in the state directory")
	case len(some) > 1:
		names := make([]string, 0, len(some))
		for _, c := range some {
			names = append(names, c.Peer().ID)
		}
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%d servers have a vault in their memory: %s", len(some), strings.Join(names, ", ")).
			WithHint("pick one with --server").With("servers", names)
	}
	return some[0], nil
}

// tellOthers prints which running servers do not use the secrets of the state directory.
func (a *App) tellOthers(ctx context.Context, cfg *config.Config) {
	some, lists, err := a.vaultsOf(ctx, cfg, Place{}, func(kind string) bool { return kind != cfg.Vault })
	if err != nil {
		return
	}
	for i, c := range some {
		a.Say("server " + c.Peer().ID + " does not see it: its secrets are kept as " + lists[i].Kind)
	}
}

// tellUnread warns that secrets in environment variables are ignored.
func (a *App) tellUnread(cfg *config.Config, logger *slog.Logger) {
	isSecret := func(kv string) bool { return strings.HasPrefix(kv, "SANDBOXMCP_SECRET_") }
	if cfg.Vault != VaultEnv && slices.ContainsFunc(a.Env, isSecret) {
		logger.Warn("variables SANDBOXMCP_SECRET_... are ignored: set SANDBOXMCP_VAULT=env to use them", "vault", cfg.Vault)
	}
}

// Secrets lists the secrets of running servers that have their own, or else those of the
// state directory or of this process's environment.
func (a *App) Secrets(ctx context.Context, cfg *config.Config, p Place) ([]sandboxmcp.SecretInfo, error) {
	all := []sandboxmcp.SecretInfo{}
	if cfg.Vault == VaultMemory || cfg.Vault == VaultEnv {
		some, lists, err := a.vaultsOf(ctx, cfg, p, func(kind string) bool { return kind == cfg.Vault })
		if err != nil {
			return nil, err
		}
		for _, l := range lists {
			all = append(all, l.Secrets...)
		}
		if len(some) > 0 || cfg.Vault == VaultMemory {
			slices.SortStableFunc(all, func(a, b sandboxmcp.SecretInfo) int { return strings.Compare(a.Key, b.Key) })
			return slices.CompactFunc(all, func(a, b sandboxmcp.SecretInfo) bool { return a.Key == b.Key }), nil
		}
	} else if err := p.unused(cfg); err != nil {
		return nil, err
	}
	err := a.WithEngine(ctx, cfg, func(e Engine) error {
		l, err := e.Secrets(ctx, Me(cfg))
		all = l.Secrets
		return err
	})
	return all, err
}

// DeleteSecret deletes a secret from the vault that [App.AddSecret] uses.
func (a *App) DeleteSecret(ctx context.Context, cfg *config.Config, p Place, key string) error {
	if cfg.Vault != VaultMemory {
		if err := p.unused(cfg); err != nil {
			return err
		}
		return a.WithEngine(ctx, cfg, func(e Engine) error { return e.DeleteSecret(ctx, Me(cfg), key) })
	}
	c, err := a.memoryVault(ctx, cfg, p)
	if err != nil {
		return err
	}
	return c.DeleteSecret(ctx, Me(cfg), key)
}
