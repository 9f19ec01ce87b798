package egress

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
)

// Via is the protocol by which a program contacts a host.
type Via string

// The protocols.
const (
	ViaProxy   Via = "proxy"   // a request at the proxy
	ViaConnect Via = "connect" // CONNECT at the proxy
	ViaHTTP    Via = "http"    // port 80, or HTTP at a named port
	ViaTLS     Via = "tls"     // port 443, or TLS at a named port
	ViaTCP     Via = "tcp"     // any other protocol at a named port
	ViaDNS     Via = "dns"     // a DNS question; in reports only
	ViaUDP     Via = "udp"     // a UDP packet, which is always refused; in reports only
)

// Ask is a destination that a program wants to reach.
type Ask struct {
	Host sandboxmcp.Host
	Port int
	Via  Via
}

// Verdict is the decision about an Ask. Rule names what allowed or denied it, such as
// the domain that matched. A refusal without a Rule means that the host can be opened in
// the way of Recourse. Reason explains a refusal to the program in one line. If it is empty, the host is closed.
type Verdict struct {
	Allowed  bool
	Rule     string
	Reason   string
	Denial   sandboxmcp.Denial // of a refusal
	Recourse Recourse          // of a refusal without a Rule
}

// Recourse is the way to open a host that is not open. The refusal tells it to the program,
// because the caller mostly reads the program's output.
type Recourse int

// The ways.
const (
	ByPerson   Recourse = iota // a person opens it
	ByTool                     // the caller asks a person with the tool request_egress
	BySettings                 // only the settings open hosts
)

// Policy decides which hosts a sandbox may reach. Its methods are called concurrently.
type Policy interface {
	// Decide is called for each connection and each HTTP request that is not refused
	// for another reason. It may block while a person is asked. When ctx ends, the
	// program or the link has closed the connection, and the verdict is ignored.
	Decide(ctx context.Context, ask Ask) Verdict

	// Name decides whether DNS gives the name an address. It does if one of its ports is
	// open, or if its connections wait for a person's decision. Name does not wait for a
	// person.
	Name(h sandboxmcp.Host) Verdict

	// Closed reports whether the sandbox can reach no host at all, and the verdict on
	// every host if so. Reports give it as the reason for connections that the
	// sandbox's kernel has refused. Closed does not wait for a person.
	Closed() (verdict Verdict, closed bool)
}
