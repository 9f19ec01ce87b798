package app

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/installed"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/vault"
)

// followEvery is the interval at which --follow reads new entries. Every followPeers
// reads it also searches for servers that keep their audit log in memory.
const (
	followEvery = 250 * time.Millisecond
	followPeers = 8
)

// Record is an audit log, either in the state directory or in a server's memory.
type Record struct {
	server *api.Client // nil: the audit log of the state directory
	cfg    *config.Config
}

// Name returns the id of the server; it is empty for the state directory.
func (s Record) Name() string {
	if s.server == nil {
		return ""
	}
	return s.server.Peer().ID
}

// List returns the entries that match a query.
func (s Record) List(ctx context.Context, q sandboxmcp.AuditQuery) (page sandboxmcp.AuditPage, err error) {
	if s.server != nil {
		return s.server.Audit(ctx, Me(s.cfg), q)
	}
	v, err := lookAt(ctx, s.cfg)
	if v == nil || err != nil {
		return sandboxmcp.AuditPage{Entries: []sandboxmcp.AuditEntry{}, Head: audit.EmptyHead()}, err
	}
	defer func() { _ = v.Close() }()
	return audit.List(ctx, v.DB(), s.cfg.Namespace, q)
}

// storeOf returns the settings of the database that is kept on disk or on a server.
func storeOf(cfg *config.Config) store.Config {
	key := func() (audit.Signer, error) { return sign.Read(cfg.StateDir) }
	return store.Config{Dir: cfg.StateDir, SQLitePath: cfg.SQLitePath, Postgres: cfg.DatabaseURL.Reveal(), Notes: store.Makers(audit.Notes(key), artifact.Notes()), NotesKey: audit.NotesKey(key)}
}

// lookAt opens the database of the state directory for reading. It returns nil if the
// database does not exist.
func lookAt(ctx context.Context, cfg *config.Config) (*store.View, error) {
	v, err := store.Look(ctx, storeOf(cfg))
	if v == nil || err != nil || v.Current() {
		return v, err
	}
	_ = v.Close()
	return nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the database of %s is of an older release", sandboxmcp.Quote(cfg.StateDir)).
		WithHint("start a server, or use `sandboxmcp run` once, to update it")
}

// Records returns the audit logs of the state directory and of running servers that keep
// theirs in memory.
func (a *App) Records(ctx context.Context, cfg *config.Config) []Record {
	var all []Record
	if cfg.Audit != "memory" {
		all = append(all, Record{cfg: cfg})
	}
	peers, err := api.Peers(ctx, cfg.StateDir)
	if err != nil {
		a.Say(err.Error())
	}
	for _, p := range peers {
		if p.Peer().AuditInMemory {
			all = append(all, Record{cfg: cfg, server: p})
		}
	}
	return all
}

// ReadRecords queries all audit logs. It also returns the Seq of the last entry read from
// each, after which the next read continues.
func (a *App) ReadRecords(ctx context.Context, sources []Record, q sandboxmcp.AuditQuery) (sandboxmcp.AuditPage, map[string]int64, error) {
	sum, ends := sandboxmcp.AuditPage{Entries: []sandboxmcp.AuditEntry{}, Head: audit.EmptyHead()}, map[string]int64{}
	for i, s := range sources {
		page, err := s.List(ctx, q)
		if err != nil && s.server != nil {
			a.Say("server " + s.Name() + " does not answer: " + err.Error())
			continue
		}
		if err != nil {
			return sum, nil, err
		}
		if i == 0 {
			sum.Head = page.Head
		}
		if len(page.Entries) > 0 {
			ends[s.Name()] = page.Entries[0].Seq
		}
		sum.Entries, sum.Total = append(sum.Entries, page.Entries...), sum.Total+page.Total
	}
	slices.SortStableFunc(sum.Entries, func(x, y sandboxmcp.AuditEntry) int { return y.Timestamp.Compare(x.Timestamp) })
	sum.Entries = sum.Entries[:min(len(sum.Entries), q.Limit)]
	return sum, ends, nil
}

