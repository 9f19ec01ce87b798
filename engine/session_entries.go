package engine

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
)

// SessionEntries lists a session's working directory by path, without hidden entries: files,
// directories and links. With deep it also lists what is in the directories. It returns at
// most 5000 entries. It works during a run.
func (e *Engine) SessionEntries(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, deep bool) ([]sandboxmcp.SessionEntry, error) {
	c, err := e.caller(c)
	if err != nil {
		return nil, err
	}
	files, err := e.filesOf(ctx, c.Namespace, id)
	if err != nil {
		return nil, err
	}
	list, err := files.Entries(ctx, deep)
	if err != nil {
		return nil, err
	}
	masks, err := e.masksAfter(ctx, c.Namespace, files.live)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Path = masks.Text(list[i].Path)
	}
	return list, nil
}
