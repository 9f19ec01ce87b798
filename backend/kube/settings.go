package kube

import (
	"log/slog"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// FromSettings returns the backend of settings. It holds nothing before it is used.
func FromSettings(c *config.Config, logger *slog.Logger) backend.Backend {
	k := c.Kube
	cfg := Config{
		Namespace: k.Namespace, Kubeconfig: k.Config, Context: k.Context, Image: k.Image, Pool: k.Pool, SparePods: k.SparePods, MostSpares: k.MostSpares, RuntimeClass: k.RuntimeClass,
		OwnUsers: !k.HostUsers, KeyFile: k.KeyFile, Canary: k.Canary, MinTier: c.IsolationMin, Idle: c.DefaultBackend != Name, Logger: logger,
	}
	if k.Connect != "auto" {
		cfg.Connect = k.Connect
	}
	return New(cfg)
}
