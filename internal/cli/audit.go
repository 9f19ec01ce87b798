package cli

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

type auditOptions struct {
	namespace, action, since string
	limit                    int
	follow                   bool
}

func (a *call) auditCommand() *cobra.Command {
	o := &auditOptions{}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show the audit log",
		Long: `Shows the newest entries of the audit log of a namespace, newest first. An intent
says what was about to be done, an outcome what came of it, and both say who did
it. Entries hold sizes and hashes, never code, output or secrets. They come from
the state directory and from running servers that keep their log in memory.
--follow also prints new entries, oldest first, one a line, until it is
interrupted.`,
		Example: `  sandboxmcp audit --limit 20
  sandboxmcp audit --action execute --since 2h --json
  sandboxmcp audit --follow`,
		Args: takes(),
	}
	f := cmd.Flags()
	f.StringVar(&o.namespace, "namespace", "", "show entries of the namespace `NAME`")
	f.StringVar(&o.action, "action", "", "show only entries of this `ACTION`, such as execute")
	f.StringVar(&o.since, "since", "", "show only entries since `TIME`: 2026-01-31, 2026-01-31T09:00:00Z, or 90m for 90 minutes ago")
	f.IntVar(&o.limit, "limit", audit.DefaultLimit, "show at most `N` entries, up to 1000")
	f.BoolVarP(&o.follow, "follow", "f", false, "print new entries as they come")
	a.withConfig(a.withJSON(cmd))
	a.does(cmd, func(ctx context.Context, _ []string) error {
		cfg, q, err := a.auditQuery(cmd, o)
		if err != nil {
			return err
		}
		if o.follow {
			return a.FollowRecords(ctx, cfg, q, a.printEntries)
		}
		page, _, err := a.ReadRecords(ctx, a.Records(ctx, cfg), q)
		if err != nil {
			return err
		}
		return a.answer(a.json, page, func() { a.showAudit(page) })
	})
	cmd.AddCommand(a.auditVerifyCommand())
	return cmd
}

func (a *call) auditQuery(cmd *cobra.Command, o *auditOptions) (*config.Config, sandboxmcp.AuditQuery, error) {
	q := sandboxmcp.AuditQuery{Action: o.action, Limit: o.limit}
	cfg, err := a.inNamespace(cmd, o.namespace)
	if err != nil {
		return nil, q, err
	}
	if o.limit < 1 || o.limit > audit.MaxLimit {
		return nil, q, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "--limit is %d; it must be 1 to %d", o.limit, audit.MaxLimit).
			WithHint("ask for fewer entries, or use --follow")
	}
	if cmd.Flags().Changed("since") {
		if q.Since, err = since(o.since, time.Now()); err != nil {
			return nil, q, err
		}
	}
	return cfg, q, nil
}

// since parses a time, or a duration before now.
func since(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "--since %s is not a time", sandboxmcp.Quote(text)).
		WithHint("use 2026-01-31, 2026-01-31T09:00:00Z, or 90m for 90 minutes ago")
}

// showAudit prints entries as a table, one line each. Control characters in entries are
// replaced.
func (a *call) showAudit(page sandboxmcp.AuditPage) {
	rows := [][]string{{"SEQ", "TIME", "ACTION", "PHASE", "ACTOR", "REQUEST", "SESSION", "DETAIL"}}
	for _, e := range page.Entries {
		rows = append(rows, auditCells(e))
	}
	a.table(rows)
	if a.terminal && page.Total > len(page.Entries) {
		a.Say("shown: " + strconv.Itoa(len(page.Entries)) + " of " + counted(int64(page.Total), "entry") + " (--limit N shows more)")
	}
}

func auditCells(e sandboxmcp.AuditEntry) []string {
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return app.OneLine(s)
	}
	return []string{
		strconv.FormatInt(e.Seq, 10), e.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z"), dash(e.Action), dash(e.Phase), dash(e.Actor),
		dash(string(e.RequestID)), dash(string(e.SessionID)), dash(e.Detail),
	}
}

func (a *call) printEntries(all []sandboxmcp.AuditEntry) {
	for _, e := range all {
		if !a.json {
			a.print(app.Clean(strings.Join(auditCells(e), "  ")) + "\n")
			continue
		}
		line, err := json.Marshal(e)
		if err == nil {
			a.print(string(printableJSON(line)) + "\n")
		}
	}
}
