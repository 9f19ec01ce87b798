package app

import (
	"strings"
	"testing"
)

func TestLastWords(t *testing.T) {
	log := strings.NewReader("before\nsandboxmcp: old\nnoise\nsandboxmcp: internal: it broke\nnoise\n")
	if got, want := lastWords(log, 7), "internal: it broke"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
