// Package server is the MCP door: it learns who is asking, decodes a call,
// hands it to the engine and encodes what came back. It decides nothing.
//
// Its promise: over stdio nothing but JSON-RPC is ever written; a malformed
// line, a broken call or a panic is answered and survived; every failure of a
// tool is the one error body of the product; what a model is shown is short,
// and whatever was shortened can be read as a resource.
//
// Both eras of the protocol are spoken on one connection: the versions with a
// handshake (2024-11-05 to 2025-11-25) and 2026-07-28 without one.
//
// Encoding makes garbage in bursts, so a program that serves should raise the
// collector's target, as the serve command does with debug.SetGCPercent(400)
// and a memory limit. That is the program's to decide and not done here. So is
// SIGPIPE: a program that serves on its own stdout has to ignore it, else the
// kernel ends it when the client goes away.
package server

import (
	"context"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

// Name is what the server calls itself.
const Name = "sandboxmcp"

// Instructions is what a client may show its model at the start: the workflow,
// in at most 2000 characters.
const Instructions = `Runs code that nobody should trust in a sandbox: Python, Node.js and shell.

Workflow
1. execute_code runs a program and answers with status, exit_code, stdout, stderr, artifacts and the walls that stood. Every run gets a fresh sandbox: nothing is kept from the run before it.
2. Files that the program leaves below /mnt/data (its working directory) come back as artifacts. Small ones are in the answer as base64, larger ones as resource links (artifact://...); pictures are shown. Long output is shown as head and tail; the whole of it is the resource run://<request_id>/stdout or /stderr.
3. For work of more than about 45 seconds pass background: true, then ask get_artifacts with the request_id and wait_seconds until status is no longer "running". cancel: true ends the run.
4. list_runtimes tells which languages and packages are there; sandbox_stats how busy the server is.

Reading an answer
- A program that failed is a normal answer, not an error: look at status (completed, failed, timed_out, out_of_memory, output_limit, signalled, cancelled, rejected) and exit_code. rejected means that the syntax is wrong and nothing ran.
- An error has the fields error (a code word), message and hint. The hint says what to do next.

Limits
- There is no network unless it was opened. Only /mnt/data and /tmp can be written.
- Defaults: 60 s, 512 MiB, 1 core, 10 processes, 1 MB of output per stream. Each can be set per call; metadata.clamped names what was above the operator's ceiling.
- In Python the value of a last bare expression is printed, as in a REPL.`

// Engine is what the door asks of the engine. Every method may be called
// concurrently; one that takes a ctx stops what it does when that is cancelled.
type Engine interface {
	// Execute runs a request to its end. Cancelling ctx ends the program.
	Execute(ctx context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error)
	// Start queues a request that lives on after ctx, and returns at once.
	Start(ctx context.Context, req sandboxmcp.Request) (sandboxmcp.Result, error)
	// Lookup finds a running or ended request.
	Lookup(ctx context.Context, l sandboxmcp.Lookup) (sandboxmcp.Result, error)
	// Output returns a stream, "stdout" or "stderr", as it was kept.
	Output(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.RequestID, stream string) ([]byte, error)
	// ArtifactContent returns a file of a request with its content.
	ArtifactContent(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.RequestID, path string) (sandboxmcp.Artifact, error)
	// Runtimes tells what can be run.
	Runtimes(ctx context.Context) sandboxmcp.Runtimes
	// Stats tells what was counted.
	Stats() sandboxmcp.Stats
}

// Config is what a [Server] is made of.
type Config struct {
	Engine    Engine               // required
	Version   string               // of the product
	Logger    *slog.Logger         // faults only, never what a client sent; nil: none
	Namespace sandboxmcp.Namespace // that whoever holds the pipe acts in; empty: the default
}

// Server answers MCP clients. Make one with [New]; it holds nothing that has to
// be closed, and may serve several connections at once.
type Server struct {
	engine    Engine
	log       *slog.Logger
	namespace sandboxmcp.Namespace
	mcp       *mcp.Server
	decoding  chan struct{} // held while a large picture is decoded: one at a time
}

// New makes a server with all tools and resources in memory.
func New(c Config) *Server {
	s := &Server{
		engine:    c.Engine,
		log:       c.Logger,
		namespace: c.Namespace,
		decoding:  make(chan struct{}, 1),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.namespace == "" {
		s.namespace = sandboxmcp.DefaultNamespace
	}
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: Name, Version: c.Version}, &mcp.ServerOptions{
		Instructions: Instructions,
		// Not nil: the default would offer logging, which we do not have.
		Capabilities: &mcp.ServerCapabilities{},
		SetCacheable: cacheable,
	})
	s.mcp.AddReceivingMiddleware(s.guard)
	for _, t := range toolTable() {
		s.addTool(t)
	}
	s.addResources()
	return s
}

// cacheable keeps what was read for one client out of shared caches. Lists are
// the same for everyone.
func cacheable(_ context.Context, req mcp.Request, c *mcp.Cacheable) {
	if _, ok := req.(*mcp.ReadResourceRequest); ok {
		c.CacheScope = "private"
	}
}

// resolveNamespace returns the namespace that a call acts in. The argument can
// only name what the caller holds anyway.
func (s *Server) resolveNamespace(arg string) (sandboxmcp.Namespace, error) {
	ns, err := sandboxmcp.ParseNamespace(arg)
	if err != nil {
		return "", err
	}
	if ns == s.namespace || ns == sandboxmcp.DefaultNamespace {
		return s.namespace, nil
	}
	return "", sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "namespace %s is not yours", sandboxmcp.Quote(arg))
}
