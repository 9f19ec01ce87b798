package sandboxmcp

import "slices"

// Identity is what a transport knows of its peer: the namespaces that the peer
// holds, and the name under which the audit records what it does. A door makes
// one Identity per connection or key, never from what a request says.
type Identity struct {
	Namespaces []Namespace // held; the first is the peer's own. Empty: the server's own
	Every      bool        // holds all namespaces of the state directory: its owner, or root
	Actor      string      // such as "mcp" or "cli"
}

// Own is the namespace of a request that names none.
func (i Identity) Own() Namespace {
	if len(i.Namespaces) == 0 {
		return ""
	}
	return i.Namespaces[0]
}

// Caller returns the caller of a request that names a namespace by argument,
// header or flag. An empty name and "default" mean the peer's own namespace. A
// namespace that the peer does not hold is access_denied, and a text that can be
// no namespace is invalid_argument.
func (i Identity) Caller(name string) (Caller, error) {
	c := Caller{Namespace: i.Own(), Actor: i.Actor}
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

// All returns the caller for verbs that list what several namespaces have. A peer
// that holds every namespace lists all of them, another one its own.
func (i Identity) All() Caller {
	c := Caller{Namespace: i.Own(), Actor: i.Actor}
	if i.Every {
		c.Namespace = EveryNamespace
	}
	return c
}

func (i Identity) holds(ns Namespace) bool {
	if i.Every {
		return true
	}
	return slices.Contains(i.Namespaces, ns)
}

// EveryNamespace in a [Caller] stands for all namespaces together. Only verbs
// that list, subscribe or decide by an approval's ID accept it; all others answer
// access_denied. [ParseNamespace] refuses it, so no request can name it.
const EveryNamespace Namespace = "*"

// Caller is on whose behalf a verb of the engine is done. Doors get it from an
// [Identity]. The zero Caller is the engine's own namespace, with the engine's
// own actor.
type Caller struct {
	Namespace Namespace
	Actor     string // recorded in the audit
}
