package packages_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
)

// TestPolicyAndCase: on npm, JSONStream and jsonstream are packages of different persons. Allowing one
// does not allow the other; denying one denies both.
func TestPolicyAndCase(t *testing.T) {
	for name, c := range map[string]struct {
		language sandboxmcp.Language
		policy   packages.Policy
		spec     string
		fine     bool
	}{
		"Same":         {sandboxmcp.Node, packages.Policy{Allow: []string{"JSONStream"}, Default: packages.Deny}, "JSONStream", true},
		"Kind":         {sandboxmcp.Node, packages.Policy{Allow: []string{"Node:JSON*"}, Default: packages.Deny}, "JSONStream", true},
		"Other":        {sandboxmcp.Node, packages.Policy{Allow: []string{"jsonstream"}, Default: packages.Deny}, "JSONStream", false},
		"OtherPattern": {sandboxmcp.Node, packages.Policy{Allow: []string{"node:json*"}, Default: packages.Deny}, "JSONStream", false},
		"Denied":       {sandboxmcp.Node, packages.Policy{Deny: []string{"jsonstream"}}, "JSONStream", false},
		"Python":       {sandboxmcp.Python, packages.Policy{Allow: []string{"JSON_Stream"}, Default: packages.Deny}, "Json.Stream", true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := cleaned(t, newIndex(t).config(t))
			cfg.Policy = c.policy
			g, err := packages.New(cfg).Open(t.Context(), parse(t, c.language, c.spec))
			if err == nil {
				_ = g.Close()
			}
			if (err == nil) != c.fine || err != nil && sandboxmcp.CodeOf(err) != sandboxmcp.CodePackageRejected {
				t.Errorf("got %v, want it allowed: %v", err, c.fine)
			}
		})
	}
}
