package server

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestWildcardsOfAnybodyAreWarnedOf: a person may take *.github.io for the sites of one company.
func TestWildcardsOfAnybodyAreWarnedOf(t *testing.T) {
	for domain, want := range map[string]bool{"*.co.uk": true, "*.github.io": true, "*.s3.amazonaws.com:8443": true, "*.example.com": false, "me.github.io": false, "*.me.github.io": false, "*.intern.corp": false} {
		text := egressText(sandboxmcp.Approval{Subject: sandboxmcp.Subject{Domain: domain}})
		if got := strings.Contains(text, "Warning: anybody"); got != want {
			t.Errorf("%s: got %q, want a warning: %t", domain, text, want)
		}
	}
}
