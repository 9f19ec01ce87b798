package cli

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// How often --follow looks for new entries, and every how many looks for servers
// that keep their record in memory.
const (
	followEvery = 250 * time.Millisecond
	followPeers = 8
)

type auditOptions struct {
	namespace, action, since string
	limit                    int
	follow                   bool
}

func (a *app) auditCommand() *cobra.Command {
	o := &auditOptions{}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show the record of what was done",
		Long: `Shows the newest entries of the audit record of a namespace, newest first: what
was about to be done (intent) and what came of it (outcome), by whom, with sizes
and hashes and never with code, output or secrets. The record is that of the state
directory, and those that running servers keep in memory. --follow prints what
comes from now on as well, oldest first, one a line, until it is ended.`,
		Example: `  sandboxmcp audit --limit 20
  sandboxmcp audit --action execute --since 2h --json
  sandboxmcp audit --follow`,
		Args: takes(),
	}
	f := cmd.Flags()
	f.StringVar(&o.namespace, "namespace", "", "show the namespace `NAME`")
	f.StringVar(&o.action, "action", "", "only entries of this `ACTION`")
	f.StringVar(&o.since, "since", "", "only entries from `TIME` on: 2026-01-31, 2026-01-31T09:00:00Z, or 90m for so long ago")
	f.IntVar(&o.limit, "limit", audit.DefaultLimit, "at most `N` entries, up to 1000")
	f.BoolVarP(&o.follow, "follow", "f", false, "print new entries as they come")
	a.withConfig(a.withJSON(cmd))
	a.does(cmd, func(ctx context.Context, _ []string) error {
		cfg, q, err := a.auditQuery(cmd.Flags().Changed, o)
		if err != nil {
			return err
		}
		if o.follow {
			return a.followAudit(ctx, cfg, q)
		}
		page, _, err := a.readAudit(ctx, a.auditSources(ctx, cfg), q)
		if err != nil {
			return err
		}
		if a.json {
			a.printJSON(page)
			return nil
		}
		a.showAudit(page)
		return nil
	})
	cmd.AddCommand(a.auditVerifyCommand())
	return cmd
}

func (a *app) auditQuery(given func(string) bool, o *auditOptions) (*config.Config, sandboxmcp.AuditQuery, error) {
	q := sandboxmcp.AuditQuery{Action: o.action, Limit: o.limit}
	cfg, err := a.load()
	if err != nil {
		return nil, q, err
	}
	if given("namespace") {
		if cfg.Namespace, err = sandboxmcp.ParseNamespace(o.namespace); err != nil {
			return nil, q, err
		}
	}
	if o.limit < 1 || o.limit > audit.MaxLimit {
		return nil, q, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "--limit is %d; it is 1 to %d", o.limit, audit.MaxLimit).
			WithHint("ask for fewer entries, or use --follow")
	}
	if given("since") {
		if q.Since, err = since(o.since, time.Now()); err != nil {
			return nil, q, err
		}
	}
	return cfg, q, nil
}

// since reads a time, or how long ago it was.
func since(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "--since is %s, which is no time", sandboxmcp.Quote(text)).
		WithHint("give 2026-01-31, 2026-01-31T09:00:00Z, or 90m for so long ago")
}

// auditSource is a record: that of the state directory, or of a server's memory.
type auditSource struct {
	server *api.Client // nil: the state directory's
	cfg    *config.Config
}

func (s auditSource) name() string {
	if s.server == nil {
		return ""
	}
	return s.server.Peer().ID
}

