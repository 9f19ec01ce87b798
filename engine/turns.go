package engine

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
)

// Bounds of what the server itself does for calls at once. Without them as many calls as a
// model sends would hold their memory at the same time.
const (
	maxParses   = 2  // programs that are parsed here; each may take 400 MiB
	maxFetches  = 16 // pages that are fetched; each may take 10 MiB
	maxCommands = 8  // commands of the host; each may take a thread, a gigabyte and an hour
	maxFiles    = 4  // files of the host; each may take 50 MiB
	maxInstalls = 4  // installations of packages that are not known; each may take a gigabyte for what indexes list
	maxScans    = 2  // reads of the whole record; each takes a connection of the store, which has more for what runs read
	maxOutputs  = 2  // copies of the output so far of a run; each may take some 200 MiB
	maxLoads    = 2  // results that are read; each may hold two streams and 64 MiB of files
	maxRecalls  = 4  // installations of packages that are known; each may take 20 MiB for their list and the record of it
	maxInTurn   = 64 // further calls of a namespace that wait, of each kind

	maxAsking = 4096 // further calls of a namespace that wait to copy an output, for a result, or for known packages; they hold nothing
)

// newTurns makes a queue for n calls at once. It knows no namespaces; see setKnown.
func newTurns(n int) *queue.Queue {
	return queue.New(queue.Config{MaxConcurrent: n, MaxWaiting: maxInTurn})
}

// known returns the namespaces for which places are kept. EveryNamespace stands for a namespace that was not seen
// yet: no session or run belongs to it, so a place is always kept.
func (c *Config) known() []sandboxmcp.Namespace {
	if !c.Strangers {
		return c.Namespaces
	}
	return append([]sandboxmcp.Namespace{sandboxmcp.EveryNamespace}, c.Namespaces...)
}

// setKnown tells every queue which namespaces are in use. Each queue leaves a place for namespaces that have none.
func (e *Engine) setKnown(c *Config) {
	for _, q := range []*queue.Queue{e.queue, e.parses, e.fetches, e.commands, e.hostFiles, e.installs, e.cellInstalls, e.recalls, e.scans, e.outputs, e.loads} {
		q.SetKnown(c.known(), c.Holders)
	}
}

// inTurn waits for a place in q. The namespaces take turns. The caller calls done when the
// work has ended.
func inTurn(ctx context.Context, q *queue.Queue, who sandboxmcp.Caller) (done func(), err error) {
	t, err := q.Enter(who, 0)
	if err != nil {
		return nil, err
	}
	if t.Wait(ctx, 0) != nil {
		return nil, cancelledError(ctx)
	}
	return t.Release, nil
}
