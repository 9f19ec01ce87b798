package sandboxmcp

import (
	"slices"
	"strconv"
)

// Identity is what a transport knows of its peer: the namespaces that the peer may use, and
// the peer's name in the audit record. A server makes one Identity for each connection or
// API key, never from the content of a request.
type Identity struct {
	Namespaces []Namespace // held; the first is the peer's own. Empty: the server's own
	Every      bool        // holds all namespaces of the state directory: its owner, or root
	Actor      string      // such as "mcp" or "cli"
	Forms      bool        // an answer to a form that its client shows counts as a person's; see [Identity.Decides]
}

// Own returns the namespace of a request that names none.
func (i Identity) Own() Namespace {
	if len(i.Namespaces) == 0 {
		return ""
	}
	return i.Namespaces[0]
}

// Caller returns the caller of a request that names a namespace by argument,
// header or flag. An empty name and "default" mean the peer's own namespace. Caller fails
// with access_denied if the peer does not hold the namespace, and with invalid_argument if
// the name is not a valid namespace.
func (i Identity) Caller(name string) (Caller, error) {
	c := Caller{Namespace: i.Own(), Actor: i.Actor}
	if len(i.Namespaces) > 1 && !i.Every {
		c.Holder = i.Actor
	}
	if name == "" {
		return c, nil
	}
	ns, err := ParseNamespace(name)
	if err != nil {
		return Caller{}, err
	}
	if ns == DefaultNamespace && !i.Every {
		return c, nil
	}
	if i.holds(ns) {
		c.Namespace = ns
		return c, nil
	}
	return Caller{}, Errorf(CodeAccessDenied, "namespace %s is not yours", Quote(name))
}

// KeyActor returns the [Identity.Actor] of callers with an API key of the settings. number is the position of the key, from 1.
func KeyActor(number int) string { return "http key " + strconv.Itoa(number) }

// All returns the caller for methods that list several namespaces. A peer that holds every
// namespace lists all of them, any other peer its own.
func (i Identity) All() Caller {
	c := Caller{Namespace: i.Own(), Actor: i.Actor}
	if i.Every {
		c.Namespace = EveryNamespace
	}
	return c
}

// Decides reports whether an answer of the peer to a question counts as that of a person. It does if
// the peer holds every namespace, or is a client of the server's own user. Any other peer may be a
// program that runs code, which must not allow itself anything.
func (i Identity) Decides() bool { return i.Every || i.Forms }

func (i Identity) holds(ns Namespace) bool {
	if i.Every {
		return true
	}
	return slices.Contains(i.Namespaces, ns)
}

// EveryNamespace in a [Caller] means all namespaces. Only methods that list, subscribe, or
// decide an approval by its ID accept it; all others fail with access_denied.
// [ParseNamespace] refuses it, so no request can name it.
const EveryNamespace Namespace = "*"

// Caller identifies for whom a method of the engine is called. Servers get it from an
// [Identity]. The zero Caller means the engine's own namespace and actor.
type Caller struct {
	Namespace Namespace
	Actor     string // recorded in the audit
	Holder    string // the peer, if it holds several namespaces and not all: it has no more than others of what callers share
}