func (s auditSource) list(ctx context.Context, q sandboxmcp.AuditQuery) (page sandboxmcp.AuditPage, err error) {
	if s.server != nil {
		return s.server.Audit(ctx, me(s.cfg), q)
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

// auditSources are the records that the settings and the running servers have.
func (a *app) auditSources(ctx context.Context, cfg *config.Config) []auditSource {
	var all []auditSource
	if cfg.Audit != "memory" {
		all = append(all, auditSource{cfg: cfg})
	}
	peers, err := api.Peers(ctx, cfg.StateDir)
	if err != nil {
		a.say(err.Error())
	}
	for _, p := range peers {
		if p.Peer().AuditInMemory {
			all = append(all, auditSource{cfg: cfg, server: p})
		}
	}
	return all
}

// readAudit is what all records have of a query, and behind which entry each of
// them goes on.
func (a *app) readAudit(ctx context.Context, sources []auditSource, q sandboxmcp.AuditQuery) (sandboxmcp.AuditPage, map[string]int64, error) {
	sum, ends := sandboxmcp.AuditPage{Entries: []sandboxmcp.AuditEntry{}, Head: audit.EmptyHead()}, map[string]int64{}
	for i, s := range sources {
		page, err := s.list(ctx, q)
		if err != nil && s.server != nil {
			a.say("server " + s.name() + " does not answer: " + err.Error())
			continue
		}
		if err != nil {
			return sum, nil, err
		}
		if i == 0 {
			sum.Head = page.Head
		}
		if len(page.Entries) > 0 {
			ends[s.name()] = page.Entries[0].Seq
		}
		sum.Entries, sum.Total = append(sum.Entries, page.Entries...), sum.Total+page.Total
	}
	slices.SortStableFunc(sum.Entries, func(x, y sandboxmcp.AuditEntry) int { return y.Timestamp.Compare(x.Timestamp) })
	sum.Entries = sum.Entries[:min(len(sum.Entries), q.Limit)]
	return sum, ends, nil
}

// showAudit prints entries as a table. Whatever an entry says has no control
// characters and no line of its own.
func (a *app) showAudit(page sandboxmcp.AuditPage) {
	rows := [][]string{{"SEQ", "TIME", "ACTION", "PHASE", "ACTOR", "REQUEST", "SESSION", "DETAIL"}}
	for _, e := range page.Entries {
		rows = append(rows, auditCells(e))
	}
	a.table(rows)
	if a.terminal && page.Total > len(page.Entries) {
		a.say(strconv.Itoa(len(page.Entries)) + " of " + strconv.Itoa(page.Total) + " entries (--limit N shows more)")
	}
}

func auditCells(e sandboxmcp.AuditEntry) []string {
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return oneLine(s)
	}
	return []string{
		strconv.FormatInt(e.Seq, 10), e.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z"), dash(e.Action), dash(e.Phase), dash(e.Actor),
		dash(string(e.RequestID)), dash(string(e.SessionID)), dash(e.Detail),
	}
}

// followAudit prints entries as they come, until ctx ends.
func (a *app) followAudit(ctx context.Context, cfg *config.Config, q sandboxmcp.AuditQuery) error {
	sources := a.auditSources(ctx, cfg)
	page, seen, err := a.readAudit(ctx, sources, q)
	if err != nil {
		return err
	}
	slices.Reverse(page.Entries)
	a.printEntries(page.Entries)
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if n%followPeers == 0 {
			sources = a.auditSources(ctx, cfg)
		}
		for _, s := range sources {
			next := q
			next.After, next.OldestFirst, next.Limit = seen[s.name()], true, audit.MaxLimit
			page, err := s.list(ctx, next)
			if err != nil && s.server == nil && ctx.Err() == nil {
				return err
			}
			a.printEntries(page.Entries)
			if k := len(page.Entries); k > 0 {
				seen[s.name()] = page.Entries[k-1].Seq
			}
		}
	}
}

func (a *app) printEntries(all []sandboxmcp.AuditEntry) {
	for _, e := range all {
		if !a.json {
			a.print(clean(strings.Join(auditCells(e), "  ")) + "\n")
			continue
		}
		line, err := json.Marshal(e)
		if err == nil {
			a.print(string(line) + "\n")
		}
	}
}
