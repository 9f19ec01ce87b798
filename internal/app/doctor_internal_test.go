package app

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
)

func TestUnforkable(t *testing.T) {
	for want, in := range map[string]interpreter.Interpreter{
		"":                      {Interpreter: backend.Interpreter{Path: "/usr/bin/python3", Version: "3.11", TrustedForPreload: true}},
		"others than root":      {Interpreter: backend.Interpreter{Path: "/x/python3", Version: "3.11.1"}},
		"older than 3.10":       {Interpreter: backend.Interpreter{Path: "/x/python3", Version: "3.9.18", TrustedForPreload: true}},
		"a virtual environment": {Interpreter: backend.Interpreter{Path: "/x/python3", Version: "3.12.1", TrustedForPreload: true, Virtual: true}},
	} {
		why, fix := unforkable(in)
		if !strings.Contains(why, want) || (why == "") != (want == "") || (fix == "") != (want == "") {
			t.Errorf("%+v: %q, %q; want %q", in, why, fix, want)
		}
	}
}
