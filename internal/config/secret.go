package config

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

const redacted = "***REDACTED***"

// Secret is text that does not print: every way of formatting, encoding or
// logging it shows the same placeholder. Reveal gives the text.
type Secret struct{ text string }

// Reveal returns the secret's text.
func (s Secret) Reveal() string { return s.text }

// String returns a placeholder.
func (s Secret) String() string { return redacted }

// GoString returns a placeholder.
func (s Secret) GoString() string { return redacted }

// Format writes a placeholder, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText returns a placeholder.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns a placeholder.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// APIKey is a key of the HTTP doors with the namespaces that it holds.
type APIKey struct {
	Key        Secret
	Namespaces []sandboxmcp.Namespace // the first is the default; empty: the server's own
}

func keys(to *[]APIKey) value {
	return value{
		set: func(items []string) bool {
			var all []APIKey
			for _, item := range items {
				k, ok := parseKey(item)
				if !ok || slices.ContainsFunc(all, func(o APIKey) bool { return o.Key == k.Key }) {
					return false
				}
				all = append(all, k)
			}
			*to = all
			return true
		},
		show: func() any {
			shown := []string{}
			for _, k := range *to {
				names := make([]string, 0, len(k.Namespaces))
				for _, n := range k.Namespaces {
					names = append(names, string(n))
				}
				s := redacted
				if len(names) > 0 {
					s += "=" + strings.Join(names, "|")
				}
				shown = append(shown, s)
			}
			return shown
		},
		legal:  func() string { return "a list of keys of the form KEY or KEY=namespace|namespace, none of them twice" },
		isList: true,
	}
}

func parseKey(s string) (APIKey, bool) {
	// A key may end in "=" itself, as base64 does: the last one separates.
	key, names := s, ""
	if i := strings.LastIndexByte(s, '='); i > 0 && i < len(s)-1 {
		key, names = s[:i], s[i+1:]
	}
	k := APIKey{Key: Secret{key}}
	if !wordOK(key) {
		return k, false
	}
	if names == "" {
		return k, true
	}
	for n := range strings.SplitSeq(names, "|") {
		ns, err := sandboxmcp.ParseNamespace(n)
		if err != nil {
			return k, false
		}
		k.Namespaces = append(k.Namespaces, ns)
	}
	return k, true
}
