// Package server is the MCP server, over stdio and HTTP, and the handler for files of
// sessions. It
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
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

// Names of the server, with all tools and with the five of mcp-code-sandbox.
const (
	Name     = "sandboxmcp"
	NameFive = "code_sandbox_mcp"
)

// ToolSet selects the tools of a server.
type ToolSet int

// The sets of tools.
const (
	AllTools  ToolSet = iota
	FiveTools         // those of mcp-code-sandbox, under its server name
)

// LinkFunc returns the URL of a file of a session or a request, for a browser. The path is
// absolute or relative to /mnt/data, and size is the file's. It returns "" if no HTTP server
// serves the file.
type LinkFunc func(ns sandboxmcp.Namespace, id, path string, size int64) string

// Engine is what the server calls.
type Engine interface {
	sandboxmcp.Service
	FileSource
}

// Config configures a [Server].
type Config struct {
	Engine   Engine              // required
	Version  string              // version of the product
	Logger   *slog.Logger        // logs internal errors, never data of a client; nil: nothing is logged
	Identity sandboxmcp.Identity // identity of the client on a pipe; without namespaces it holds the default one
	HTTP     bool                // clients use HTTP, and each request has an identity; then Identity is not used
	Tools    ToolSet
	Only     []string // names of tools, or of groups of tools, to offer; empty: all. See [CheckTools]
	ReadOnly bool     // offer only tools that change nothing
	Small    bool     // answers hold what a model needs, and not every field
	Link     LinkFunc // nil: no links
	Rules
	Notes func() []string // notes in list_runtimes, such as why there are no links; nil: none

	Invocation sandboxmcp.Invocation // how persons call this program, for the commands in hints
}

// Rules are the settings that may change while a server runs. [Server.SetRules] replaces them.
type Rules struct {
	OutputChars int  // characters of both streams in a small answer; 0: 16,000
	Five        Five // settings of the sandbox_* tools
	Told        Told
	OpenWorld   bool // a domain is open to programs, or can be opened
}

// Server answers MCP clients. It needs no Close, and may serve several connections at once.
type Server struct {
	engine      Engine
	log         *slog.Logger
	identity    sandboxmcp.Identity
	http        bool
	self        *mcp.Implementation
	mcp         *mcp.Server
	set         ToolSet
	only        []string
	readOnly    bool
	linkTo      LinkFunc
	notes       func() []string
	small       bool
	invocation  sandboxmcp.Invocation
	decoding    chan struct{} // held while a large picture is decoded: one at a time
	prompts     bool          // the server has prompts
	load        *load
	forms       *forms
	watches     watches
	subscribers subscribers
	receive     mcp.MethodHandler // answers calls of clients as the SDK does

	setting sync.Mutex // held by SetRules
	inForce atomic.Pointer[inForce]
}

// inForce is what follows from [Rules].
type inForce struct {
	outputChars int
	five        Five
	facts       facts
	tools       map[string]offered // the tools that are offered, by their names
}

// rules returns what follows from the rules in force.
func (s *Server) rules() *inForce { return s.inForce.Load() }

// New makes a server with all tools and resources in memory.
func New(c Config) *Server {
	s := &Server{
		engine:      c.Engine,
		set:         c.Tools,
		only:        c.Only,
		readOnly:    c.ReadOnly,
		log:         c.Logger,
		identity:    c.Identity,
		http:        c.HTTP,
		linkTo:      c.Link,
		notes:       c.Notes,
		small:       c.Small,
		invocation:  c.Invocation,
		decoding:    make(chan struct{}, 1),
		load:        newLoad(),
		forms:       newForms(),
		subscribers: subscribers{of: map[*mcp.ServerSession]map[string]subscription{}, each: map[sandboxmcp.Namespace]int{}, followed: map[sandboxmcp.Namespace]*follower{}, telling: map[telling]int{}},
	}
	if s.notes == nil {
		s.notes = func() []string { return nil }
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
	rules, tools := s.follow(c.Rules)
	o := &mcp.ServerOptions{
		Instructions: rules.facts.instructions(""),
		// Not nil: the default would announce logging, which this server does not support.
		Capabilities: &mcp.ServerCapabilities{},
		SetCacheable: cacheable,
	}
	if c.Tools == AllTools {
		o.CompletionHandler, o.SubscribeHandler, o.UnsubscribeHandler = s.complete, s.subscribe, s.unsubscribe
	}
	name := Name
	if c.Tools == FiveTools {
		name = NameFive
	}
	s.self = &mcp.Implementation{Name: name, Version: c.Version}
	s.mcp = mcp.NewServer(s.self, o)
	s.mcp.AddReceivingMiddleware(s.guard)
	s.mcp.AddSendingMiddleware(s.onlyOwn)
	s.offerTools(rules, tools)
	if c.Tools == AllTools {
		s.addResources()
		s.addPrompt()
		s.addFixtures()
	}
	return s
}

// SetRules replaces the rules, for calls to come. Clients are told if the text of a tool has
// changed. A client that has read the instructions keeps them.
func (s *Server) SetRules(r Rules) { s.offerTools(s.follow(r)) }

// follow returns what follows from rules, and the tools with their texts.
func (s *Server) follow(r Rules) (*inForce, []tool) {
	f := &inForce{outputChars: cmp.Or(r.OutputChars, 16_000), five: r.Five.filled(), tools: map[string]offered{}}
	f.facts = newFacts(r.Told, r.Five, s.linkTo != nil, s.set == FiveTools)
	f.facts.how = s.invocation
	table := toolTable
	if s.set == FiveTools {
		table = fiveTable
	}
	f.facts.offer = newOffer(choose(table(f.facts), s.only, s.readOnly))
	tools := choose(table(f.facts), s.only, s.readOnly) // whose texts depend on what is offered
	for i, t := range tools {
		t.hints.openWorld = t.hints.openWorld || t.letsOut && r.OpenWorld
		tools[i] = f.facts.tool(t)
	}
	return f, tools
}

// offerTools puts rules into force, and adds the tools whose texts are new.
func (s *Server) offerTools(f *inForce, tools []tool) {
	s.setting.Lock()
	defer s.setting.Unlock()
	before := s.inForce.Load()
	var fresh []offered
	for _, t := range tools {
		o := s.offered(t)
		if before != nil && bytes.Equal(before.tools[t.name].text, o.text) {
			o = before.tools[t.name]
		} else {
			fresh = append(fresh, o)
		}
		f.tools[t.name] = o
	}
	s.inForce.Store(f)
	for _, o := range fresh {
		s.mcp.AddTool(o.tool, o.handle)
	}
}

// cacheable marks the answers that shared caches may keep: the tools and the description of the
// server, which are the same for all clients. Everything else may depend on the caller.
func cacheable(_ context.Context, req mcp.Request, c *mcp.Cacheable) {
	switch req.(type) {
	case *mcp.ListToolsRequest, *mcp.DiscoverRequest, *mcp.ServerRequest[*mcp.DiscoverParams]:
	default:
		c.CacheScope = "private"
	}
}

// link returns the download_url of a file, or nil.
func (s *Server) link(ns sandboxmcp.Namespace, id, path string, size int64) *string {
	if s.linkTo == nil {
		return nil
	}
	if url := s.linkTo(ns, id, path, size); url != "" {
		return &url
	}
	return nil
}
