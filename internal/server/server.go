// Package server is the MCP door, and beside it the HTTP door for files: it
// learns who is asking, decodes a call, hands it to the engine and encodes what
// came back. It decides nothing.
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

// What the server calls itself: with all tools, and with the five of
// mcp-code-sandbox.
const (
	Name     = "sandboxmcp"
	NameFive = "code_sandbox_mcp"
)

// Instructions is what a client may show its model at the start: the workflow,
// in at most 2000 characters.
const Instructions = `Runs code that nobody should trust in a sandbox: Python, Node.js and shell.

Workflow
1. execute_code runs a program and answers with status, exit_code, stdout, stderr, artifacts and the walls that stood. Without session_id every run gets a fresh sandbox. With a session_id, from create_session or of your own choice, files and the interpreter's variables stay until the session was unused for 30 minutes or terminate_session; state_lost: true says that the variables are gone.
2. Files that the program leaves below /mnt/data (its working directory) come back as artifacts: small ones as base64, larger ones as resource links (artifact://...), pictures are shown. Long output is shown as head and tail; the whole is the resource run://<request_id>/stdout or /stderr.
3. sandbox_upload_file puts a file into a session, sandbox_read_artifact gets one. bridge_data hands JSON values from one session to another.
4. For work of more than about 45 seconds pass background: true, then ask get_artifacts with the request_id and wait_seconds until status is no longer "running". cancel: true ends the run.
5. list_runtimes tells which languages and packages are there; inspect_state which sessions, limits, open domains and files.
6. There is no network but to open domains. request_egress asks a person for one; when it says pending, tell the user how_to_approve.

Reading an answer
- A program that failed is a normal answer, not an error: look at status and exit_code. rejected means that the syntax is wrong and nothing ran.
- An error has the fields error (a code word), message and hint. The hint says what to do next.

Limits
- Only /mnt/data and /tmp can be written.
- Defaults: 60 s, 512 MiB, 1 core, 10 processes, 1 MB of output per stream. Each can be set per call.
- The value of a last bare expression of Python or Node.js is printed, as in a REPL (not of ES modules); in sessions it is in results.`

// InstructionsFive is the same for the five tools of mcp-code-sandbox.
const InstructionsFive = `Runs Python that nobody should trust in a sandbox without network.

1. sandbox_upload_file puts a file into /mnt/data, the working directory, and answers with a session_id. sandbox_run_python works without an upload too.
2. sandbox_run_python runs code in that session. Files stay from run to run, variables do not. New or changed files directly in /mnt/data are in artifacts when the run ends with exit_code 0.
3. sandbox_list_artifacts and sandbox_read_artifact look at the files; a download_url, where there is one, is for a person's browser.
4. sandbox_close_session deletes the session. One that was not used for 30 minutes is deleted by itself.

A program that failed is a normal answer: look at exit_code and stderr. An error has the fields error (a code word), message and hint.`

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
	Sessions
	LimitKeeper
	Approvals
	Auditor
}

// Approvals is what the door asks of the gate.
type Approvals interface {
	// RequestEgress asks a person to open a domain, and waits as long as the ask says.
	RequestEgress(ctx context.Context, ask sandboxmcp.EgressAsk) (sandboxmcp.EgressAnswer, error)
	// FindEgress tells what a question is.
	FindEgress(ctx context.Context, id string) (sandboxmcp.Approval, error)
	// DecideEgress carries out a person's answer. A tool may only call it with one
	// that the client brought in a form of ours.
	DecideEgress(ctx context.Context, d sandboxmcp.EgressDecision) (sandboxmcp.EgressAnswer, error)
}

