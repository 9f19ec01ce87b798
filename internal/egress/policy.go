package egress

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
)

// Via is the way on which a program asks.
type Via string

// The ways.
const (
	ViaProxy   Via = "proxy"   // a request at the proxy
	ViaConnect Via = "connect" // CONNECT at the proxy
	ViaHTTP    Via = "http"    // port 80, or HTTP at a named port
	ViaTLS     Via = "tls"     // port 443, or TLS at a named port
	ViaTCP     Via = "tcp"     // a named port, neither of them
	ViaDNS     Via = "dns"     // a question for a name; in reports alone
	ViaUDP     Via = "udp"     // which nobody listens for; in reports alone
)

// Ask is a destination that a program wants.
type Ask struct {
	Host sandboxmcp.Host
	Port int
	Via  Via
}

// Verdict is what becomes of an Ask. Rule names what allowed or denied it, such
// as the domain that matched; Reason is for who reads the refusal and has one
// line. Both may be empty.
type Verdict struct {
	Allowed bool
	Rule    string
	Reason  string
}

// Policy decides. Its methods are called by several goroutines at once.
type Policy interface {
	// Decide is asked for each connection and each HTTP request, and for nothing
	// that is refused anyway. It may take its time while a person is asked; when
	// ctx ends, the program has gone away or the link is closed, and the verdict
	// does not matter any more.
	Decide(ctx context.Context, ask Ask) Verdict

	// AllowsName reports whether DNS gives the name an address: when one of its
	// ports is open, or when its connections are to be held until somebody was
	// asked. It does not wait.
	AllowsName(h sandboxmcp.Host) bool
}
