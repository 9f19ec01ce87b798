package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// unsignedAfter is the age from which an entry without a checkpoint is worth a word. A running server signs an
// entry within a second.
const unsignedAfter = 5 * time.Minute

// checkRecord checks whether the audit record is signed as it grows. It asks the running servers and looks for old
// entries without a checkpoint in the state directory. Runs do not need it: entries are recorded all the same.
func (a *App) checkRecord(ctx context.Context, cfg *config.Config) sandboxmcp.Check {
	c := sandboxmcp.Check{Name: "signed audit record", Fix: "run `sandboxmcp audit verify`"}
	var faults []string
	servers, err := a.Servers(ctx, cfg, Place{})
	if err != nil {
		faults = append(faults, err.Error())
	}
	for _, p := range servers {
		st, err := p.Stats(ctx)
		switch {
		case err != nil:
			faults = append(faults, "server "+p.Peer().ID+" does not answer: "+err.Error())
		case st.Record != nil && !st.Record.Signed:
			faults = append(faults, "server "+p.Peer().ID+" reports a fault"+sinceOf(st.Record)+": "+st.Record.Reason)
		}
	}
	if cfg.Audit != "memory" {
		if err := foundHere(cfg); err != nil && len(faults) == 0 { // a server has it
			faults = append(faults, err.Error())
		}
		if fault, err := unsignedHere(ctx, cfg); err != nil {
			faults = append(faults, err.Error())
		} else if fault != "" {
			faults = append(faults, fault)
		}
	}
	if len(faults) > 0 {
		c.Detail = strings.Join(faults, "; ")
		return c
	}
	c.OK, c.Detail, c.Fix = true, fmt.Sprintf("every entry older than %.0f minutes has a checkpoint", unsignedAfter.Minutes()), ""
	return c
}

func sinceOf(s *sandboxmcp.AuditSigning) string {
	if s.Since == nil {
		return ""
	}
	return " since " + s.Since.UTC().Format(time.RFC3339)
}

// foundHere returns what a server has found and kept in the state directory, also if none runs now.
func foundHere(cfg *config.Config) error {
	public, err := sign.PublicKey(cfg.StateDir)
	if errors.Is(err, fs.ErrNotExist) { // no record is signed here
		return nil
	}
	if err != nil {
		return err
	}
	open := func(note string) (string, error) { return sign.OpenNote(public, note) }
	return audit.Found(open, audit.HeadFile(cfg.StateDir, store.Path(storeOf(cfg))), cfg.AuditCheckpointFile)
}

// unsignedHere says which old entries of the state directory have no checkpoint, or returns an empty text. The last
// entries of a killed server may have none until the next entry is signed.
func unsignedHere(ctx context.Context, cfg *config.Config) (string, error) {
	v, err := lookAt(ctx, cfg)
	if v == nil || err != nil {
		return "", err
	}
	defer func() { _ = v.Close() }()
	n, oldest, err := audit.Unsigned(ctx, v.DB(), time.Now().Add(-unsignedAfter))
	if n == 0 || err != nil {
		return "", err
	}
	return fmt.Sprintf("entries since %s have no checkpoint: %d. A server signs them with its next entry, unless the record has a fault", oldest.Format(time.RFC3339), n), nil
}
