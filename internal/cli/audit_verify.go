package cli

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

func (a *call) auditVerifyCommand() *cobra.Command {
	o := &verifyOptions{}
	var checkpoints string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check the audit log for changes",
		Long: `Checks the whole audit log, also while servers write to it. It checks every entry
against its hash, the hash chain of each namespace, and all entries against the
signed checkpoints. Checkpoints are in the database, beside the key, and in a
second file (audit_checkpoint_file, or --checkpoints). The key is that of the
state directory, or the public key of --key.

Exits with 0 if the log is intact. Exits with 1 and names each fault if an entry
was changed, removed, moved or inserted, if the end is missing, or if the log was
rewritten without the key. A log that was rewritten with the key differs only from
the second file. If the private key is in the state directory, entries that no
server with this key has appended are named, too. Without it, entries of the last
second, up to 100, may not be under a checkpoint yet; changes to these show only if
they break the hash chain.`,
		Example: `  sandboxmcp audit verify
  sandboxmcp audit verify --checkpoints /mnt/elsewhere/checkpoints --json`,
		Args: takes(),
	}
	cmd.Flags().StringVar(&checkpoints, "checkpoints", "", "also check against the checkpoints in `FILE`")
	cmd.Flags().StringVar(&o.key, "key", "", "use the public key in the PEM `FILE`")
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, _ []string) error {
		if checkpoints != "" {
			var err error
			if cfg.AuditCheckpointFile, err = filepath.Abs(checkpoints); err != nil {
				return fmt.Errorf("verify the audit: %w", err)
			}
		}
		doc, err := a.VerifyRecords(ctx, cfg, func() (ed25519.PublicKey, error) { return a.keyIfAny(o) })
		if err != nil {
			return err
		}
		if !doc.OK {
			a.status = 1
		}
		return a.answer(a.json, doc, func() {
			a.showAuditReport("", doc.AuditReport)
			for _, s := range doc.Servers {
				a.showAuditReport("server "+s.Server+", in memory: ", s.AuditReport)
			}
		})
	})
}

func (a *call) showAuditReport(what string, r sandboxmcp.AuditReport) {
	word := a.paint(green, "SOUND")
	if !r.OK {
		word = a.paint(red, "NOT SOUND")
	}
	text := counted(r.Entries, "entry") + " of " + counted(int64(len(r.Namespaces)), "namespace")
	if r.Head.SignedAt != nil {
		text += fmt.Sprintf("; signed by checkpoints: %d, the newest of %s", r.Head.Size, r.Head.SignedAt.UTC().Format("2006-01-02T15:04:05Z"))
	}
	if r.Tail.Entries > 0 {
		text += fmt.Sprintf("; not signed yet: %d", r.Tail.Entries)
	}
	if r.Dropped != nil {
		text += fmt.Sprintf("; the first %d were dropped because of their age", r.Dropped.Size)
	}
	a.print(app.OneLine(what) + word + ": " + text + "\n")
	if r.Second != nil {
		a.print(app.OneLine(fmt.Sprintf("second file %s: %s, the newest over %s", r.Second.File, counted(int64(r.Second.Notes), "checkpoint"), counted(r.Second.Size, "entry"))) + "\n")
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
		rows = append(rows, []string{f.Kind, ns, number(f.Seq), number(f.Row), app.OneLine(f.Reason)})
	}
	a.table(rows)
}