// Sessions is what the door asks of sandboxes that live across requests. A
// session of another namespace is not there.
type Sessions interface {
	// CreateSession makes a session.
	CreateSession(ctx context.Context, spec sandboxmcp.SessionSpec) (sandboxmcp.Session, error)
	// TerminateSession ends a session with all that is in it.
	TerminateSession(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, actor string) error
	// CloseSession does so unless a run is going, which is session_busy.
	CloseSession(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, actor string) error
	// Sessions lists what is alive.
	Sessions(ctx context.Context, ns sandboxmcp.Namespace) ([]sandboxmcp.Session, error)
	// Upload puts a file into a session and returns where.
	Upload(ctx context.Context, u sandboxmcp.Upload) (id sandboxmcp.SessionID, path string, err error)
	// SessionFiles lists the regular files directly in /mnt/data, without dot files.
	SessionFiles(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) ([]sandboxmcp.SessionFile, error)
	// ReadFile returns a file of a session, path being absolute or relative to
	// /mnt/data. One of more than limit bytes is artifact_too_large with size_bytes.
	ReadFile(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, path string, limit int64) (sandboxmcp.SessionFile, []byte, error)
	// Bridge hands values from one session to another.
	Bridge(ctx context.Context, b sandboxmcp.Bridge) (sandboxmcp.Bridged, error)
	// Inspect tells what a namespace has, or one session of it.
	Inspect(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) (sandboxmcp.State, error)
}

// ToolSet says which tools are offered.
type ToolSet int

// The sets of tools.
const (
	AllTools  ToolSet = iota
	FiveTools         // those of mcp-code-sandbox, under its name
)

// LinkFunc makes the address under which a browser gets a file of a session, or
// of a request by its id, path being absolute or relative to /mnt/data. It
// returns the empty string when nobody hands the file out.
type LinkFunc func(ns sandboxmcp.Namespace, id, path string) string

// Config is what a [Server] is made of.
type Config struct {
	Engine    Engine               // required
	Version   string               // of the product
	Logger    *slog.Logger         // faults only, never what a client sent; nil: none
	Namespace sandboxmcp.Namespace // that whoever holds the pipe acts in; empty: the default
	Tools     ToolSet
	Five      Five     // settings of the tools sandbox_*
	Link      LinkFunc // nil: there are no links
	Notes     []string // what list_runtimes says besides, such as why there are no links
	OpenWorld bool     // a domain may be open to programs, or be opened
}

// Server answers MCP clients. Make one with [New]; it holds nothing that has to
// be closed, and may serve several connections at once.
type Server struct {
	engine    Engine
	log       *slog.Logger
	namespace sandboxmcp.Namespace
	mcp       *mcp.Server
	five      Five
	linkTo    LinkFunc
	notes     []string
	decoding  chan struct{} // held while a large picture is decoded: one at a time
	forms     *forms
}

// New makes a server with all tools and resources in memory.
func New(c Config) *Server {
	s := &Server{
		engine:    c.Engine,
		log:       c.Logger,
		namespace: c.Namespace,
		five:      c.Five.filled(),
		linkTo:    c.Link,
		notes:     c.Notes,
		decoding:  make(chan struct{}, 1),
		forms:     newForms(),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.namespace == "" {
		s.namespace = sandboxmcp.DefaultNamespace
	}
	name, instructions, tools := Name, Instructions, toolTable()
	if c.Tools == FiveTools {
		name, instructions, tools = NameFive, InstructionsFive, fiveTable()
	}
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: name, Version: c.Version}, &mcp.ServerOptions{
		Instructions: instructions,
		// Not nil: the default would offer logging, which we do not have.
		Capabilities: &mcp.ServerCapabilities{},
		SetCacheable: cacheable,
	})
	s.mcp.AddReceivingMiddleware(s.guard)
	for _, t := range tools {
		t.hints.openWorld = t.hints.openWorld || t.letsOut && c.OpenWorld
		s.addTool(t)
	}
	if c.Tools == AllTools {
		s.addResources()
	}
	return s
}

// cacheable keeps what was read for one client out of shared caches. Lists are
// the same for everyone.
func cacheable(_ context.Context, req mcp.Request, c *mcp.Cacheable) {
	if _, ok := req.(*mcp.ReadResourceRequest); ok {
		c.CacheScope = "private"
	}
}

// link is the download_url of a file, nil when there is none.
func (s *Server) link(ns sandboxmcp.Namespace, id, path string) *string {
	if s.linkTo == nil {
		return nil
	}
	if url := s.linkTo(ns, id, path); url != "" {
		return &url
	}
	return nil
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
