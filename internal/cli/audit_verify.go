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
	a.print(app.OneLine(what) + word + ": " + text + "\n")
	if r.Second != nil {
		a.print(app.OneLine(fmt.Sprintf("second place %s: %d checkpoints, the newest over %d entries", r.Second.File, r.Second.Notes, r.Second.Size)) + "\n")
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
