package gate

import (
	"net/netip"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// Domains is the kind of the domains that programs may reach.
func Domains() Kind[sandboxmcp.Domain] {
	return Kind[sandboxmcp.Domain]{
		Name: "egress", Member: "domain",
		Field:   func(sub *sandboxmcp.Subject) *string { return &sub.Domain },
		Parse:   func(text string) (sandboxmcp.Domain, error) { return ParseDomain(text, 0) },
		Covered: Covered,
		Asked:   "egress_request", Opened: "egress_approved", Denied: "egress_denied", Refused: sandboxmcp.CodeEgressDenied,
		Events: Events{Requested: sandboxmcp.EventEgressRequested, Approved: sandboxmcp.EventEgressApproved, Denied: sandboxmcp.EventEgressDenied},
		Noun:   "domain", Closed: "every domain is closed", Command: "egress", Retry: "run the code again", Setting: "allowed_domains",
		Grant: func(text string) string { return "egress " + sandboxmcp.ShellQuote(text) },
		Off:   Off, OffHow: "approvals are turned off by the operator (egress_approvals); only the domains of the settings are open",
	}
}

// Off returns the error for settings that turn approvals of domains off.
func Off() error {
	return sandboxmcp.Errorf(sandboxmcp.CodeNetworkDisabled, "approvals are off: only the domains in the settings are open").
		WithHint("an operator sets egress_approvals (SANDBOXMCP_EGRESS_APPROVALS), or adds to allowed_domains")
}

// ParseDomain parses the domain of a question. port is a port that was given separately; 0:
// none. An address fails with blocked_address. Any other text that is not a domain fails
// with invalid_argument.
func ParseDomain(text string, port int) (sandboxmcp.Domain, error) {
	if _, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return sandboxmcp.Domain{}, sandboxmcp.Errorf(sandboxmcp.CodeBlockedAddress, "%s is an address; only names can be opened", sandboxmcp.Quote(text)).
			WithHint("ask for a name such as api.example.com")
	}
	d, err := sandboxmcp.ParseDomain(text)
	switch {
	case err != nil:
		return d, err
	case port < 0 || port > 65535:
		return d, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "port is %d; use 1 to 65535", port)
	case port == 0, port == d.Port:
	case d.Port != 0:
		return d, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "port is %d and %s names another", port, sandboxmcp.Quote(text)).WithHint("name one port")
	case port == 80, port == 443: // a name without a port means both
	default:
		d.Port = port
	}
	return d, nil
}

// Covered reports whether the domains together cover d. A d without a port means ports 80
// and 443, and two different domains may cover these.
func Covered(open []sandboxmcp.Domain, d sandboxmcp.Domain) bool {
	one := func(d sandboxmcp.Domain) bool {
		for _, o := range open {
			if o.Covers(d) {
				return true
			}
		}
		return false
	}
	if one(d) || d.Port != 0 {
		return one(d)
	}
	plain, secure := d, d
	plain.Port, secure.Port = 80, 443
	return one(plain) && one(secure)
}
