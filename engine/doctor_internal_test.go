package engine

import (
	"strings"
	"testing"
)

func TestUnforkable(t *testing.T) {
	for want, in := range map[string]interpreter{
		"":                      {Path: "/usr/bin/python3", Version: "3.11", TrustedForPreload: true},
		"others than root":      {Path: "/x/python3", Version: "3.11.1"},
		"older than 3.10":       {Path: "/x/python3", Version: "3.9.18", TrustedForPreload: true},
		"a virtual environment": {Path: "/x/python3", Version: "3.12.1", TrustedForPreload: true, Virtual: true},
	} {
		why, fix := unforkable(in)
		if !strings.Contains(why, want) || (why == "") != (want == "") || (fix == "") != (want == "") {
			t.Errorf("%+v: %q, %q; want %q", in, why, fix, want)
		}
	}
}
