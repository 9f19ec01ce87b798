package config

import (
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

const redacted = "***REDACTED***"

// APIKey is a key for the HTTP API, with the namespaces that its callers may use.
type APIKey struct {
	Key        sandboxmcp.Secret
	Namespaces []sandboxmcp.Namespace // the first is the default; empty: the server's own
	Operator   bool                   // its callers may use every namespace, and decide what persons are asked
}

// everyNamespace is written in place of the namespaces of an operator's key.
const everyNamespace = string(sandboxmcp.EveryNamespace)

func keys(to *[]APIKey) value {
	return value{
		set: func(items []string) bool {
			var all []APIKey
			for _, item := range items {
				k, ok := parseKey(item)
				if !ok || slices.ContainsFunc(all, func(o APIKey) bool { return o.Key.Reveal() == k.Key.Reveal() }) {
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
				if k.Operator {
					names = append(names, everyNamespace)
				}
				if len(names) > 0 {
					s += "=" + strings.Join(names, "|")
				}
				shown = append(shown, s)
			}
			return shown
		},
		legal: func() string {
			return "a list of keys of the form KEY, KEY=namespace|namespace or KEY=*, none of them twice"
		},
		form:   listForm(),
		isList: true,
		field:  to,
		revealed: func() any {
			all := []any{}
			for _, k := range *to {
				all = append(all, k.Key.Reveal(), k.Namespaces, k.Operator)
			}
			return all
		},
	}
}

func parseKey(s string) (APIKey, bool) {
	// The last "=" separates key and namespaces, unless it ends the text: a base64 key may end in "=".
	key, names := s, ""
	if i := strings.LastIndexByte(s, '='); i > 0 && i < len(s)-1 {
		key, names = s[:i], s[i+1:]
	}
	k := APIKey{Key: sandboxmcp.NewSecret(key)}
	if !wordOK(key) || key[0] == '=' { // the text before "=" is the key, which must not be empty
		return k, false
	}
	if names == "" || names == everyNamespace {
		k.Operator = names != ""
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
