//go:build !linux

package docker

import "github.com/sandboxmcp/sandboxmcp/backend"

// limitGroup is the engine's control group of a container, which this system does not see.
type limitGroup struct{}

func limit(Config, string, int, backend.Spec) (limitGroup, error) { return limitGroup{}, nil }

func (limitGroup) held() (walls, weak []string) { return nil, nil }
func (limitGroup) read() bool                   { return false }
func (limitGroup) usage() backend.Usage         { return backend.Usage{} }
func (limitGroup) ended() bool                  { return false }
func (limitGroup) lift() error                  { return nil }
func (limitGroup) restore() error               { return nil }
func (limitGroup) close() error                 { return nil }
