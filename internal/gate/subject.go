package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// subject is what is asked for, and what is opened. Its canonical form is this
// object with its members in this order, which is that of their names.
type subject struct {
	Domain    string               `json:"domain"`
	Kind      string               `json:"kind"`
	Namespace sandboxmcp.Namespace `json:"namespace"`
}

const kindEgress = "egress"

// canonical writes a subject down, with its SHA-256.
func canonical(ns sandboxmcp.Namespace, d sandboxmcp.Domain) (text, digest string, err error) {
	b, err := json.Marshal(subject{Domain: d.String(), Kind: kindEgress, Namespace: ns})
	if err != nil {
		return "", "", err
	}
	return string(b), digestOf(string(b)), nil
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// reading takes a subject apart that stands in the database. One that was
// changed there, or is not in its canonical form, is none.
func reading(text, digest string) (sandboxmcp.Domain, bool) {
	var s subject
	if digestOf(text) != digest || json.Unmarshal([]byte(text), &s) != nil || s.Kind != kindEgress {
		return sandboxmcp.Domain{}, false
	}
	d, err := sandboxmcp.ParseDomain(s.Domain)
	if err != nil {
		return d, false
	}
	again, _, err := canonical(s.Namespace, d)
	return d, err == nil && again == text
}

// ParseDomain reads a domain that somebody wants to have opened, and a port that
// was named beside it. An address is blocked_address, everything else that is
// none invalid_argument.
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
		return d, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "port is %d; it has to be from 1 to 65535", port)
	case port == 0, port == d.Port:
	case d.Port != 0:
		return d, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "port is %d and %s names another", port, sandboxmcp.Quote(text)).WithHint("name one port")
	case port == 80, port == 443: // which a name without a port means
	default:
		d.Port = port
	}
	return d, nil
}
