// Package server is the MCP server, and the HTTP server for files of sessions. It
// identifies the caller, decodes a call, passes it to the engine and encodes the result. It
// makes no decisions of its own.
//
// Over stdio it writes nothing but JSON-RPC. It answers malformed lines, invalid calls and
// panics and goes on. Every failure of a tool has the same error body. Answers are short;
// whatever was shortened can be read as a resource.
//
// A connection may use any version of the protocol: those with a handshake (2024-11-05 to
// 2025-11-25), and 2026-07-28 without one.
//
// Encoding allocates much memory at once. A program that serves should therefore raise the
// garbage collector's target, as the serve command does with debug.SetGCPercent(400) and a
// memory limit. If it serves on its own stdout, it must also ignore SIGPIPE, or the kernel
// ends it when the client disconnects. This package does neither.
package server

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

// Names of the server, with all tools and with the five of mcp-code-sandbox.
const (
	Name     = "sandboxmcp"
	NameFive = "code_sandbox_mcp"
)

// Instructions describes the workflow to a model. A client may show it at the start. It has
// at most 2000 characters.
const Instructions = `Runs untrusted code in a sandbox: Python, Node.js and shell.

Workflow
1. execute_code runs a program and returns status, exit_code, stdout, stderr and artifacts. Read note: it says what helps. Without session_id every run gets a new sandbox. With a session_id (from create_session, or any id that you choose) files and variables are kept, until terminate_session or 30 minutes without use. state_lost: true means that the variables are lost.
2. Files that the program writes below /mnt/data (its working directory) are returned as artifacts: small texts with their text, others as resource links (artifact://...), pictures as images. For the user's disk, pass on how_to_get. Long output is shortened to its beginning and end; read all of it from the resource run://<request_id>/stdout or /stderr.
3. sandbox_upload_file puts a file into a session, sandbox_read_artifact returns one, also as text and in parts. bridge_data passes JSON values from one session to another.
4. If a run takes more than about 45 seconds, pass background: true. Then call get_artifacts with the request_id and wait_seconds until status is not "running". cancel: true ends the run.
5. list_runtimes lists languages and packages; inspect_state lists sessions, limits, open domains and files.
6. Programs reach open domains only. request_egress asks a person to open one. If it returns pending, tell the user how_to_approve.

Results
- A program that failed is a normal result, not an error: read status and exit_code. rejected means that the syntax is wrong and nothing ran.
- An error has the fields error (a code), message and hint. The hint says what to do next.

Limits
- Programs can write to /mnt/data and /tmp only.
- Defaults: 60 s, 512 MiB, 1 core, 10 processes, 1 MB of output per stream. Each can be set per call.
- The value of the last expression of Python or Node.js code is printed, as in a REPL (not for ES modules). In sessions it is in results.`

// InstructionsFive is Instructions for the five tools of mcp-code-sandbox.
const InstructionsFive = `Runs untrusted Python in a sandbox without network.

1. sandbox_upload_file puts a file into /mnt/data, the working directory, and returns a session_id. sandbox_run_python also works without an upload.
2. sandbox_run_python runs code in that session. Files are kept from run to run, variables are not. If the run ends with exit_code 0, artifacts lists the new or changed files directly in /mnt/data.
3. sandbox_list_artifacts lists files, sandbox_read_artifact returns one. A download_url is for a person's browser.
4. sandbox_close_session deletes the session. It is also deleted after 30 minutes without use.

A program that failed is a normal result: read exit_code and stderr. An error has the fields error (a code), message and hint.`

// ToolSet selects the tools of a server.
type ToolSet int

// The sets of tools.
const (
	AllTools  ToolSet = iota
	FiveTools         // those of mcp-code-sandbox, under its server name
)

// LinkFunc returns the URL of a file of a session or a request, for a browser. The path is
// absolute or relative to /mnt/data. It returns "" if no HTTP server serves the file.
type LinkFunc func(ns sandboxmcp.Namespace, id, path string) string

// Config configures a [Server].
type Config struct {
	Engine      sandboxmcp.Service  // required
	Version     string              // version of the product
	Logger      *slog.Logger        // logs internal errors, never data of a client; nil: nothing is logged
	Identity    sandboxmcp.Identity // identity of the client; without namespaces it holds the default one
	Tools       ToolSet
	Small       bool     // answers hold what a model needs, and not every field
	OutputChars int      // characters of both streams in a small answer; 0: 16,000
	Five        Five     // settings of the sandbox_* tools
	Link        LinkFunc // nil: no links
	Notes       []string // notes in list_runtimes, such as why there are no links
	OpenWorld   bool     // a domain is open to programs, or can be opened
}

// Server answers MCP clients. It needs no Close, and may serve several connections at once.
type Server struct {
	engine      sandboxmcp.Service
	log         *slog.Logger
	identity    sandboxmcp.Identity
	mcp         *mcp.Server
	five        Five
	linkTo      LinkFunc
	notes       []string
	small       bool
	outputChars int
	decoding    chan struct{} // held while a large picture is decoded: one at a time
	load        *load
	forms       *forms
}

// New makes a server with all tools and resources in memory.
func New(c Config) *Server {
	s := &Server{
		engine:      c.Engine,
		log:         c.Logger,
		identity:    c.Identity,
		five:        c.Five.filled(),
		linkTo:      c.Link,
		notes:       c.Notes,
		small:       c.Small,
		outputChars: cmp.Or(c.OutputChars, 16_000),
		decoding:    make(chan struct{}, 1),
		load:        newLoad(),
		forms:       newForms(),
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
		// Not nil: the default would announce logging, which this server does not support.
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

// cacheable marks what may be cached: lists are the same for all clients, everything else
// must not be in shared caches.
func cacheable(_ context.Context, req mcp.Request, c *mcp.Cacheable) {
	if _, ok := req.(*mcp.ReadResourceRequest); ok {
		c.CacheScope = "private"
	}
}

// link returns the download_url of a file, or nil.
func (s *Server) link(ns sandboxmcp.Namespace, id, path string) *string {
	if s.linkTo == nil {
		return nil
	}
	if url := s.linkTo(ns, id, path); url != "" {
		return &url
	}
	return nil
}
