package session

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
)

// OnRead calls after with the id each time that t has read the rows of a session.
func (t *Table) OnRead(after func(id sandboxmcp.SessionID)) {
	t.read = func(ctx context.Context, k key) (gone, err error) {
		gone, err = t.absent(ctx, k)
		after(k.id)
		return gone, err
	}
}
