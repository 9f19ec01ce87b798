package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/sandboxmcp/sandboxmcp"
)

// Subject is what a question asks for and what a grant opens, such as a domain.
type Subject[S any] interface {
	// String returns the canonical text. [Kind.Parse] reads it.
	String() string
	// Covers reports whether a grant of this subject opens all of another one.
	Covers(other S) bool
}

// Kind says how the subjects of one kind are read, recorded and named to persons. Name and
// Member are part of the canonical form of stored questions and grants, so they never change.
type Kind[S Subject[S]] struct {
	Name    string                                // kind of the subject in its canonical form
	Member  string                                // name of the subject's text in JSON objects
	Field   func(sub *sandboxmcp.Subject) *string // field of the subject's text
	Parse   func(text string) (S, error)          // reads a subject; any spelling gives the same one
	Covered func(open []S, s S) bool              // whether several subjects together open all of s; nil: one of them must

	Asked, Opened, Denied string          // actions in the audit
	Refused               sandboxmcp.Code // code of a decision against a denial
	Events                Events

	Noun    string                   // "domain"
	Closed  string                   // what holds if grants cannot be read: "every domain is closed"
	Command string                   // group of the commands list, approve, deny and revoke: "egress"
	Grant   func(text string) string // command that opens a subject without a question
	Retry   string                   // what else a model can do after an approval: "run the code again"
	Setting string                   // name of the setting that opens subjects
	Off     func() error             // error of a decision if approvals are off
	OffHow  string                   // the same for a request
}

// Events are the types of the events of a kind. An empty type is not emitted.
type Events struct{ Requested, Approved, Denied sandboxmcp.EventType }

// canonical returns the canonical form of a subject, a JSON object with its members sorted
// by name, and its SHA-256.
func (k *Kind[S]) canonical(ns sandboxmcp.Namespace, s S) (text, digest string, err error) {
	b, err := json.Marshal(map[string]string{k.Member: s.String(), "kind": k.Name, "namespace": string(ns)})
	if err != nil {
		return "", "", err
	}
	return string(b), digestOf(string(b)), nil
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// reading is what a stored row says about its subject.
type reading int

const (
	foreign reading = iota // it is of another kind
	changed                // it was changed after it was written
	whole                  // it is as it was written
	lapsing                // it is a grant that a release without MACs has made
)

// read returns the subject of a stored row of a namespace.
func (k *Kind[S]) read(ns sandboxmcp.Namespace, text, digest string) (s S, r reading) {
	var m map[string]string
	if json.Unmarshal([]byte(text), &m) != nil || m["kind"] != k.Name {
		return s, foreign
	}
	s, err := k.Parse(m[k.Member])
	if err != nil {
		return s, changed
	}
	if again, sum, err := k.canonical(ns, s); err != nil || again != text || sum != digest {
		return s, changed
	}
	return s, whole
}

// subject returns a subject as it is shown.
func (k *Kind[S]) subject(s S) (sub sandboxmcp.Subject) {
	*k.Field(&sub) = s.String()
	return sub
}

// text returns the text of a subject as it is shown.
func (k *Kind[S]) text(sub sandboxmcp.Subject) string { return *k.Field(&sub) }

// command returns a command of the kind's group in backquotes.
func (k *Kind[S]) command(args string) string {
	return "`sandboxmcp " + k.Command + " " + args + "`"
}

// covered reports whether the subjects together open all of s.
func (k *Kind[S]) covered(open []S, s S) bool {
	if k.Covered != nil {
		return k.Covered(open, s)
	}
	for _, o := range open {
		if o.Covers(s) {
			return true
		}
	}
	return false
}
