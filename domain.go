package sandboxmcp

import (
	"strconv"
	"strings"
)

// Host is a host name in its canonical form, as [ParseHost] returns it. All spellings of a
// name give the same Host. A Host is never an IP address. Do not convert a string to a
// Host: a name that is not in canonical form matches no other Host.
type Host string

const (
	maxHost  = 253 // bytes of a name without its last dot, as DNS has it
	maxLabel = 63
)

const domainHint = "write a name such as api.example.com, *.example.com or api.example.com:8443"

// ParseHost returns the canonical form of a host name: in lower case and without a final
// dot. A name has 1 to 253 bytes and consists of labels that are separated by dots. A label
// has 1 to 63 ASCII letters, digits and hyphens, and does not begin or end with a hyphen.
// The last label does not begin with a digit, because some resolvers read 127.1, 0x7f.1 and
// 2130706433 as addresses.
//
// A name of one label, such as localhost, is a valid Host, but no [Domain] can have it.
// ParseHost fails with [CodeInvalidArgument] on anything else, such as ports, user parts,
// escapes, spaces, NUL, and non-ASCII letters, which must be written as xn-- labels.
func ParseHost(s string) (Host, error) {
	name := strings.TrimSuffix(s, ".")
	if why := badHost(name); why != "" {
		return "", Errorf(CodeInvalidArgument, "%s is not a host name: %s", Quote(s), why).WithHint(domainHint)
	}
	return Host(lower(name)), nil
}

// badHost returns what is wrong with a name, or "".
func badHost(name string) string {
	if name == "" {
		return "it is empty"
	}
	if len(name) > maxHost {
		return "it is longer than 253 bytes"
	}
	start := 0
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '.' {
			if !ldh(name[i]) {
				return "it holds " + strconv.QuoteToASCII(firstRune(name[i:])) + "; only ASCII letters, digits, hyphens and dots may be in it"
			}
			continue
		}
		switch label := name[start:i]; {
		case label == "":
			return "there is nothing between two dots"
		case len(label) > maxLabel:
			return "a part between dots is longer than 63 bytes"
		case label[0] == '-' || label[len(label)-1] == '-':
			return "a part between dots begins or ends with a hyphen"
		case i == len(name) && label[0] >= '0' && label[0] <= '9':
			return "its last part begins with a digit, as in an address"
		}
		start = i + 1
	}
	return ""
}

func ldh(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}

func firstRune(s string) string {
	for i := range s {
		if i > 0 {
			return s[:i]
		}
	}
	return s
}

// lower is strings.ToLower for ASCII only, so that no other letter becomes an ASCII letter.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// Domain is a destination that can be opened to programs: a host, or with Wild all names
// below it. The zero Domain matches nothing.
type Domain struct {
	Host Host
	Wild bool // every name below Host, and not Host itself
	Port int  // 0: 80 and 443
}

// ParseDomain parses name, *.name, name:port and *.name:port. The name must be valid for
// [ParseHost] and have at least two labels, so that localhost and *.com are refused. Names
// below localhost are refused, too. ParseDomain fails with [CodeInvalidArgument] on anything
// else, such as an address, a URL or *.
//
// A wildcard below a public suffix, such as *.co.uk, is accepted, because a name does not
// show which names have the same owner.
func ParseDomain(s string) (Domain, error) {
	refuse := func(why string) (Domain, error) {
		return Domain{}, Errorf(CodeInvalidArgument, "%s is not a domain: %s", Quote(s), why).WithHint(domainHint)
	}
	if strings.Contains(s, "://") {
		return refuse("it is a URL; only its host is wanted")
	}
	name, wild := strings.CutPrefix(s, "*.")
	var d Domain
	if host, port, ok := strings.Cut(name, ":"); ok {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
			return refuse("what follows its colon is not a port from 1 to 65535")
		}
		name, d.Port = host, int(n)
	}
	if name == "*" {
		return refuse("* alone would mean every host")
	}
	name = strings.TrimSuffix(name, ".")
	if why := badHost(name); why != "" {
		return refuse(why)
	}
	d.Host, d.Wild = Host(lower(name)), wild
	switch labels := strings.Count(name, ".") + 1; {
	case d.Host == "localhost" || strings.HasSuffix(string(d.Host), ".localhost"):
		return refuse("localhost is the sandbox itself")
	case labels < 2 && wild:
		return refuse("it would mean every host below " + Quote(string(d.Host)))
	case labels < 2:
		return refuse("it has no dot, and what such a name means differs from place to place")
	}
	return d, nil
}

// String returns the domain in the syntax of [ParseDomain].
func (d Domain) String() string {
	s := string(d.Host)
	if d.Wild {
		s = "*." + s
	}
	if d.Port != 0 {
		s += ":" + strconv.Itoa(d.Port)
	}
	return s
}

// Match reports whether the host at the port is in d.
func (d Domain) Match(h Host, port int) bool {
	return d.MatchPort(port) && d.MatchHost(h)
}

// MatchHost reports whether the host is in d, at any port.
func (d Domain) MatchHost(h Host) bool {
	switch {
	case d.Host == "" || h == "":
		return false
	case d.Wild:
		return below(h, d.Host)
	default:
		return h == d.Host
	}
}

// MatchPort reports whether the port is one of d's.
func (d Domain) MatchPort(port int) bool {
	if d.Port == 0 {
		return port == 80 || port == 443
	}
	return port == d.Port
}

// Covers reports whether everything that other matches is matched by d.
func (d Domain) Covers(other Domain) bool {
	if d.Host == "" || other.Host == "" || d.Port != other.Port && (d.Port != 0 || !d.MatchPort(other.Port)) {
		return false
	}
	if other.Wild {
		return d.Wild && (d.Host == other.Host || below(other.Host, d.Host))
	}
	return d.MatchHost(other.Host)
}

// below reports whether h is a name below parent, with at least one more label.
func below(h, parent Host) bool {
	n := len(h) - len(parent)
	return n > 1 && h[n-1] == '.' && h[n:] == parent
}
