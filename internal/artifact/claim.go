package artifact

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sandboxmcp/sandboxmcp"
)

// claim is what the rows of a request say of its content. A writer of the database can name the content of another namespace
// there. Without the signing key such a writer makes no receipt, so only content that the receipt names is read.
type claim struct {
	ns      sandboxmcp.Namespace
	id      sandboxmcp.RequestID
	receipt sql.NullString // JSON

	named map[string]bool // SHA-256 hashes that the receipt names; nil: it was not read yet
	cause error           // why it could not be read
}

// read reads the receipt.
func (c *claim) read(verify Verify) error {
	c.named = map[string]bool{}
	var r sandboxmcp.Receipt
	if err := decode([]byte(c.receipt.String), &r); err != nil {
		return err
	}
	p, err := verify(r)
	if err == nil && (p.Namespace != c.ns || p.RequestID != c.id) {
		err = errors.New("the receipt is of another request")
	}
	if err != nil {
		return err
	}
	c.named[p.StdoutSHA256], c.named[p.StderrSHA256] = true, true
	for _, a := range p.Artifacts {
		c.named[a.SHA256] = true
	}
	return nil
}

// refused returns the error for content that the receipt does not name.
func (c *claim) refused() error {
	id := sandboxmcp.Quote(string(c.id))
	if c.cause == nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "the receipt of request %s does not name this content", id).
			WithHint("somebody has changed the database: run `sandboxmcp audit verify`")
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "files and long outputs of request %s cannot be read: no receipt of this server's key names them (%s)", id, c.cause).
		WithHint("if signing.key was replaced since the run, only a server with the key of that time reads them; otherwise somebody has changed the database").WithCause(c.cause)
}

// blob reads a blob that the rows of a request name. The store checks its SHA-256.
func (k *Keeper) blob(ctx context.Context, of *claim, sum string) ([]byte, error) {
	if k.cfg.Verify != nil {
		if of.named == nil {
			of.cause = of.read(k.cfg.Verify)
		}
		if !of.named[sum] {
			return nil, of.refused()
		}
	}
	data, err := k.store.ReadBlob(ctx, sum)
	if errors.Is(err, fs.ErrNotExist) {
		e := sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "the content is no longer kept")
		if k.store.Elsewhere() {
			e = sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "the content is not on this server").WithHint("ask the server that ran the request, or keep files in an object store (blob_url)")
		}
		return nil, e.WithCause(err)
	}
	if err != nil {
		return nil, fmt.Errorf("read content: %w", err)
	}
	return data, nil
}
