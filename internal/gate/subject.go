package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// subject is what a question asks for and what a grant opens. Its canonical form is this
// JSON object, with its members sorted by name.
type subject struct {
	Domain    string               `json:"domain"`
	Kind      string               `json:"kind"`
	Namespace sandboxmcp.Namespace `json:"namespace"`
}

const kindEgress = "egress"

// canonical returns the canonical form of a subject and its SHA-256.
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

// reading returns the domain of a stored subject. ok is false if the text does not match
// its digest or is not in canonical form.
func reading(text, digest string) (d sandboxmcp.Domain, ok bool) {
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
