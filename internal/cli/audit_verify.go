package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

func (a *app) auditVerifyCommand() *cobra.Command {
	o := &verifyOptions{}
	var checkpoints string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that the record is what was written",
		Long: `Checks the whole audit record, also while servers write to it: every entry
against its hash, the chain of each namespace, and all entries against the signed
checkpoints in the database, beside the key and in the second place
(audit_checkpoint_file, or the file after --checkpoints). The key is that of the
state directory, or the public one in the file after --key.

Ends with 0 when the record is sound. Ends with 1 and names each fault when an
entry was changed, removed, moved or put in, when the end is missing, or when the
record was made anew by somebody without the key. What somebody with the key has
made anew shows against the second place alone. Entries of the last second, or up
to 100, may be under no checkpoint yet; what is done to these shows only as far as
their chain breaks.`,
		Example: `  sandboxmcp audit verify
  sandboxmcp audit verify --checkpoints /mnt/elsewhere/checkpoints --json`,
		Args: takes(),
	}
	cmd.Flags().StringVar(&checkpoints, "checkpoints", "", "check against the checkpoints in `FILE`, too")
	cmd.Flags().StringVar(&o.key, "key", "", "public key in `FILE`, PEM")
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		cfg, err := a.load()
		if err != nil {
			return err
		}
		if checkpoints != "" {
			if cfg.AuditCheckpointFile, err = filepath.Abs(checkpoints); err != nil {
				return fmt.Errorf("verify the audit: %w", err)
			}
		}
		doc, err := a.verifyAudit(ctx, cfg, o)
		if err != nil {
			return err
		}
		if !doc.OK {
			a.status = 1
		}
		if a.json {
			a.printJSON(doc)
			return nil
		}
		a.showAuditReport("", doc.AuditReport)
		for _, s := range doc.Servers {
			a.showAuditReport("server "+s.Server+", in memory: ", s.AuditReport)
		}
		return nil
	})
}

// auditDocument is what became of the check of the state directory's record, and
// of those in the memory of running servers.
type auditDocument struct {
	sandboxmcp.AuditReport

	Servers []serverReport `json:"servers,omitempty"`
}

type serverReport struct {
	sandboxmcp.AuditReport

	Server string `json:"server"`
}

func (a *app) verifyAudit(ctx context.Context, cfg *config.Config, o *verifyOptions) (doc auditDocument, err error) {
	sources := a.auditSources(ctx, cfg)
	if len(sources) == 0 {
		return doc, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "the record is kept in memory, and no server is running").
			WithHint("ask while the server runs, or keep the record on disk (audit: sqlite)")
	}
	doc.OK = true
	for _, s := range sources {
		if s.server == nil {
			if doc.AuditReport, err = a.verifyHere(ctx, cfg, o); err != nil {
				return doc, err
			}
			continue
		}
		rep, err := s.server.VerifyAudit(ctx, everyone())
		if err != nil {
			return doc, fmt.Errorf("server %s: %w", s.name(), err)
		}
		doc.Servers, doc.OK = append(doc.Servers, serverReport{rep, s.name()}), doc.OK && rep.OK
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
func (a *app) verifyHere(ctx context.Context, cfg *config.Config, o *verifyOptions) (rep sandboxmcp.AuditReport, err error) {
	with := audit.Evidence{
		HeadFile:       audit.HeadFile(cfg.StateDir, store.Path(store.Config{Dir: cfg.StateDir, SQLitePath: cfg.SQLitePath})),
		CheckpointFile: cfg.AuditCheckpointFile,
	}
	public, err := a.publicKey(o)
	switch {
	case err == nil:
		with.Key = sign.KeyID(public)
		with.Open = func(note string) (string, error) { return sign.OpenNote(public, note) }
	case o.key != "" || sandboxmcp.CodeOf(err) != sandboxmcp.CodeNotFound:
		return rep, err
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

func (a *app) showAuditReport(what string, r sandboxmcp.AuditReport) {
	word := a.paint(green, "SOUND")
	if !r.OK {
		word = a.paint(red, "NOT SOUND")
	}
	text := fmt.Sprintf("%d entries of %d namespaces", r.Entries, len(r.Namespaces))
	if r.Head.SignedAt != nil {
		text += fmt.Sprintf("; %d are under signed checkpoints, the newest of %s", r.Head.Size, r.Head.SignedAt.UTC().Format("2006-01-02T15:04:05Z"))
	}
	if r.Tail.Entries > 0 {
		text += fmt.Sprintf("; %d are under none yet", r.Tail.Entries)
	}
	if r.Dropped != nil {
		text += fmt.Sprintf("; the first %d were dropped for their age", r.Dropped.Size)
	}
	a.print(oneLine(what) + word + ": " + text + "\n")
	if r.Second != nil {
		a.print(oneLine(fmt.Sprintf("second place %s: %d checkpoints, the newest over %d entries", r.Second.File, r.Second.Notes, r.Second.Size)) + "\n")
	}
	if len(r.Faults) == 0 {
		return
	}
	rows := [][]string{{"FAULT", "NAMESPACE", "SEQ", "ROW", "WHAT"}}
	number := func(n int64) string {
		if n == 0 {
			return "-"
		}
		return strconv.FormatInt(n, 10)
	}
	for _, f := range r.Faults {
		ns := string(f.Namespace)
		if ns == "" {
			ns = "-"
		}
		rows = append(rows, []string{f.Kind, ns, number(f.Seq), number(f.Row), oneLine(f.Reason)})
	}
	a.table(rows)
}
