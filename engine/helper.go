package engine

import (
	"context"
	"io"
	"net/http"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
)

// helper is a program of this product, or one that it drives, that works on a caller's data in
// a sandbox.
type helper struct {
	limits sandboxmcp.Limits // 0: those of the caller's namespace

	// A program in a language.
	language sandboxmcp.Language
	program  string
	stdin    []byte
	compiles string        // Python: name by which the program, which reads all of sys.stdin.buffer, is compiled once for all later calls; empty: it is not compiled
	bare     bool          // it sees no package sets
	tree     *backend.Tree // shown in its sandbox; nil: none
	network  http.Handler  // the only thing that its network leads to; nil: it has no network
	backend  string        // empty: the default one
	beside   bool          // a run waits for it, so it takes no place of its own in the queue

	// after is called with the files of /mnt/data when the program has ended by itself, before
	// its sandbox is closed. It may be nil.
	after func(ctx context.Context, files backend.Files) error

	// Another program. work starts it in an empty sandbox, which is closed afterwards. Limits
	// that the namespace keeps are upper bounds.
	work  func(context.Context, backend.Sandbox, sandboxmcp.Limits) error // gets the limits in force; nil: the program in a language
	hint  string                                                          // see backend.Spec
	trees []backend.Tree                                                  // what the sandbox shows besides the system's own
}

// loadCompiled runs the program file "compiled", which begins with the 16 bytes of a .pyc file. Its
// standard input is the program file "input": a program that has a standard input is not forked.
const loadCompiled = `import marshal, sys
place = __file__.rpartition("/")[0]
class Input:
    buffer = open(place + "/input", "rb")
sys.stdin = Input
exec(marshal.loads(open(place + "/compiled", "rb").read()[16:]))
`

// help runs a helper to its end, in a sandbox of its own. Like a run it waits for a place in
// the queue and has limits. It has no secrets, no files and no network but that of the helper. The
// audit log has no entry of it: the verb that needs the helper records what it did. The result of a
// helper with work is empty.
func (e *Engine) help(ctx context.Context, c sandboxmcp.Caller, h helper) (res sandboxmcp.Result, err error) {
	req := sandboxmcp.Request{Language: h.language, Code: h.program, Stdin: h.stdin, Limits: h.limits, Backend: h.backend, NoSecrets: true, Offline: true, Modest: h.work != nil}
	x, err := e.begin(ctx, order{who: c, req: req, helps: true})
	if err != nil {
		return res, err
	}
	defer e.finish(x)
	return e.runHelper(x, h) //nolint:contextcheck // its context is in x
}

// runHelper takes an accepted helper through the steps of a run that it needs.
func (e *Engine) runHelper(x *execution, h helper) (res sandboxmcp.Result, err error) {
	if x.network, err = e.mayReach(x); err != nil {
		return res, err
	}
	if h.beside {
		e.mu.Lock()
		x.ticket = e.queue.EnterBeside(x.who)
		e.mu.Unlock()
	}
	if err = e.admit(x); err != nil {
		return res, err
	}
	defer x.giveBack()
	x.admitted = e.cfg.Now()
	if h.work != nil {
		sb, failed := e.open(x, interpreter.Interpreter{Interpreter: backend.Interpreter{Trees: h.trees}}, opening{hint: h.hint})
		if failed != nil {
			return res, failed
		}
		defer e.discard(x.ctx, sb, nil)
		return res, h.work(x.ctx, sb, x.limits)
	}
	interp, err := e.interps.Find(x.ctx, e.backends[x.req.Backend], x.req.Language)
	if err != nil {
		return res, err
	}
	if h.bare {
		interp = interp.Bare()
	}
	if h.compiles != "" {
		if code := e.interps.Compiled(e.backends[x.req.Backend], interp, h.compiles, []byte(h.program)); code != nil {
			x.extras = []backend.ProgramFile{{Name: "compiled", Data: code}, {Name: "input", Data: x.req.Stdin}}
			x.req.Code, x.req.Stdin = loadCompiled, nil
		}
	}
	if h.tree != nil {
		interp.Trees = append(interp.Trees, *h.tree)
	}
	sb, err := e.open(x, interp, opening{})
	if err != nil {
		return res, err
	}
	defer e.discard(x.ctx, sb, nil)
	if h.network != nil {
		var link io.Closer
		if link, err = e.egress.Answer(x.ctx, sb, h.network); err != nil {
			return res, err
		}
		defer link.Close()
	}
	o, err := e.execute(x, interp, sb)
	if err != nil {
		return res, err
	}
	x.run.End()
	res = x.run.Result(o)
	if h.after != nil && !o.Stopped {
		err = h.after(x.ctx, sb.Files())
	}
	return res, err
}
