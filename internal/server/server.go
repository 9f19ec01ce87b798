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
	Engine    sandboxmcp.Service  // required
	Version   string              // of the product
	Logger    *slog.Logger        // faults only, never what a client sent; nil: none
	Identity  sandboxmcp.Identity // of the client; without namespaces it holds the default one
	Tools     ToolSet
	Five      Five     // settings of the tools sandbox_*
	Link      LinkFunc // nil: there are no links
	Notes     []string // what list_runtimes says besides, such as why there are no links
	OpenWorld bool     // a domain may be open to programs, or be opened
}

// Server answers MCP clients. Make one with [New]; it holds nothing that has to
// be closed, and may serve several connections at once.
type Server struct {
	engine   sandboxmcp.Service
	log      *slog.Logger
	identity sandboxmcp.Identity
	mcp      *mcp.Server
	five     Five
	linkTo   LinkFunc
	notes    []string
	decoding chan struct{} // held while a large picture is decoded: one at a time
	load     *load
	forms    *forms
}

// New makes a server with all tools and resources in memory.
func New(c Config) *Server {
	s := &Server{
		engine:   c.Engine,
		log:      c.Logger,
		identity: c.Identity,
		five:     c.Five.filled(),
		linkTo:   c.Link,
		notes:    c.Notes,
		decoding: make(chan struct{}, 1),
		load:     newLoad(),
		forms:    newForms(),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.identity.Own() == "" {
		s.identity.Namespaces = []sandboxmcp.Namespace{sandboxmcp.DefaultNamespace}
	}
	if s.identity.Actor == "" {
		s.identity.Actor = actor
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