// RecordReport is the result of verifying the audit log of the state directory and those
// in the memory of running servers.
type RecordReport struct {
	sandboxmcp.AuditReport

	Servers []ServerReport `json:"servers,omitempty"`
}

// ServerReport is a running server's report on the audit log in its memory.
type ServerReport struct {
	sandboxmcp.AuditReport

	Server string `json:"server"`
}

// VerifyRecords verifies all of [App.Records]. key returns the public key of the
// checkpoints, or nil if there is none yet.
func (a *App) VerifyRecords(ctx context.Context, cfg *config.Config, key func() (ed25519.PublicKey, error)) (doc RecordReport, err error) {
	sources := a.Records(ctx, cfg)
	if len(sources) == 0 {
		return doc, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "the audit log is kept in memory, and no server is running").
			WithHint("run this while the server runs, or keep the audit log on disk (audit: sqlite)")
	}
	doc.OK = true
	for _, s := range sources {
		if s.server == nil {
			if doc.AuditReport, err = a.verifyHere(ctx, cfg, key); err != nil {
				return doc, err
			}
			continue
		}
		rep, err := s.server.VerifyAudit(ctx, Everyone())
		if err != nil {
			return doc, fmt.Errorf("server %s: %w", s.Name(), err)
		}
		doc.Servers, doc.OK = append(doc.Servers, ServerReport{rep, s.Name()}), doc.OK && rep.OK
	}
	if sources[0].server != nil { // the state directory has no audit log
		doc.AuditReport = doc.Servers[0].AuditReport
		for _, s := range doc.Servers {
			doc.OK = doc.OK && s.OK
		}
	}
	return doc, nil
}

// verifyHere verifies the audit log of the state directory without changing anything
// there.
func (a *App) verifyHere(ctx context.Context, cfg *config.Config, key func() (ed25519.PublicKey, error)) (rep sandboxmcp.AuditReport, err error) {
	with := audit.Evidence{
		HeadFile:       audit.HeadFile(cfg.StateDir, store.Path(storeOf(cfg))),
		CheckpointFile: cfg.AuditCheckpointFile,
	}
	public, err := key()
	if err != nil {
		return rep, err
	}
	if public != nil {
		with.Key = sign.KeyID(public)
		with.Open = func(note string) (string, error) { return sign.OpenNote(public, note) }
		// A reader without the private key checks the public part.
		if own, failed := sign.Read(cfg.StateDir); failed == nil && own.Public().Equal(public) {
			with.Signer = own
			with.Rows = audit.Keyed(own.Derive, installed.Faults, gate.Faults)
		}
	}
	v, err := lookAt(ctx, cfg)
	if err != nil {
		return rep, err
	}
	if v == nil {
		return audit.Verify(ctx, nil, with)
	}
	defer func() { _ = v.Close() }()
	with.Schema = v.Differences
	with.Rows = append(with.Rows, func(ctx context.Context, db store.Querier) ([]string, error) {
		return vault.Faults(ctx, db, cfg.StateDir, vault.Config{Kind: cfg.Vault, Keyring: cfg.VaultKey == "keyring", Env: a.Env})
	})
	return audit.Verify(ctx, v.DB(), with)
}

// FollowRecords passes the entries of a query to show, oldest first, and then new ones
// until ctx ends.
func (a *App) FollowRecords(ctx context.Context, cfg *config.Config, q sandboxmcp.AuditQuery, show func([]sandboxmcp.AuditEntry)) error {
	sources := a.Records(ctx, cfg)
	page, seen, err := a.ReadRecords(ctx, sources, q)
	if err != nil {
		return err
	}
	slices.Reverse(page.Entries)
	show(page.Entries)
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if n%followPeers == 0 {
			sources = a.Records(ctx, cfg)
		}
		for _, s := range sources {
			next := q
			next.After, next.OldestFirst, next.Limit = seen[s.Name()], true, audit.MaxLimit
			page, err := s.List(ctx, next)
			if err != nil && s.server == nil && ctx.Err() == nil {
				return err
			}
			show(page.Entries)
			if k := len(page.Entries); k > 0 {
				seen[s.Name()] = page.Entries[k-1].Seq
			}
		}
	}
}
