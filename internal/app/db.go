package app

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Schema describes a database: its kind and the version of its tables.
type Schema struct {
	Database string `json:"database"` // without password
	Version  int    `json:"version"`  // 0: it has no tables yet
	Newest   int    `json:"newest"`   // the newest version that this release knows
}

// Current reports whether nothing has to be migrated.
func (s Schema) Current() bool { return s.Version == s.Newest }

// CheckDatabase reads the version of the database's tables and changes nothing.
func CheckDatabase(ctx context.Context, cfg *config.Config) (s Schema, err error) {
	at := storeOf(cfg)
	s.Database, s.Newest = store.Name(ctx, at), store.Newest(at)
	v, err := store.Look(ctx, at)
	if v == nil || err != nil {
		return s, err
	}
	s.Version = v.Version()
	return s, v.Close()
}

// MigrateDatabase makes the database's tables, or brings them to the newest version.
func MigrateDatabase(ctx context.Context, cfg *config.Config) (before, after Schema, err error) {
	if before, err = CheckDatabase(ctx, cfg); err != nil {
		return before, after, err
	}
	if err = prepareState(ctx, cfg); err != nil {
		return before, after, err
	}
	after, err = CheckDatabase(ctx, cfg)
	return before, after, err
}
