package app

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// How often --follow looks for new entries, and every how many looks for servers
// that keep their record in memory.
const (
	followEvery = 250 * time.Millisecond
	followPeers = 8
)

// Record is a record: that of the state directory, or of a server's memory.
type Record struct {
	server *api.Client // nil: the state directory's
	cfg    *config.Config
}

// Name is the id of the server; empty: it is the state directory's.
func (s Record) Name() string {
	if s.server == nil {
		return ""
	}
	return s.server.Peer().ID
}

// List returns what the record has of a query.
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

// lookAt opens the database of the state directory for reading; nil when there
// is none.
func lookAt(ctx context.Context, cfg *config.Config) (*store.View, error) {
	v, err := store.Look(ctx, store.Config{Dir: cfg.StateDir, SQLitePath: cfg.SQLitePath})
	if v == nil || err != nil || v.Current() {
		return v, err
	}
	_ = v.Close()
	return nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the database of %s is of an older release", sandboxmcp.Quote(cfg.StateDir)).
		WithHint("a server that is started, or any `sandboxmcp run`, brings it up to date")
}

// Records are the records that the settings and the running servers have.
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

// ReadRecords is what all records have of a query, and behind which entry each of
// them goes on.
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

// RecordReport is what became of the check of the state directory's record, and
// of those in the memory of running servers.
type RecordReport struct {
	sandboxmcp.AuditReport

	Servers []ServerReport `json:"servers,omitempty"`
}

// ServerReport is what a running server says of the record in its memory.
type ServerReport struct {
	sandboxmcp.AuditReport

	Server string `json:"server"`
}

// VerifyRecords checks all of [App.Records]. Key returns the public key that the checkpoints
// are signed with, or nil if there is none yet.
func (a *App) VerifyRecords(ctx context.Context, cfg *config.Config, key func() (ed25519.PublicKey, error)) (doc RecordReport, err error) {
	sources := a.Records(ctx, cfg)
	if len(sources) == 0 {
		return doc, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "the record is kept in memory, and no server is running").
			WithHint("ask while the server runs, or keep the record on disk (audit: sqlite)")
	}
	doc.OK = true
	for _, s := range sources {
		if s.server == nil {
			if doc.AuditReport, err = verifyHere(ctx, cfg, key); err != nil {
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
	if sources[0].server != nil { // there is no other
		doc.AuditReport = doc.Servers[0].AuditReport
		for _, s := range doc.Servers {
			doc.OK = doc.OK && s.OK
		}
	}
	return doc, nil
}

// verifyHere checks the record of the state directory, without changing anything
// in there.
func verifyHere(ctx context.Context, cfg *config.Config, key func() (ed25519.PublicKey, error)) (rep sandboxmcp.AuditReport, err error) {
	with := audit.Evidence{
		HeadFile:       audit.HeadFile(cfg.StateDir, store.Path(store.Config{Dir: cfg.StateDir, SQLitePath: cfg.SQLitePath})),
		CheckpointFile: cfg.AuditCheckpointFile,
	}
	public, err := key()
	if err != nil {
		return rep, err
	}
	if public != nil {
		with.Key = sign.KeyID(public)
		with.Open = func(note string) (string, error) { return sign.OpenNote(public, note) }
	}
	v, err := lookAt(ctx, cfg)
	if err != nil {
		return rep, err
	}
	if v == nil {
		return audit.Verify(ctx, nil, with)
	}
	defer func() { _ = v.Close() }()
	return audit.Verify(ctx, v.DB(), with)
}

// FollowRecords hands to show the entries of a query, oldest first, and then those that
// come, until ctx ends.
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
